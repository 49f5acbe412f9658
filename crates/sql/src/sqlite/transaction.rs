//! Many jobs in one transaction, each done as a whole or not at all.

use std::cell::Cell;

use leasehold_core::Fault;

use super::{
    error::{Stage, before_commit, classify},
    opened::Opened,
};
use crate::database::Failed;

/// The context of a job: the database, and the time.
pub(super) struct Scope<'a> {
    pub(super) file: &'a Opened,
    /// The time, read when no other process could write any more.
    pub(super) now: i64,
    /// Whether to wake other processes after the commit.
    wakes_others: Cell<bool>,
}

impl Scope<'_> {
    /// Records a grant to another process, so that other processes are woken after the commit.
    pub(super) fn wake_others(&self) {
        self.wakes_others.set(true);
    }
}

/// Sends the result of a job to its caller, given whether the transaction was committed.
type Report = Box<dyn FnOnce(&Result<(), Failed>) + Send>;

/// Does one part of a transaction; or, if it gets the reason why there is no transaction, fails with that reason.
pub(super) type Job = Box<dyn FnOnce(Result<&Scope<'_>, &Failed>) -> JobResult + Send>;

/// The result of a job, to be reported after the end of the transaction.
pub(super) struct JobResult {
    /// Why the job failed, if it did.
    pub(super) failed: Option<Failed>,
    pub(super) report: Report,
}

impl JobResult {
    /// The result of a job without a waiting caller.
    pub(super) fn without_caller() -> Self {
        Self { failed: None, report: Box::new(|_| ()) }
    }
}

/// Does the jobs in the transaction that has begun, and commits it. Returns false if anything failed: then the caller
/// must close the connection.
pub(super) fn run_together(file: &Opened, now: i64, jobs: Vec<Job>, wake_others: impl FnOnce()) -> bool {
    let scope = Scope { file, now, wakes_others: Cell::new(false) };
    let is_single = jobs.len() == 1;
    let mut job_results = Vec::with_capacity(jobs.len());
    // Why the transaction ended early: some errors end it as a whole.
    let mut end_reason: Option<Failed> = None;
    for job in jobs {
        if let Some(failed) = &end_reason {
            job_results.push(job(Err(failed)));
            continue;
        }
        let (job_result, savepoint_result) =
            if is_single { (job(Ok(&scope)), Ok(())) } else { run_in_savepoint(&scope, job) };
        end_reason = savepoint_result.err();
        if end_reason.is_none() && file.connection.is_autocommit() {
            end_reason = Some(job_result.failed.clone().unwrap_or_else(|| rolled_back("it ended by itself")));
        }
        job_results.push(job_result);
    }
    let any_failed = job_results.iter().any(|job_result| job_result.failed.is_some());
    let committed = match end_reason {
        Some(failed) => Err(failed),
        // The only job failed: the transaction is rolled back below.
        None if is_single && any_failed => Ok(()),
        None => commit(file),
    };
    if !file.connection.is_autocommit() {
        // Undoes the transaction, so that a reported error is true.
        let _ = file.connection.execute_batch("ROLLBACK");
    }
    if committed.is_ok() && scope.wakes_others.get() {
        wake_others();
    }
    let succeeded = committed.is_ok() && !any_failed;
    for JobResult { report, .. } in job_results {
        report(&committed);
    }
    succeeded
}

/// Does one of several jobs in a savepoint, so that a failed job has no effect. Returns the result of the job, and an
/// error if the transaction cannot continue.
fn run_in_savepoint(scope: &Scope<'_>, job: Job) -> (JobResult, Result<(), Failed>) {
    let execute = |text: &str| {
        let mut statement = scope.file.connection.prepare_cached(text)?;
        statement.execute([]).map(drop)
    };
    if let Err(error) = execute("SAVEPOINT job") {
        let failed = before_commit(error);
        return (job(Err(&failed)), Err(failed));
    }
    let job_result = job(Ok(scope));
    let savepoint_result = match &job_result.failed {
        None => execute("RELEASE job"),
        Some(_) => execute("ROLLBACK TO job").and_then(|()| execute("RELEASE job")),
    };
    // A job that could not be undone fails the whole transaction.
    let savepoint_result =
        savepoint_result.map_err(|error| job_result.failed.clone().unwrap_or_else(|| before_commit(error)));
    (job_result, savepoint_result)
}

/// Commits the transaction; fails if the file was replaced meanwhile.
fn commit(file: &Opened) -> Result<(), Failed> {
    let mut commit = file.connection.prepare_cached("COMMIT").map_err(before_commit)?;
    commit.execute([]).map_err(|error| classify(&error, Stage::Commit))?;
    if file.is_at_path() {
        return Ok(());
    }
    // A process that opens the path now does not see this commit.
    Err(rolled_back("the file was replaced at this moment"))
}

/// The error for a transaction without effect.
fn rolled_back(why: &str) -> Failed {
    Failed::new(Fault::Unknown, format!("the transaction has no effect: {why}"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use leasehold_core::Env;

    use super::*;
    use crate::sqlite::worker::Access;

    type Results = Arc<Mutex<Vec<Result<(), Fault>>>>;

    /// A job that executes these statements one by one.
    fn job(results: &Results, texts: &'static [&'static str]) -> Job {
        let results = Arc::clone(results);
        Box::new(move |scope| {
            let does = |scope: &Scope<'_>| {
                texts
                    .iter()
                    .try_for_each(|text| scope.file.connection.execute_batch(text).map_err(before_commit))
            };
            let done = scope.map_err(Clone::clone).and_then(does);
            let failed = done.as_ref().err().cloned();
            let report = move |committed: &Result<(), Failed>| {
                let all = committed.clone().and(done).map_err(|failed| failed.fault);
                results.lock().unwrap().push(all);
            };
            JobResult { failed, report: Box::new(report) }
        })
    }

    /// The results reported to the jobs, and the numbers in the file at the end.
    fn run(jobs: &[&'static [&'static str]]) -> (Vec<Result<(), Fault>>, String) {
        let dir = tempfile::tempdir().unwrap();
        let file = Opened::open(&dir.path().join("a.db"), &*Env::system().clock, Access::Write).unwrap();
        file.connection.execute_batch("CREATE TABLE t (x UNIQUE)").unwrap();
        file.begin(Access::Write).unwrap();
        let results = Results::default();
        run_together(&file, 0, jobs.iter().map(|texts| job(&results, texts)).collect(), || ());
        assert!(file.connection.is_autocommit(), "nothing stays begun");
        let text = "SELECT coalesce(group_concat(x, ' '), '') FROM (SELECT x FROM t ORDER BY x)";
        let savepoint_result = file.connection.query_row(text, [], |row| row.get(0)).unwrap();
        (Arc::try_unwrap(results).unwrap().into_inner().unwrap(), savepoint_result)
    }

    const ONE: &[&str] = &["INSERT INTO t VALUES (1)"];
    const TWO: &[&str] = &["INSERT INTO t VALUES (2)"];
    /// Fails in the middle.
    const HALF: &[&str] = &["INSERT INTO t VALUES (3)", "INSERT INTO nothing VALUES (4)"];
    /// Like a full disk: the whole transaction is rolled back.
    const ALL: &[&str] = &["INSERT INTO t VALUES (5)", "INSERT OR ROLLBACK INTO t VALUES (5)"];

    #[test]
    fn a_failed_job_is_undone_alone() {
        assert_eq!(run(&[ONE, HALF, TWO]), (vec![Ok(()), Err(Fault::Misconfigured), Ok(())], "1 2".into()));
        assert_eq!(run(&[HALF]), (vec![Err(Fault::Misconfigured)], String::new()));
        assert_eq!(run(&[ONE]), (vec![Ok(())], "1".into()));
    }

    #[test]
    fn a_look_before_the_file_exists_succeeds_also_if_the_file_is_created_meanwhile() {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Env::system().clock);
        let path = dir.path().join("a.db");
        let look = Opened::open(&path, &*clock, Access::Read).unwrap();
        look.begin(Access::Read).unwrap();
        Opened::open(&path, &*clock, Access::Write).unwrap();
        let results = Results::default();
        run_together(&look, 0, vec![job(&results, &["SELECT * FROM leasehold_lock"])], || ());
        assert_eq!(*results.lock().unwrap(), [Ok(())]);
        assert!(!look.may_stay_open(), "the next look finds the file");
    }

    #[test]
    fn a_rollback_is_reported_to_all_jobs() {
        for jobs in [&[ONE, ALL, TWO][..], &[ALL, ONE], &[ONE, ALL], &[ALL]] {
            let (results, savepoint_result) = run(jobs);
            assert!(results.len() == jobs.len() && results.iter().all(Result::is_err), "{results:?}");
            assert_eq!(savepoint_result, "");
        }
    }
}
