//! Waits for a connection that another request uses.

use std::time::Duration;

use tokio::sync::Notify;

use crate::runtime;

/// The longest wait for a connection that another request uses, if the server accepts no more connections.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Waits until a connection is returned to the pool and `take_idle` takes it; `None` if this does not happen within
/// [`MAX_WAIT`].
pub(crate) async fn wait_for_returned<T>(returned: &Notify, take_idle: impl Fn() -> Option<T>) -> Option<T> {
    let waiting = async {
        loop {
            returned.notified().await;
            if let Some(conn) = take_idle() {
                return conn;
            }
        }
    };
    runtime::within(MAX_WAIT, waiting).await
}
