//! A very large number of names on one Redis.

use std::time::{Duration, Instant};

use leasehold::{Guard, Locks};
use leasehold_testkit::server::RedisServer;
use tokio::runtime::Runtime;

use crate::Failure;
use crate::pairs::Mutexes;

const HOLDS: usize = 100_000;
const HOLD_TIME: Duration = Duration::from_secs(300);
const NAMES: usize = 1_000_000;
/// The largest number of claims in flight at the same time.
const MAX_IN_FLIGHT: usize = 1000;

/// Acquires many names and holds them. Prints how many holds are lost, and what the holds cost.
pub(crate) fn holds() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let locks = Locks::connect(&format!("redis://127.0.0.1:{}", server.port()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (guards, acquired) = acquire_all(&runtime, &locks)?;
    println!("  {acquired}");
    println!("  {}", hold_for(&guards, HOLD_TIME)?);
    println!("  {} connections", connections(&server.command(&["CLIENT", "LIST"])));
    Ok(())
}

/// Acquires [`HOLDS`] names. Returns their guards, and a text that says how long the acquiring took.
pub(crate) fn acquire_all(runtime: &Runtime, locks: &impl Mutexes) -> Result<(Vec<Guard>, String), Failure> {
    let begin = Instant::now();
    let guards = runtime.block_on(acquire(locks, 0..HOLDS))?;
    Ok((guards, format!("{HOLDS} acquired in {:.1} s", begin.elapsed().as_secs_f64())))
}

/// Keeps the holds for `time`. Returns a text with the number of lost holds and the processor time of this process.
pub(crate) fn hold_for(guards: &[Guard], time: Duration) -> Result<String, Failure> {
    let (cpu, begin) = (cpu_seconds()?, Instant::now());
    std::thread::sleep(time);
    let share = (cpu_seconds()? - cpu) / begin.elapsed().as_secs_f64() * 100.0;
    let lost = guards.iter().filter(|guard| !guard.check()).count();
    Ok(format!("after {time:?}: {lost} lost, {share:.1} % of a core in the client"))
}

/// How many of a server's connections belong to clients of leasehold.
pub(crate) fn connections(clients: &[String]) -> usize {
    let is_ours = |line: &&String| line.contains("lib-name=leasehold") || line.contains("cmd=evalsha");
    clients.iter().filter(is_ours).count()
}

/// Acquires and releases a very large number of names, each of them once. Prints what is left on the server.
pub(crate) fn names() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let locks = Locks::connect(&format!("redis://127.0.0.1:{}", server.port()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let begin = Instant::now();
    for first in (0..NAMES).step_by(HOLDS) {
        drop(runtime.block_on(acquire(&locks, first..first + HOLDS))?);
    }
    runtime.block_on(locks.close(Duration::from_secs(60)));
    println!("  {NAMES} names in {:.1} s", begin.elapsed().as_secs_f64());
    println!("  left: {}", server.command(&["--raw", "KEYS", "*"]).join(", "));
    Ok(())
}

/// Acquires all of these names. Up to [`MAX_IN_FLIGHT`] claims are in flight at the same time.
pub(crate) async fn acquire(
    locks: &impl Mutexes,
    names: std::ops::Range<usize>,
) -> Result<Vec<Guard>, Failure> {
    let mut guards = Vec::with_capacity(names.len());
    for first in names.clone().step_by(MAX_IN_FLIGHT) {
        let batch = (first..names.end.min(first + MAX_IN_FLIGHT)).map(|name| {
            let acquire = locks.request(format!("name-{name}")).acquire();
            tokio::spawn(acquire)
        });
        for guard in batch.collect::<Vec<_>>() {
            guards.push(guard.await??);
        }
    }
    Ok(guards)
}

/// The processor time that this process has used.
pub(crate) fn cpu_seconds() -> Result<f64, Failure> {
    let used = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(Duration::from(used).as_secs_f64())
}
