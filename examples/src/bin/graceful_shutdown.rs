//! Stops a worker without leaving a lock behind: at SIGTERM it takes no more jobs, lets those under way end, cancels
//! those that take too long, and releases every lock before it exits. So the next worker waits for no lease.
//!
//! `graceful_shutdown redis://127.0.0.1:6379`

use std::time::Duration;

use leasehold::Locks;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{sleep, timeout},
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Together with the time for the releases less than the grace period of the supervisor (Kubernetes: 30 s).
const DRAIN: Duration = Duration::from_secs(5);
const RELEASE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: graceful_shutdown URL")?;
    let locks = Locks::connect(&url)?;
    let mut terminated = signal(SignalKind::terminate())?;
    let (mut jobs, mut customer) = (JoinSet::new(), 0);
    loop {
        tokio::select! {
            // The signal first: after it no job begins.
            biased;
            _ = terminated.recv() => break,
            () = next_message() => customer += 1,
        }
        jobs.spawn(bill(locks.clone(), customer));
    }
    println!("stopping");
    let drained = timeout(DRAIN, async { while jobs.join_next().await.is_some() {} }).await;
    if drained.is_err() {
        println!("cancelled: {}", jobs.len());
        // Drops the jobs, and their guards with them.
        jobs.shutdown().await;
    }
    // Sends the releases that are left, and waits for the answers.
    let lost = locks.close(RELEASE).await;
    println!("stopped, locks not released: {lost}");
    Ok(())
}

async fn bill(locks: Locks, customer: u32) {
    let one_bill = locks.mutex(format!("customer-{customer}")).ttl(Duration::from_secs(60));
    let billed = one_bill.run(async |_| {
        println!("begun: customer-{customer}");
        // The bill of the third customer never ends.
        sleep(if customer == 3 { Duration::MAX } else { Duration::from_millis(300) }).await;
        println!("done: customer-{customer}");
    });
    if let Err(error) = billed.await {
        eprintln!("{error}");
    }
}

/// Stands for a queue of messages.
async fn next_message() {
    sleep(Duration::from_millis(50)).await;
}
