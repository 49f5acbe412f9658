//! The cost of many holds on one ZooKeeper.

use std::{
    io::{BufRead, BufReader, Read},
    time::{Duration, Instant},
};

use leasehold_core::Keeper;
use leasehold_testkit::server::ZookeeperServer;

use crate::{
    Failure, child,
    holds::status,
    redis_holds::{acquire, cpu_seconds},
    zookeeper_free::{figure, locks},
};

const HOLDS: usize = 10_000;
/// The length of two leases, so that each hold is renewed several times.
const HOLD_TIME: Duration = Duration::from_secs(60);

/// Lets a child process acquire many names and hold them. Prints what the holds cost the child and the server.
pub(crate) fn bench() -> Result<(), Failure> {
    let server = ZookeeperServer::durable(&[]);
    let mut child = child::start(&["zookeeper-holds", &server.port().to_string()])?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    print!("  {line}");
    let count =
        || Ok::<_, Failure>((figure(&server, "zk_packets_received")?, figure(&server, "zk_watch_count")?));
    let ((before, _), begin) = (count()?, Instant::now());
    line.clear();
    output.read_line(&mut line)?;
    let (after, watches) = count()?;
    println!(
        "  {:.1} requests a second, {watches} watches",
        (after - before) as f64 / begin.elapsed().as_secs_f64()
    );
    println!(
        "  {} sessions, {} ephemeral nodes",
        figure(&server, "zk_global_sessions")?,
        figure(&server, "zk_ephemerals_count")?
    );
    print!("  {line}");
    drop(child.stdin.take());
    if child.wait()?.success() { Ok(()) } else { Err("the holding process failed".into()) }
}

/// Acquires the names and holds them. It runs in a separate process, so that the memory of that process is used for
/// nothing but the holds.
pub(crate) fn child(port: &str) -> Result<(), Failure> {
    let locks = locks(port.parse()?, Keeper::thread())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    drop(runtime.block_on(acquire(&locks, 0..1))?);
    let (memory, begin) = (status("VmRSS:")?, Instant::now());
    let guards = runtime.block_on(acquire(&locks, 0..HOLDS))?;
    println!("{HOLDS} acquired in {:.1} s", begin.elapsed().as_secs_f64());
    let (cpu, begin) = (cpu_seconds()?, Instant::now());
    std::thread::sleep(HOLD_TIME);
    let share = (cpu_seconds()? - cpu) / begin.elapsed().as_secs_f64() * 100.0;
    let lost = guards.iter().filter(|guard| !guard.check()).count();
    let bytes = (status("VmRSS:")? - memory) * 1024 / HOLDS as u64;
    println!(
        "after {HOLD_TIME:?}: {lost} lost, {bytes} bytes a hold, {share:.1} % of a core in this process"
    );
    // The bench reads the server's figures before it closes this standard input. The end of the input ends the holds.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
