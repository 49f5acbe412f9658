//! The task that tries waiting names again when they are due. It runs only while a name waits.

use std::sync::{Arc, Weak};

use leasehold_core::{LONGEST_SLEEP, Notification};
use tokio::sync::Notify;

use super::client::SessionClient;
use crate::{client::lock_mutex, runtime};

/// Starts the task. `wake` is notified when a name has to be tried earlier.
pub(super) fn start(client: Weak<SessionClient>, wake: Arc<Notify>) {
    let after_panic = {
        let client = Weak::clone(&client);
        move || {
            if let Some(client) = client.upgrade() {
                client.mailbox.push(Notification::AskAll);
            }
        }
    };
    let rounds = move || run(Weak::clone(&client), Arc::clone(&wake));
    runtime::spawn(leasehold_core::run_with_restarts("poll", rounds, after_panic, runtime::sleep));
}

/// Tries names until none waits, or the client is gone.
async fn run(client: Weak<SessionClient>, wake: Arc<Notify>) {
    loop {
        let Some(client) = client.upgrade() else { return };
        let due = {
            let mut state = lock_mutex(&client.state);
            let due = state.table.next_due();
            state.polls = due.is_some();
            due
        };
        let Some(due) = due else { return };
        let now = client.clock.now();
        if due > now {
            drop(client);
            tokio::select! {
                () = wake.notified() => {}
                () = runtime::sleep(due.since(now).min(LONGEST_SLEEP)) => {}
            }
        } else if let Err(error) = client.session().await {
            drop(client);
            tracing::debug!(%error, "waiting claims have no session");
            runtime::sleep(LONGEST_SLEEP).await;
        } else {
            client.step(|state| state.table.poll(client.clock.now()));
        }
    }
}
