//! Calls an API outside that allows three calls at a time, whatever number of machines and tasks want to call it.
//!
//! `outside_api redis://127.0.0.1:6379`

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use leasehold::Locks;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What the contract with the API allows.
const CALLS_AT_A_TIME: u32 = 3;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: outside_api URL")?;
    let locks = Locks::connect(&url)?;
    let tasks: Vec<_> = (0..12).map(|city| tokio::spawn(forecast(locks.clone(), city))).collect();
    for task in tasks {
        println!("{}", task.await??);
    }
    println!("at most {} calls at a time", MOST.load(Ordering::SeqCst));
    Ok(())
}

async fn forecast(locks: Locks, city: u32) -> Result<String, Failure> {
    let permit = locks.semaphore("weather-api", CALLS_AT_A_TIME);
    // The permit is released when the call ends. A permit that is lost cancels the call.
    Ok(permit.run_within(Duration::from_secs(60), async |_| call(city).await).await?)
}

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// Stands for the API, and counts.
async fn call(city: u32) -> String {
    MOST.fetch_max(UNDER_WAY.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(20)).await;
    UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    format!("city {city}: sunny")
}
