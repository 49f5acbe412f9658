//! The thread that uses the database; each client has one. Of the jobs that arrive while the thread works, all reads
//! share one transaction, and then all writes share another one, which waits for the disk once. Within a transaction
//! the thread does the jobs in the order of their requests.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{Receiver, Sender, channel},
};

use leasehold_core::Fault;
use tokio::sync::oneshot;

use super::{
    opened::Opened,
    transaction::{Job, JobResult, Scope, run_together},
};
use crate::{database::Failed, engine::REQUEST_TIMEOUT, runtime};

/// The maximum number of jobs in one transaction.
const MAX_JOBS: usize = 256;

/// The kind of access to the database that a job needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The job only reads: it waits for no writer, and no writer waits for it.
    Read,
    Write,
}

/// Passes jobs to the thread. The thread ends when the `Worker` is dropped.
pub(super) struct Worker {
    jobs: Sender<(Access, Job)>,
}

/// The resources of the thread.
pub(super) trait Resources: Send + 'static {
    /// Begins a transaction that reads, or a transaction that writes and makes other writers wait. Opens the database
    /// if it is not open or was replaced. Returns the present time.
    fn begin(&mut self, file: &mut Option<Opened>, access: Access) -> Result<i64, Failed>;

    /// Signals other processes to check for grants to their claims.
    fn wake_others(&self);
}

impl Worker {
    /// Starts the thread.
    pub(super) fn start(resources: impl Resources) -> io::Result<Self> {
        let (jobs, queued_jobs) = channel();
        runtime::thread("leasehold-sqlite", move || run_restarting(&queued_jobs, resources))?;
        Ok(Self { jobs })
    }

    /// Has the thread do `work`, and returns its result after the transaction is committed.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        access: Access,
        work: impl FnOnce(&Scope<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failed> {
        let (tx, rx) = oneshot::channel();
        let job: Job = Box::new(move |scope| {
            // No caller waits for the result any more, so the job is not done.
            if tx.is_closed() {
                return JobResult::without_caller();
            }
            let result = scope.map_err(Clone::clone).and_then(work);
            let failed = result.as_ref().err().cloned();
            let report = Box::new(move |committed: &Result<(), Failed>| {
                let _ = tx.send(committed.clone().and(result));
            });
            JobResult { failed, report }
        });
        let thread_failed =
            || Failed::new(Fault::Unknown, "the database thread met a bug, and it is unknown what it did");
        self.jobs.send((access, job)).map_err(|_| thread_failed())?;
        match runtime::within(REQUEST_TIMEOUT, rx).await {
            Some(answer) => answer.map_err(|_| thread_failed())?,
            None => Err(timed_out(access)),
        }
    }
}

/// The error for a job without an answer in time.
fn timed_out(access: Access) -> Failed {
    let fault = if access == Access::Read { Fault::Retry } else { Fault::Unknown };
    Failed::new(fault, format!("the database did not answer within {REQUEST_TIMEOUT:?}"))
}

/// Runs jobs, and after a panic opens the database again and continues. The callers of the jobs that the panic ended
/// get an error.
fn run_restarting(queued_jobs: &Receiver<(Access, Job)>, mut resources: impl Resources) {
    while catch_unwind(AssertUnwindSafe(|| run(queued_jobs, &mut resources))).is_err() {
        tracing::error!(
            "the database thread met a bug and continues: please report the message of its panic"
        );
    }
}

/// Runs jobs until the `Worker` is dropped.
fn run(queued_jobs: &Receiver<(Access, Job)>, resources: &mut impl Resources) {
    let mut file = None;
    while let Ok(first) = queued_jobs.recv() {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (access, job) in std::iter::once(first).chain(queued_jobs.try_iter().take(MAX_JOBS - 1)) {
            if access == Access::Read { reads.push(job) } else { writes.push(job) }
        }
        for (access, jobs) in [(Access::Read, reads), (Access::Write, writes)] {
            if jobs.is_empty() {
                continue;
            }
            let begin_result = resources.begin(&mut file, access);
            match (begin_result, &file) {
                (Ok(now), Some(opened)) => {
                    if !run_together(opened, now, jobs, || resources.wake_others()) {
                        file = None;
                    }
                }
                (begin_result, _) => {
                    let failed =
                        begin_result.err().unwrap_or_else(|| Failed::new(Fault::Internal, "it is not open"));
                    // Jobs that arrived meanwhile have waited, too: refuse them as well, so that none waits twice.
                    let waited = queued_jobs.try_iter().map(|(_, job)| job);
                    refuse(jobs.into_iter().chain(waited), &failed);
                }
            }
        }
    }
}

/// Fails jobs for which there is no transaction.
fn refuse(jobs: impl Iterator<Item = Job>, failed: &Failed) {
    for job in jobs {
        (job(Err(failed)).report)(&Ok(()));
    }
}
