//! Acquire and release of free names on an etcd that syncs to its disk: by leasehold, by the server's own locks, and by
//! a bare client.

use std::time::{Duration, Instant};

use leasehold::{Connect, Keeper, Locks};
use leasehold_testkit::server::EtcdServer;
use tokio::runtime::Runtime;

use crate::{
    Failure,
    comparison::Comparison,
    etcd_bare::{Bare, messages},
    pairs::{pairs, per_second},
};

const TASKS: usize = 64;
/// The approximate length of one measurement: some hundred writes to the disk.
const MEASUREMENT_TIME: Duration = Duration::from_millis(500);
const ROUNDS: usize = 15;

const BARE: &str = "bare client, create and delete";
const SAME: &str = "bare client, the transactions of leasehold";
const SERVER: &str = "Lock and Unlock of the server";
const ON_RUNTIME: &str = "leasehold, keeper on the tasks' runtime";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = EtcdServer::durable(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks_on_thread = Locks::connect(&server.url())?;
    let locks_on_runtime =
        Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&server.url())?;
    let bare = runtime.block_on(Bare::connect(server.port()))?;
    let compacted = || runtime.block_on(bare.clone().compact());
    let micros_per_pair = |pairs: f64| 1e6 / pairs;
    println!("  {TASKS} tasks of one thread, a name each");
    Comparison::new("pairs/s")
        .rounds(ROUNDS)
        .candidate(BARE, || compacted().and_then(|()| bare_pairs(&runtime, TASKS, &bare)))
        .candidate(SAME, || compacted().and_then(|()| same_pairs(&runtime, TASKS, &bare)))
        .candidate(SERVER, || compacted().and_then(|()| lock_pairs(&runtime, TASKS, &bare)))
        .candidate("leasehold", || {
            compacted().and_then(|()| pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_thread))
        })
        .candidate(ON_RUNTIME, || {
            compacted().and_then(|()| pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_runtime))
        })
        .run()?;
    println!("  1 task");
    Comparison::new("us a pair")
        .rounds(ROUNDS)
        .candidate(BARE, || compacted().and_then(|()| bare_pairs(&runtime, 1, &bare)).map(micros_per_pair))
        .candidate(SAME, || compacted().and_then(|()| same_pairs(&runtime, 1, &bare)).map(micros_per_pair))
        .candidate(SERVER, || compacted().and_then(|()| lock_pairs(&runtime, 1, &bare)).map(micros_per_pair))
        .candidate("leasehold", || {
            compacted()
                .and_then(|()| pairs(&runtime, MEASUREMENT_TIME, 1, &locks_on_thread))
                .map(micros_per_pair)
        })
        .candidate(ON_RUNTIME, || {
            compacted()
                .and_then(|()| pairs(&runtime, MEASUREMENT_TIME, 1, &locks_on_runtime))
                .map(micros_per_pair)
        })
        .run()?;
    let (before, begin) = (messages(server.port(), "Txn")?, Instant::now());
    let completed =
        pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_thread)? * begin.elapsed().as_secs_f64();
    println!("  {:.2} requests a pair", (messages(server.port(), "Txn")? - before) as f64 / completed);
    println!("  1 task, a name that was held before, since the server last compacted");
    let with_old_keys = |holds| {
        compacted()?;
        runtime.block_on(bare.clone().create_and_delete("/locks/bench-0", holds))?;
        pairs(&runtime, MEASUREMENT_TIME, 1, &locks_on_runtime).map(micros_per_pair)
    };
    Comparison::new("us a pair")
        .rounds(ROUNDS)
        .candidate("never", || with_old_keys(0))
        .candidate("1,000 times", || with_old_keys(1_000))
        .candidate("10,000 times", || with_old_keys(10_000))
        .run()
}

fn bare_pairs(runtime: &Runtime, tasks: usize, bare: &Bare) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, tasks, |task| {
        let (bare, key) = (bare.clone(), format!("/bare/{task}"));
        move || {
            let (bare, key) = (bare.clone(), key.clone());
            async move { bare.pair(&key).await }
        }
    })
}

fn same_pairs(runtime: &Runtime, tasks: usize, bare: &Bare) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, tasks, |task| {
        let (bare, name) = (bare.clone(), format!("same-{task}"));
        move || {
            let (bare, name) = (bare.clone(), name.clone());
            async move { bare.same_pair(&name).await }
        }
    })
}

fn lock_pairs(runtime: &Runtime, tasks: usize, bare: &Bare) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, tasks, |task| {
        let (bare, name) = (bare.clone(), format!("/api/{task}"));
        move || {
            let (bare, name) = (bare.clone(), name.clone());
            async move { bare.lock_pair(&name).await }
        }
    })
}
