//! Acquire and release of free names on an etcd that waits for its disk: leasehold, the server's own locks, and a bare client
//! that creates and deletes a key.

use std::time::{Duration, Instant};

use leasehold::{Connect, Keeper, Locks};
use leasehold_testkit::server::EtcdServer;
use tokio::runtime::Runtime;

use crate::{
    Failure,
    contest::Contest,
    etcd_bare::{Bare, messages},
    pairs::{pairs, per_second},
};

const TASKS: usize = 64;
/// How long one measurement takes, about: some hundred writes to the disk.
const SLICE: Duration = Duration::from_millis(500);
const ROUNDS: usize = 15;

pub(crate) fn bench() -> Result<(), Failure> {
    let server = EtcdServer::durable(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let own = Locks::connect(&server.url())?;
    let ridden = Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&server.url())?;
    let bare = runtime.block_on(Bare::connect(server.port()))?;
    println!("  {TASKS} tasks of one thread, a name each");
    Contest::new("pairs/s")
        .rounds(ROUNDS)
        .way("bare client, create and delete", || bare_pairs(&runtime, TASKS, &bare))
        .way("bare client, the transactions of leasehold", || same_pairs(&runtime, TASKS, &bare))
        .way("Lock and Unlock of the server", || lock_pairs(&runtime, TASKS, &bare))
        .way("leasehold", || pairs(&runtime, SLICE, TASKS, &own))
        .way("leasehold, keeper on the tasks' runtime", || pairs(&runtime, SLICE, TASKS, &ridden))
        .run()?;
    println!("  1 task");
    let time = |pairs: Result<f64, Failure>| pairs.map(|pairs| 1e6 / pairs);
    Contest::new("us a pair")
        .rounds(ROUNDS)
        .way("bare client, create and delete", || time(bare_pairs(&runtime, 1, &bare)))
        .way("bare client, the transactions of leasehold", || time(same_pairs(&runtime, 1, &bare)))
        .way("Lock and Unlock of the server", || time(lock_pairs(&runtime, 1, &bare)))
        .way("leasehold", || time(pairs(&runtime, SLICE, 1, &own)))
        .way("leasehold, keeper on the task's runtime", || time(pairs(&runtime, SLICE, 1, &ridden)))
        .run()?;
    let (before, begin) = (messages(server.port(), "Txn")?, Instant::now());
    let done = pairs(&runtime, SLICE, TASKS, &own)? * begin.elapsed().as_secs_f64();
    println!("  {:.2} requests a pair", (messages(server.port(), "Txn")? - before) as f64 / done);
    Ok(())
}

fn bare_pairs(runtime: &Runtime, tasks: usize, bare: &Bare) -> Result<f64, Failure> {
    per_second(runtime, SLICE, tasks, |task| {
        let (bare, key) = (bare.clone(), format!("/bare/{task}"));
        move || {
            let (bare, key) = (bare.clone(), key.clone());
            async move { bare.pair(&key).await }
        }
    })
}

fn same_pairs(runtime: &Runtime, tasks: usize, bare: &Bare) -> Result<f64, Failure> {
    per_second(runtime, SLICE, tasks, |task| {
        let (bare, name) = (bare.clone(), format!("same-{task}"));
        move || {
            let (bare, name) = (bare.clone(), name.clone());
            async move { bare.same_pair(&name).await }
        }
    })
}

fn lock_pairs(runtime: &Runtime, tasks: usize, bare: &Bare) -> Result<f64, Failure> {
    per_second(runtime, SLICE, tasks, |task| {
        let (bare, name) = (bare.clone(), format!("/api/{task}"));
        move || {
            let (bare, name) = (bare.clone(), name.clone());
            async move { bare.lock_pair(&name).await }
        }
    })
}
