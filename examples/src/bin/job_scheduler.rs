//! A job scheduler in the database of the application, by way of `sqlx`. 4 processes look for jobs that are due, and
//! run each of them once. The lock is a row that the transaction of the job locks: so the lock, the run and the state
//! of the job are committed together, and there is no lease that could end before the job does. One worker is killed;
//! the server then rolls its transaction back, and another worker runs the job.
//!
//! The jobs are in a PostgreSQL that the program starts, or in yours (`--jobs`); the program needs the permission to
//! create the tables `jobs`, `runs` and `leasehold_row_locks` in it.
//!
//! With `--textbook` the row is locked as in many programs: by a statement outside the transaction, so that the lock
//! ends with the statement.

use std::process::ExitCode;

use leasehold::sql::{Dialect, RowLock, row_lock};
use leasehold_examples::{
    Data, Failure, Floor, Overlap, Protection, Scenario, Slow, TextbookPlace, check, failures, run,
    wait_until,
};
use sqlx::PgPool;

const JOBS: i64 = 40;
const WORKERS: usize = 4;

fn main() -> ExitCode {
    let data = Data::Server { option: "--jobs", kinds: &["postgres"] };
    run(&Scenario { data, textbook: TextbookPlace::Data }, boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pool = runtime.block_on(async {
        let pool = PgPool::connect(floor.data_url()?).await?;
        for text in [
            "DROP TABLE IF EXISTS jobs, runs",
            "CREATE TABLE jobs AS SELECT id, true AS is_due FROM generate_series(1, 40) AS id",
            "CREATE TABLE runs (job int NOT NULL, worker int NOT NULL, token bigint NOT NULL)",
            &RowLock::from("schedule").schema(Dialect::Postgres),
            "INSERT INTO leasehold_row_locks VALUES ('schedule', 1) ON CONFLICT DO NOTHING",
        ] {
            sqlx::query(sqlx::AssertSqlSafe(text)).execute(&pool).await?;
        }
        Ok::<_, Failure>(pool)
    })?;
    let count = |text| runtime.block_on(sqlx::query_scalar::<_, i64>(text).fetch_one(&pool));
    let mut workers: Vec<_> = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    wait_until("runs", || Ok(count("SELECT count(*) FROM runs")? >= JOBS / 4))?;
    workers[0].kill()?;
    println!("worker 0 killed");
    check(failures(workers)? == 0, "a worker failed")?;
    let (runs, jobs) = (count("SELECT count(*) FROM runs")?, count("SELECT count(DISTINCT job) FROM runs")?);
    println!("{jobs} of {JOBS} jobs run");
    floor.judge(usize::try_from(runs - jobs)?, "runs of a job that had run already")?;
    check(jobs == JOBS, "a job did not run")
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let overlap = Overlap::begin(floor, Slow::BeforeWrite)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let pool = PgPool::connect(floor.data_url()?).await?;
        while run_next_job(&pool, floor, &overlap).await? {}
        Ok(())
    })
}

/// Runs the next job. Returns whether one was due.
async fn run_next_job(pool: &PgPool, floor: &Floor, overlap: &Overlap) -> Result<bool, Failure> {
    let mut transaction = pool.begin().await?;
    let token = match floor.protection {
        Protection::Leasehold => row_lock(&mut transaction, "schedule").await?.token(),
        Protection::Textbook => {
            let lock = "SELECT token FROM leasehold_row_locks WHERE name = 'schedule' FOR UPDATE";
            sqlx::query(lock).fetch_one(pool).await?;
            0
        }
        Protection::WithoutLock => 0,
    };
    let next = sqlx::query_scalar("SELECT min(id) FROM jobs WHERE is_due");
    let Some(job) = next.fetch_one(&mut *transaction).await? else { return Ok(false) };
    let job: i32 = job;
    overlap.before_write().await?;
    let run = sqlx::query("INSERT INTO runs (job, worker, token) VALUES ($1, $2, $3)");
    let run =
        run.bind(job).bind(i32::try_from(floor.worker.unwrap_or_default())?).bind(i64::try_from(token)?);
    run.execute(&mut *transaction).await?;
    let done = sqlx::query("UPDATE jobs SET is_due = false WHERE id = $1").bind(job);
    done.execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(true)
}
