//! How long a name stays taken after its holder was killed, and how long nothing is granted when the server is ended
//! and started again.

use std::{
    io::Read,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use leasehold::Locks;
use tokio::time::timeout;

use super::{
    Extent,
    report::Report,
    rig::{Rig, Server},
};
use crate::{
    Failure, child,
    comparison::{in_turns, quantile, three_digits},
    sentinel_failover::grant_new_names,
};

/// The ttl of the holder that is killed: the shortest that all engines accept. etcd and ZooKeeper accept none that is
/// shorter.
const TTL: Duration = Duration::from_secs(2);
/// How long the other claim waits before the holder is killed: long enough that the claim is in the queue.
const QUEUED: Duration = Duration::from_millis(500);
/// By how much later the holder is killed in each round. So it is killed at different times after its last renewal,
/// which comes every third of the ttl.
const LATER: Duration = Duration::from_millis(170);
/// How long the bench waits for a grant.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn measure(rigs: &mut [Rig], extent: &Extent, report: &mut Report) -> Result<(), Failure> {
    killed_holders(rigs, extent, report)?;
    restarted_servers(rigs, extent, report)
}

/// All engines at the same time, because nearly all of the time passes with waiting.
fn killed_holders(rigs: &[Rig], extent: &Extent, report: &mut Report) -> Result<(), Failure> {
    println!("  from the kill of the holder to the next grant, ttl {TTL:?}");
    let urls: Vec<String> = rigs.iter().map(Rig::url).collect();
    let mut times = vec![Vec::new(); rigs.len()];
    let mut delay = QUEUED;
    in_turns(1, extent.long_rounds, extent.part, |_| {
        let measured: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> =
                urls.iter().map(|url| scope.spawn(move || after_kill(url, delay))).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        for (times, measured) in times.iter_mut().zip(measured) {
            times.push(measured.map_err(|_| "a measurement panicked")??);
        }
        delay += LATER;
        Ok(())
    })?;
    for (rig, times) in rigs.iter().zip(&mut times) {
        let (middle, most) = (quantile(times, 0.5), quantile(times, 1.0));
        let rounds = times.len();
        println!("  {:44} p50 {middle:.0} ms, longest {most:.0} ms ({rounds} rounds)", rig.name);
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| quantile(times, 0.5)).collect();
    report.row_with_chart("from SIGKILL of the holder to the next grant, p50: ms", &medians);
    Ok(())
}

/// The time in milliseconds from the kill of a holder to the grant of the claim that waits.
fn after_kill(url: &str, delay: Duration) -> Result<f64, Failure> {
    let mut holder = child::start(&["hold", url, &TTL.as_millis().to_string()])?;
    // The first byte of the holder says that it holds the lock.
    holder.stdout.as_mut().ok_or("no output")?.read_exact(&mut [0])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = Locks::connect(url)?;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            runtime.block_on(async {
                let guard = timeout(LIMIT, locks.mutex(KILLED).ttl(TTL).acquire()).await??;
                let granted = Instant::now();
                guard.release().await?;
                Ok::<_, Failure>(granted)
            })
        });
        sleep(delay);
        let killed = Instant::now();
        holder.kill()?;
        holder.wait()?;
        let granted = waiter.join().map_err(|_| "the waiter panicked")??;
        if granted < killed {
            return Err("granted while the holder was alive".into());
        }
        Ok(granted.duration_since(killed).as_secs_f64() * 1e3)
    })
}

const KILLED: &str = "killed";

/// The child process that holds a name until it is killed.
pub(crate) fn hold_until_killed(url: &str, ttl: &str) -> Result<(), Failure> {
    let locks = Locks::connect(url)?;
    let guard = pollster::block_on(locks.mutex(KILLED).ttl(Duration::from_millis(ttl.parse()?)).acquire())?;
    println!("held");
    // If the bench ends early, the input of this process ends.
    let _ = std::io::stdin().read(&mut [0]);
    drop(guard);
    Ok(())
}

fn restarted_servers(rigs: &mut [Rig], extent: &Extent, report: &mut Report) -> Result<(), Failure> {
    println!("  the longest time without a grant while the server is ended and started again");
    let mut times = vec![(Vec::new(), Vec::new()); rigs.len()];
    in_turns(rigs.len(), extent.long_rounds, extent.part, |index| {
        let rig = &mut rigs[index];
        if !matches!(rig.server, Server::File(_) | Server::Sqlite(_)) {
            let (without_grant, start) = around_restart(rig)?;
            times[index].0.push(without_grant);
            times[index].1.push(start);
        }
        Ok(())
    })?;
    let mut cells = Vec::new();
    for (rig, (without_grant, start)) in rigs.iter().zip(&mut times) {
        cells.push(if without_grant.is_empty() {
            "no server".to_owned()
        } else {
            let (middle, rounds) = (quantile(without_grant, 0.5), without_grant.len());
            let start = quantile(start, 0.5);
            println!(
                "  {:44} median {middle:.0} ms; the restart takes {start:.0} ms ({rounds} rounds)",
                rig.name
            );
            format!("{} ({})", three_digits(middle), three_digits(start))
        });
    }
    report.row(
        "longest time without a grant around a restart of the server (time of the restart), p50: ms",
        cells,
    );
    Ok(())
}

/// The longest time between two grants of new names while the server restarts, and the time that the restart takes, in
/// milliseconds.
fn around_restart(rig: &mut Rig) -> Result<(f64, f64), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (locks, restarted) = (rig.locks()?, AtomicBool::new(false));
    runtime.block_on(async { locks.mutex("new").acquire().await?.release().await })?;
    thread::scope(|scope| {
        let granting = scope
            .spawn(|| runtime.block_on(async { timeout(LIMIT, grant_new_names(&locks, &restarted)).await? }));
        sleep(QUEUED);
        let ended = Instant::now();
        // The server is restarted by this thread, because the kernel ends a server with the thread that started it.
        rig.restart();
        let restart = ended.elapsed();
        sleep(QUEUED);
        restarted.store(true, Relaxed);
        let grants = granting.join().map_err(|_| "the claims panicked")??;
        let gaps = grants.windows(2).filter(|pair| pair[1] > ended).map(|pair| pair[1] - pair[0]);
        let longest = gaps.max().ok_or("nothing was granted after the restart")?;
        Ok((longest.as_secs_f64() * 1e3, restart.as_secs_f64() * 1e3))
    })
}
