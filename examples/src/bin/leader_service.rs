//! A service that runs on several machines and works on one of them, the leader. At SIGTERM or Ctrl-C the leader stops
//! its work and resigns, and the next one goes on at once. After a crash it goes on when the lease has ended.
//!
//! `leader_service redis://127.0.0.1:6379 10.0.0.7:8080`, and `leasehold leader scheduler` says who leads.

use std::time::Duration;

use leasehold::{Locks, Role, Token};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinHandle,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, address] = &arguments[..] else { return Err("usage: leader_service URL ADDRESS".into()) };
    let locks = Locks::connect(url)?;
    let mut candidate = locks.election("scheduler").value(address).ttl(Duration::from_secs(5)).stand()?;
    let (mut terminated, mut interrupted) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut work: Option<JoinHandle<()>> = None;
    loop {
        let role = tokio::select! {
            role = candidate.changed() => role?,
            _ = terminated.recv() => break,
            _ = interrupted.recv() => break,
        };
        // Whatever the new role is, the work of the former term ends first.
        stop(work.take()).await;
        match role {
            Role::Leader { token } => work = Some(tokio::spawn(schedule(address.clone(), token))),
            Role::Follower { leader } => println!("{address} follows {leader:?}"),
            _ => {}
        }
    }
    stop(work).await;
    candidate.resign().await?;
    println!("{address} has resigned");
    Ok(())
}

async fn stop(work: Option<JoinHandle<()>>) {
    if let Some(work) = work {
        work.abort();
        let _ = work.await;
    }
}

/// The work of the leader. Who receives its orders refuses those of a smaller term.
async fn schedule(address: String, term: Token) {
    loop {
        println!("{address} leads in term {term}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
