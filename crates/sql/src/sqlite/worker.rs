//! The one thread of a process that uses the database. What came while it worked is done in one transaction, which waits for the disk
//! once. Like a connection it does things in the order in which they were asked, but that looks come before changes.

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

/// How much is done at once.
const MOST: usize = 256;

/// What a job does to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Looks: waits for nobody, and nobody waits for it.
    Read,
    Write,
}

/// Hands work to the thread, which ends when this is dropped.
pub(super) struct Worker {
    jobs: Sender<(Need, Job)>,
}

/// What the thread uses.
pub(super) trait Source: Send + 'static {
    /// Begins to read, or to write: then others wait. Opens the database if it is not open, or is another one now. Says the time.
    fn begin(&mut self, file: &mut Option<Opened>, need: Need) -> Result<i64, Failed>;

    /// Tells other processes to look what was granted to them.
    fn ring(&self);
}

impl Worker {
    pub(super) fn start(source: impl Source) -> io::Result<Self> {
        let (jobs, orders) = channel();
        runtime::thread("leasehold-sqlite", move || keep_on(&orders, source))?;
        Ok(Self { jobs })
    }

    /// What comes of `work`, once it is committed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        need: Need,
        work: impl FnOnce(&Scope<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failed> {
        let (tx, rx) = oneshot::channel();
        let job: Job = Box::new(move |scope| {
            // Nobody waits for it any more, or nobody can know of it: it is not done later than that.
            if tx.is_closed() {
                return After::nothing();
            }
            let done = scope.map_err(Clone::clone).and_then(work);
            let failed = done.as_ref().err().cloned();
            let tell = Box::new(move |committed: &Result<(), Failed>| {
                let _ = tx.send(committed.clone().and(done));
            });
            After { failed, tell }
        });
        let ended = || {
            Failed::new(Fault::Unknown, "the thread of the database met a bug, and nobody knows what it did")
        };
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

/// Goes on after a panic, with the database opened anew: whoever waited for what it met hears that there is no answer.
fn keep_on(orders: &Receiver<(Need, Job)>, mut source: impl Source) {
    while catch_unwind(AssertUnwindSafe(|| run(orders, &mut source))).is_err() {
        tracing::error!("the thread of the database met a bug and goes on: please report what it said");
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
                    if !together(opened, now, jobs, || source.ring()) {
                        file = None;
                    }
                }
                (begun, _) => {
                    let failed =
                        begun.err().unwrap_or_else(|| Failed::new(Fault::Internal, "it is not open"));
                    // Those who came meanwhile waited, too: so nobody waits twice.
                    let waited = orders.try_iter().map(|(_, job)| job);
                    refuse(jobs.into_iter().chain(waited), &failed);
                }
            }
        }
    }
}

fn refuse(jobs: impl Iterator<Item = Job>, failed: &Failed) {
    for job in jobs {
        (job(Err(failed)).tell)(&Ok(()));
    }
}
