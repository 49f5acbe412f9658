//! The cost of many holds on one etcd.

use std::time::{Duration, Instant};

use leasehold::Locks;
use leasehold_testkit::server::EtcdServer;

use crate::{
    Failure,
    etcd_bare::{messages, under_way},
    redis_holds::{acquire, cpu_seconds},
};

const HOLDS: usize = 10_000;
const HOLD_TIME: Duration = Duration::from_secs(60);
/// The methods that a client with holds calls.
const METHODS: [&str; 4] = ["Txn", "LeaseKeepAlive", "Status", "Watch"];

/// Acquires many names and holds them. Prints the number of leases and requests, and their cost.
pub(crate) fn bench() -> Result<(), Failure> {
    let server = EtcdServer::durable(&[]);
    let locks = Locks::connect(&server.url())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begin = Instant::now();
    let guards = runtime.block_on(acquire(&locks, 0..HOLDS))?;
    println!("  {HOLDS} acquired in {:.1} s", begin.elapsed().as_secs_f64());
    let count = || -> Result<Vec<u64>, Failure> {
        METHODS.iter().map(|method| messages(server.port(), method)).collect()
    };
    let (before, cpu, begin) = (count()?, cpu_seconds()?, Instant::now());
    std::thread::sleep(HOLD_TIME);
    let seconds = begin.elapsed().as_secs_f64();
    let share = (cpu_seconds()? - cpu) / seconds * 100.0;
    let lost = guards.iter().filter(|guard| !guard.check()).count();
    println!("  after {HOLD_TIME:?}: {lost} lost, {share:.1} % of a core in this process");
    for ((method, before), after) in METHODS.iter().zip(before).zip(count()?) {
        println!("  {:.1} {method} a second", (after - before) as f64 / seconds);
    }
    let streams = under_way(server.port(), "LeaseKeepAlive")?;
    println!("  {} with {streams} stream to keep them alive", server.command(&["lease", "list"])[0]);
    Ok(())
}
