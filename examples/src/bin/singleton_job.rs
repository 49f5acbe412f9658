//! A job that runs on one machine of a service at a time, beside the requests that all machines serve. When that
//! machine stops, another one takes the job over at once; when it dies, as soon as its lease has ended.
//!
//! `singleton_job redis://127.0.0.1:6379 127.0.0.1:8080`

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use axum::{Router, routing::get};
use leasehold::{Locks, Token};
use tokio::signal::unix::{SignalKind, signal};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Whether the job runs on this machine.
static RUNS_HERE: AtomicBool = AtomicBool::new(false);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address] = &arguments[..] else { return Err("usage: singleton_job URL ADDRESS".into()) };
    let locks = Locks::connect(url)?;
    let job = tokio::spawn(one_at_a_time(locks.clone()));
    let status = || async { if RUNS_HERE.load(Ordering::SeqCst) { "runs the job" } else { "stands by" } };
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut terminated = signal(SignalKind::terminate())?;
    let stop = async move {
        terminated.recv().await;
    };
    axum::serve(listener, Router::new().route("/", get(status))).with_graceful_shutdown(stop).await?;
    // Drops the job, and its lock with it; `close` waits until the lock is released.
    job.abort();
    let _ = job.await;
    locks.close(Duration::from_secs(10)).await;
    Ok(())
}

/// Waits for the lock, runs the job, and begins again if the lock is lost.
async fn one_at_a_time(locks: Locks) {
    let only = locks.mutex("outbox-job").ttl(Duration::from_secs(5));
    loop {
        // At a loss the future of the job is dropped, so it ends at its next await.
        let ended = only.run(async |guard| send_messages(guard.token()).await).await;
        RUNS_HERE.store(false, Ordering::SeqCst);
        if let Err(error) = ended {
            eprintln!("{error}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// The job. What it writes to carries the token, so that a machine that was paused cannot write after its successor.
async fn send_messages(token: Token) {
    RUNS_HERE.store(true, Ordering::SeqCst);
    loop {
        println!("messages sent with token {}", token.number);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
