//! The one thread of a process that uses the database. Jobs that arrive while it works share one transaction, which
//! waits for the disk once. Like a connection it does jobs in the order of their requests, except that reads come
//! before writes.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, Sender, channel},
};

use leasehold_core::Fault;
use tokio::sync::oneshot;

use super::{
    opened::Opened,
    transaction::{After, Job, Scope, together},
};
use crate::{database::Failed, engine::REQUEST_TIMEOUT, runtime};

/// The maximum number of jobs in one transaction.
const MOST: usize = 256;

/// What a job does to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Reads: waits for no writer, and no writer waits for it.
    Read,
    Write,
}

/// Passes jobs to the thread, which ends when this is dropped.
pub(super) struct Worker {
    jobs: Sender<(Need, Job)>,
}

/// The resources of the thread.
pub(super) trait Source: Send + 'static {
    /// Begins to read, or to write, which makes other writers wait. Opens the database if it is not open or was
    /// replaced. Returns the time.
    fn begin(&mut self, file: &mut Option<Opened>, need: Need) -> Result<i64, Failed>;

    /// Signals other processes to check for grants to their claims.
    fn wake_others(&self);
}

impl Worker {
    pub(super) fn start(source: impl Source) -> io::Result<Self> {
        let (jobs, orders) = channel();
        runtime::thread("leasehold-sqlite", move || run_restarting(&orders, source))?;
        Ok(Self { jobs })
    }

    /// The result of `work`, once it is committed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        need: Need,
        work: impl FnOnce(&Scope<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failed> {
        let (tx, rx) = oneshot::channel();
        let job: Job = Box::new(move |scope| {
            // No caller waits for the result any more: the job is not done this late.
            if tx.is_closed() {
                return After::nothing();
            }
            let done = scope.map_err(Clone::clone).and_then(work);
            let failed = done.as_ref().err().cloned();
            let report = Box::new(move |committed: &Result<(), Failed>| {
                let _ = tx.send(committed.clone().and(done));
            });
            After { failed, report }
        });
        let ended =
            || Failed::new(Fault::Unknown, "the database thread met a bug, and it is unknown what it did");
        self.jobs.send((need, job)).map_err(|_| ended())?;
        match runtime::within(REQUEST_TIMEOUT, rx).await {
            Some(answer) => answer.map_err(|_| ended())?,
            None => Err(late(need)),
        }
    }
}

fn late(need: Need) -> Failed {
    let fault = if need == Need::Read { Fault::Retry } else { Fault::Unknown };
    Failed::new(fault, format!("the database did not answer within {REQUEST_TIMEOUT:?}"))
}

/// Restarts after a panic, with the database opened again; the callers of the affected jobs get no answer.
fn run_restarting(orders: &Receiver<(Need, Job)>, mut source: impl Source) {
    while catch_unwind(AssertUnwindSafe(|| run(orders, &mut source))).is_err() {
        tracing::error!(
            "the database thread met a bug and continues: please report the message of its panic"
        );
    }
}

fn run(orders: &Receiver<(Need, Job)>, source: &mut impl Source) {
    let mut file = None;
    while let Ok(first) = orders.recv() {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (need, job) in std::iter::once(first).chain(orders.try_iter().take(MOST - 1)) {
            if need == Need::Read { reads.push(job) } else { writes.push(job) }
        }
        for (need, jobs) in [(Need::Read, reads), (Need::Write, writes)] {
            if jobs.is_empty() {
                continue;
            }
            let begun = source.begin(&mut file, need);
            match (begun, &file) {
                (Ok(now), Some(opened)) => {
                    if !together(opened, now, jobs, || source.wake_others()) {
                        file = None;
                    }
                }
                (begun, _) => {
                    let failed =
                        begun.err().unwrap_or_else(|| Failed::new(Fault::Internal, "it is not open"));
                    // Jobs that arrived meanwhile have waited, too: refuse them as well, so that none waits twice.
                    let waited = orders.try_iter().map(|(_, job)| job);
                    refuse(jobs.into_iter().chain(waited), &failed);
                }
            }
        }
    }
}

fn refuse(jobs: impl Iterator<Item = Job>, failed: &Failed) {
    for job in jobs {
        (job(Err(failed)).report)(&Ok(()));
    }
}
