//! A worker of which only one may run, such as the sender of an outbox, started on 4 machines. The one that works is
//! killed; the next one starts as soon as the database has noticed that, without a table of locks and without waiting
//! for the end of a lease. The lock belongs to the session of the holder's connection (`hold=session`).
//!
//! The messages are in a PostgreSQL that the program starts, or in yours (`--outbox`); the program needs the permission
//! to create the table `sent` in it.
//!
//! With `--textbook` the lock is an advisory lock that the worker takes by way of its pool: it ends with the statement,
//! because the pool runs the statement in a transaction of its own.

use std::process::ExitCode;

use leasehold::Locks;
use leasehold_examples::{
    Data, Failure, Floor, Overlap, Protection, Scenario, Slow, TextbookPlace, check, failures, run,
    wait_until,
};
use sqlx::PgPool;

const MESSAGES: i64 = 60;
const WORKERS: usize = 4;

fn main() -> ExitCode {
    let data = Data::Server { option: "--outbox", kinds: &["postgres"] };
    run(&Scenario { data, textbook: TextbookPlace::Data }, boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let pool = runtime.block_on(async {
        let pool = PgPool::connect(floor.data_url()?).await?;
        for text in ["DROP TABLE IF EXISTS sent", "CREATE TABLE sent (message int, worker int, token bigint)"]
        {
            sqlx::query(text).execute(&pool).await?;
        }
        Ok::<_, Failure>(pool)
    })?;
    let count = |text| runtime.block_on(sqlx::query_scalar::<_, i64>(text).fetch_one(&pool));
    let mut workers: Vec<_> = (0..WORKERS).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    wait_until("messages", || Ok(count("SELECT count(*) FROM sent")? >= MESSAGES / 4))?;
    let active = count("SELECT worker::bigint FROM sent ORDER BY message DESC LIMIT 1")?;
    workers[usize::try_from(active)?].kill()?;
    println!("the active worker killed");
    check(failures(workers)? == 0, "a worker failed")?;
    let (sent, messages) =
        (count("SELECT count(*) FROM sent")?, count("SELECT count(DISTINCT message) FROM sent")?);
    println!("{messages} of {MESSAGES} messages sent");
    floor.judge(usize::try_from(sent - messages)?, "messages sent again")?;
    check(messages == MESSAGES, "a message was not sent")
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let overlap = Overlap::begin(floor, Slow::BeforeWrite)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let pool = PgPool::connect(floor.data_url()?).await?;
        let mut token = 0;
        let guard = match floor.protection {
            Protection::Leasehold => {
                let url = floor.data_url()?;
                let separator = if url.contains('?') { '&' } else { '?' };
                let locks = Locks::connect(&format!("{url}{separator}hold=session"))?;
                // Waits until the worker before this one is gone.
                let guard = locks.mutex("sender").acquire().await?;
                token = i64::try_from(guard.token().number)?;
                Some(guard)
            }
            Protection::Textbook => {
                sqlx::query("SELECT pg_advisory_xact_lock(17)").execute(&pool).await?;
                None
            }
            Protection::WithoutLock => None,
        };
        // `check` asks nobody: it is false as soon as the session may have ended.
        while guard.as_ref().is_none_or(|guard| guard.check())
            && send_next(&pool, floor, &overlap, token).await?
        {}
        Ok(())
    })
}

/// Sends the next message. Returns whether there was one.
async fn send_next(pool: &PgPool, floor: &Floor, overlap: &Overlap, token: i64) -> Result<bool, Failure> {
    let last: i32 = sqlx::query_scalar("SELECT coalesce(max(message), 0) FROM sent").fetch_one(pool).await?;
    if i64::from(last) >= MESSAGES {
        return Ok(false);
    }
    overlap.before_write().await?;
    let sent = sqlx::query("INSERT INTO sent VALUES ($1, $2, $3)").bind(last + 1);
    let worker = i32::try_from(floor.worker.unwrap_or_default())?;
    sent.bind(worker).bind(token).execute(pool).await?;
    Ok(true)
}
