//! Notices of changes through a `Locks`, for views. A task of the keeper has the engine tell them.

use std::{sync::Arc, time::Duration};

use crate::{
    Locks, NoticeSender, Notices, Watched, catch_panic,
    driver::{keeper::KeeperJob, shared::Shared},
    notices,
};

/// The pause before the engine is asked again for notices that it cannot send at present. A view looks at its own pace
/// meanwhile.
const RETRY_PAUSE: Duration = Duration::from_secs(2);

impl Locks {
    /// Notices of changes of these names, until the returned value or this `Locks` is dropped. They cost one
    /// subscription at the server, where the engine has one, and write nothing there.
    #[doc(hidden)]
    #[must_use]
    pub fn notices(&self, watched: Watched) -> Notices {
        let (sender, receiver) = notices();
        let shared = Arc::clone(self.shared());
        // A closed `Locks` has nothing to tell.
        if shared.check_open().and_then(|()| shared.ensure_served()).is_ok() {
            let task = async move {
                tokio::select! {
                    biased;
                    () = sender.unread() => {}
                    () = shared.until_over() => {}
                    () = tell(&shared, &watched, &sender) => {}
                }
            };
            self.shared().queue_job(KeeperJob::Spawn(Box::pin(task)));
        }
        receiver
    }
}

/// Has the engine tell changes, again and again, until it cannot.
async fn tell(shared: &Shared, watched: &Watched, sender: &NoticeSender) {
    loop {
        let ended = catch_panic(shared.engine.tell_changes(watched, sender)).await;
        sender.end();
        match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a view gets no notices of changes, and looks at its own pace");
            }
            Err(panicked) => tracing::error!(%panicked, "a view gets no notices of changes"),
        }
        shared.keeper.sleep(RETRY_PAUSE).await;
    }
}
