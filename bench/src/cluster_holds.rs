//! The cost of 100,000 holds on a Redis Cluster of six masters.

use std::time::Duration;

use leasehold::Locks;

use crate::{
    Failure, child,
    redis_holds::{acquire_all, connections, hold_for},
    redis_site::Site,
};

const MASTERS: usize = 6;
const HOLD_TIME: Duration = Duration::from_secs(90);

pub(crate) fn bench() -> Result<(), Failure> {
    let site = Site::cluster(MASTERS);
    // The clients run in another process, because the traffic between the nodes goes through this process.
    let mut child = child::start(&["cluster-holds", &site.url()])?;
    let stdout = child.stdout.take().ok_or("the child has no output")?;
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stdout));
    println!("  {}", lines.next().ok_or("no output of the child")??);
    let before = site.work()?;
    println!("  {}", lines.next().ok_or("no second line from the child")??);
    let work = site.work()?.since(&before);
    let clients: Vec<usize> =
        site.command(&["CLIENT", "LIST"]).iter().map(|lines| connections(lines)).collect();
    println!(
        "  connections of the masters: {clients:?}; {:.0} requests and {:.0} calls of scripts a second, {:.1} % of a core in all servers",
        work.requests() as f64 / HOLD_TIME.as_secs_f64(),
        work.script_commands() as f64 / HOLD_TIME.as_secs_f64(),
        work.cpu / HOLD_TIME.as_secs_f64() * 100.0
    );
    drop(child.stdin.take());
    child.wait()?;
    Ok(())
}

/// The child process: acquires the names and holds them until its standard input ends.
pub(crate) fn child(url: &str) -> Result<(), Failure> {
    let locks = Locks::connect(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (guards, acquired) = acquire_all(&runtime, &locks)?;
    println!("{acquired} over {MASTERS} masters");
    println!("{}", hold_for(&guards, HOLD_TIME)?);
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
