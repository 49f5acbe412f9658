//! Waits for a connection that another request uses.

use std::time::Duration;

use tokio::sync::Notify;

use crate::runtime;

/// The longest wait for a connection that another request uses, where the server accepts no more.
const LONGEST: Duration = Duration::from_secs(1);

/// The result of `free` after a connection was returned; `None` when none was returned in time.
pub(crate) async fn returned<T>(rings: &Notify, free: impl Fn() -> Option<T>) -> Option<T> {
    let returned = async {
        loop {
            rings.notified().await;
            if let Some(conn) = free() {
                return conn;
            }
        }
    };
    runtime::within(LONGEST, returned).await
}
