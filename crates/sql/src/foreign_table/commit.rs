//! The commit of a claim. A row of some layouts says nothing of its owner. If nobody learned how its commit ended,
//! nobody could tell later whether the row is that of the claim, and the row would stay for ever. So a task of its own
//! waits for the answer, also if the claim is dropped.

use leasehold_core::Fault;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};

use super::{pool::Borrowed, store::Step};
use crate::{client::within_request_timeout, database::Failed, runtime};

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// It certainly did nothing.
    Failed,
    /// It was not answered.
    Unknown,
}

/// What is known of a commit that was sent.
#[derive(Clone, Debug)]
pub(super) struct Commit(watch::Receiver<Option<Outcome>>);

/// A commit that is sent next.
pub(super) struct Committing(watch::Sender<Option<Outcome>>);

impl Commit {
    /// A commit that is sent next, and what others learn of it.
    pub(super) fn begin() -> (Committing, Self) {
        let (sender, receiver) = watch::channel(None);
        (Committing(sender), Self(receiver))
    }

    /// How the commit ended, as soon as it has ended.
    pub(super) async fn outcome(&self) -> Outcome {
        let mut known = self.0.clone();
        // A task that ended without a word knows nothing.
        known.wait_for(Option::is_some).await.ok().and_then(|known| *known).unwrap_or(Outcome::Unknown)
    }
}

impl Committing {
    /// Executes the last steps of a claim, and gives the connection back if they succeed. A dropped future ends only
    /// the wait.
    pub(super) async fn run(
        self,
        mut borrowed: Borrowed,
        row_wait: Option<OwnedSemaphorePermit>,
        steps: Vec<Step>,
    ) -> Result<(), Failed> {
        let (answer, answered) = oneshot::channel();
        runtime::spawn(async move {
            let committed = within_request_timeout(borrowed.conn.run(&steps)).await.map(drop);
            drop(row_wait);
            let outcome = match &committed {
                Ok(()) => Outcome::Done,
                Err(failed) if failed.fault == Fault::Unknown => Outcome::Unknown,
                Err(_) => Outcome::Failed,
            };
            if committed.is_ok() {
                borrowed.give_back();
            }
            self.0.send_replace(Some(outcome));
            let _ = answer.send(committed);
        });
        let ended =
            || Err(Failed::new(Fault::Unknown, "the answer did not come: the task of the commit ended"));
        answered.await.unwrap_or_else(|_| ended())
    }
}
