//! Locks of sessions on PostgreSQL (`hold=session`): free names, hand-over, and the end of a killed holder. leasehold
//! is compared with bare `pg_try_advisory_lock` and `pg_advisory_unlock`, which are pipelined on one connection, and
//! with a bare notification.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Connect, Keeper, Locks};
use leasehold_core::Env;
use leasehold_sql::postgres::{Config, SessionOptions, session_engine};
use leasehold_testkit::server::PostgresServer;
use sqlx::{
    PgPool,
    postgres::{PgAdvisoryLock, PgPoolOptions},
};
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
    handover::handover_time,
    pairs::{pairs, per_second},
    postgres_handover::{ALONE, PAUSE, TURNS, notify_time},
    stamped::{Turns, take_turns},
};

/// The approximate length of one measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(400);
const ROUNDS: usize = 15;
/// How many holders are killed in one measurement.
const KILLS: usize = 20;
/// The size of the pool of `sqlx`, and the number of tasks.
const SQLX_CONNECTIONS: u32 = 16;

pub(crate) fn bench() -> Result<(), Failure> {
    let server = PostgresServer::durable(&[]);
    free(&server)?;
    handover(&server)?;
    killed(&server)
}

fn url(server: &PostgresServer) -> String {
    format!("{}?hold=session&delay=0ms", server.url())
}

/// Acquire and release of free names.
fn free(server: &PostgresServer) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = Locks::connect(&url(server))?;
    let locks_on_runtime =
        Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&url(server))?;
    let bare = runtime.block_on(Bare::new(&server.url()))?;
    for tasks in [1, 16, 64] {
        println!("  {tasks} tasks, a name each");
        Comparison::new("pairs/s")
            .rounds(ROUNDS)
            .candidate("bare advisory lock and unlock, pipelined on one connection", || {
                bare.pairs(&runtime, tasks)
            })
            .candidate("leasehold", || pairs(&runtime, MEASUREMENT_TIME, tasks, &locks))
            .candidate("leasehold, keeper on the tasks' runtime", || {
                pairs(&runtime, MEASUREMENT_TIME, tasks, &locks_on_runtime)
            })
            .run()?;
    }
    beside_sqlx(&runtime, &server.url(), &locks, &locks_on_runtime)
}

/// Acquire and release of free names, beside the advisory locks of `sqlx`, each of which needs a connection of its own.
fn beside_sqlx(runtime: &Runtime, url: &str, locks: &Locks, on_runtime: &Locks) -> Result<(), Failure> {
    let options = PgPoolOptions::new().max_connections(SQLX_CONNECTIONS);
    let pool = runtime.block_on(options.clone().connect(url))?;
    let unchecked = runtime.block_on(options.test_before_acquire(false).connect(url))?;
    let tasks = usize::try_from(SQLX_CONNECTIONS)?;
    println!("  {tasks} tasks, a name each");
    Comparison::new("pairs/s")
        .rounds(ROUNDS)
        .candidate("sqlx PgAdvisoryLock, a pool of 16", || sqlx_pairs(runtime, tasks, &pool))
        .candidate("the same, connections not tested", || sqlx_pairs(runtime, tasks, &unchecked))
        .candidate("leasehold", || pairs(runtime, MEASUREMENT_TIME, tasks, locks))
        .candidate("leasehold, keeper on the tasks' runtime", || {
            pairs(runtime, MEASUREMENT_TIME, tasks, on_runtime)
        })
        .run()?;
    runtime.block_on(async {
        pool.close().await;
        unchecked.close().await;
    });
    Ok(())
}

fn sqlx_pairs(runtime: &Runtime, tasks: usize, pool: &PgPool) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, tasks, |task| {
        let lock = Arc::new(PgAdvisoryLock::new(format!("sqlx-{task}")));
        let pool = pool.clone();
        move || {
            let (lock, pool) = (Arc::clone(&lock), pool.clone());
            async move {
                let guard = lock.acquire(pool.acquire().await?).await?;
                guard.release_now().await?;
                Ok(())
            }
        }
    })
}

/// Hand-over between two processes.
fn handover(server: &PostgresServer) -> Result<(), Failure> {
    let handovers = |keeper: &str| {
        let start =
            || child::start(&["postgres-session-handover", keeper, "sent", &server.port().to_string()]);
        handover_time([start()?, start()?], TURNS, 0.5)
    };
    Comparison::new("us, p50")
        .rounds(7)
        .candidate("bare NOTIFY, committed -> listener", || notify_time(server.port(), ALONE, 0.5))
        .candidate("leasehold, from the release that leaves", || handovers("thread"))
        .candidate("the same, keeper on the caller's runtime", || handovers("on_runtime"))
        .run()
}

/// Acquires and releases the lock repeatedly.
pub(crate) fn child(keeper: &str, release_point: &str, port: &str) -> Result<(), Failure> {
    let env = Env::system();
    let config = Config::from_url(&format!("//postgres@127.0.0.1:{port}/postgres"))?;
    let options = SessionOptions::default().delay(Duration::ZERO)?;
    let turns = Turns { count: TURNS, hold: PAUSE, pause: PAUSE };
    take_turns(session_engine(config, options, &env), keeper, release_point, turns)
}

/// A holder is killed: the time until a waiting process is granted.
fn killed(server: &PostgresServer) -> Result<(), Failure> {
    let locks = Locks::connect(&url(server))?;
    let mut times = Vec::new();
    for _ in 0..KILLS {
        let mut holder = child::start(&["postgres-session-hold", &server.port().to_string()])?;
        while server.query("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'").is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let waiting = {
            let locks = locks.clone();
            std::thread::spawn(move || {
                let guard = locks.mutex("killed").blocking().acquire()?;
                let granted = Instant::now();
                guard.release_blocking().map(|()| granted)
            })
        };
        while server.query("SELECT 1 FROM pg_locks WHERE mode = 'ShareLock'").is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let begin = Instant::now();
        holder.kill()?;
        let granted = waiting.join().map_err(|_| "the waiter panicked")??;
        times.push(granted.saturating_duration_since(begin).as_secs_f64() * 1000.0);
        holder.wait()?;
    }
    println!("  killed holder -> next holder: {:.1} ms, p50 of {KILLS}", quantile(&mut times, 0.5));
    Ok(())
}

/// Holds the lock until the process is killed.
pub(crate) fn hold(port: &str) -> Result<(), Failure> {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?hold=session&delay=0ms");
    let _guard = Locks::connect(&url)?.mutex("killed").blocking().acquire()?;
    std::thread::sleep(Duration::from_secs(3600));
    Ok(())
}

/// A bare client: one connection, on which the requests of all tasks are pipelined.
struct Bare(Arc<(Client, Statement, Statement)>);

impl Bare {
    async fn new(url: &str) -> Result<Self, Failure> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let lock = client.prepare("SELECT pg_try_advisory_lock($1)").await?;
        let unlock = client.prepare("SELECT pg_advisory_unlock($1)").await?;
        Ok(Self(Arc::new((client, lock, unlock))))
    }

    fn pairs(&self, runtime: &Runtime, tasks: usize) -> Result<f64, Failure> {
        per_second(runtime, MEASUREMENT_TIME, tasks, |task| {
            let client = Arc::clone(&self.0);
            move || pair(Arc::clone(&client), i64::try_from(task).unwrap_or(0))
        })
    }
}

async fn pair(client: Arc<(Client, Statement, Statement)>, key: i64) -> Result<(), Failure> {
    let (client, lock, unlock) = &*client;
    let locked: bool = client.query_one(lock, &[&key]).await?.get(0);
    let unlocked: bool = client.query_one(unlock, &[&key]).await?.get(0);
    if locked && unlocked { Ok(()) } else { Err("not ours".into()) }
}
