//! The cost of many names on one etcd, each with one waiter whose position does not change.

use std::time::{Duration, Instant};

use leasehold::Locks;
use leasehold_testkit::server::EtcdServer;

use crate::{
    Failure,
    etcd_bare::messages,
    holds::status,
    one_name::metric,
    redis_holds::{acquire, cpu_seconds},
};

const NAMES: usize = 10_000;
const WAIT_TIME: Duration = Duration::from_secs(90);
/// All waiters are queued when the server has this many watches for each waiter: one of the key ahead, one of the
/// waiter's own key.
const WATCHES_OF_A_WAITER: f64 = 2.0;

/// Holds many names by one client, and waits for each of them by another client. Prints the watches, the memory and the
/// requests.
pub(crate) fn bench() -> Result<(), Failure> {
    let server = EtcdServer::durable(&[]);
    let (holder, waiter) = (Locks::connect(&server.url())?, Locks::connect(&server.url())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guards = runtime.block_on(acquire(&holder, 0..NAMES))?;
    let watches = || metric(server.port(), "etcd_debugging_mvcc_watcher_total ");
    let (memory, watches_before, begin) = (status("VmRSS:")?, watches()?, Instant::now());
    let waits: Vec<_> =
        (0..NAMES).map(|name| runtime.spawn(waiter.mutex(format!("name-{name}")).acquire())).collect();
    runtime.block_on(async {
        while watches()? - watches_before < WATCHES_OF_A_WAITER * NAMES as f64 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok::<_, Failure>(())
    })?;
    println!("  {NAMES} waiters are queued after {:.1} s", begin.elapsed().as_secs_f64());
    let bytes = status("VmRSS:")?.saturating_sub(memory) * 1024 / NAMES as u64;
    let of_each = (watches()? - watches_before) / NAMES as f64;
    println!("  {bytes} bytes of the client and {of_each:.2} watches for each waiter");
    let count = || -> Result<(u64, u64), Failure> {
        Ok((messages(server.port(), "Txn")?, messages(server.port(), "Watch")?))
    };
    let (before, cpu, begin) = (count()?, cpu_seconds()?, Instant::now());
    runtime.block_on(async { tokio::time::sleep(WAIT_TIME).await });
    let (after, seconds) = (count()?, begin.elapsed().as_secs_f64());
    println!(
        "  while nothing changes: {:.0} transactions and {:.2} watch requests a second, {:.1} % of a core in the client",
        (after.0 - before.0) as f64 / seconds,
        (after.1 - before.1) as f64 / seconds,
        (cpu_seconds()? - cpu) / seconds * 100.0
    );
    // Releases all, and waits until each name was handed over.
    let begin = Instant::now();
    drop(guards);
    // The holds are released one after the other. On a busy machine, a hold that is released late may have been lost
    // before. That is no error here.
    let lost = runtime.block_on(async {
        let mut lost = 0;
        for wait in waits {
            lost += usize::from(wait.await??.release().await.is_err());
        }
        Ok::<_, Failure>(lost)
    })?;
    println!(
        "  all were handed over and released in {:.1} s, {lost} were lost",
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}
