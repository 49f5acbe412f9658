//! Two processes acquire one lock on etcd in turns. Measures the time from the sending of the release in one process to
//! the grant in the other. This time is compared with that of a bare client that deletes a key, while a bare client in
//! another process watches the key and, after each deletion, reads once.

use std::time::Duration;

use leasehold_core::Env;
use leasehold_etcd::{Config, EtcdEngine};
use leasehold_testkit::server::EtcdServer;

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
    etcd_bare::Bare,
    handover::{handover_time, now},
    stamped::{Turns, take_turns},
};

const TURNS: usize = 50;
/// How long a process holds the lock, and how long it pauses after the release. Each claim writes to the disk, so this
/// time is several times the duration of such a write.
const PAUSE: Duration = Duration::from_millis(20);
const KEY: &str = "/bare/handover";
const READY: &str = "/bare/ready";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = EtcdServer::durable(&[]);
    for (unit, fraction) in [("us, p50", 0.5), ("us, p99", 0.99)] {
        let handovers = |keeper: &str, release_point: &str| {
            let start =
                || child::start(&["etcd-handover", keeper, release_point, &server.port().to_string()]);
            handover_time([start()?, start()?], TURNS, fraction)
        };
        Comparison::new(unit)
            .rounds(5)
            .candidate("bare deletion -> watch -> one read", || watch_time(server.port(), fraction))
            .candidate("leasehold, from the release that leaves", || handovers("thread", "sent"))
            .candidate("the same, keeper on the caller's runtime", || handovers("on_runtime", "sent"))
            .candidate("leasehold, from before the drop", || handovers("thread", "dropped"))
            .run()?;
    }
    Ok(())
}

/// Acquires and releases the lock repeatedly.
pub(crate) fn child(keeper: &str, release_point: &str, port: &str) -> Result<(), Failure> {
    let env = Env::system();
    let engine = EtcdEngine::new(Config::from_url("etcd", &format!("//127.0.0.1:{port}"))?, &env);
    take_turns(engine, keeper, release_point, Turns { count: TURNS, hold: PAUSE, pause: PAUSE })
}

fn watch_time(port: u16, fraction: f64) -> Result<f64, Failure> {
    let listener = child::start(&["watched", &port.to_string()])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = runtime.block_on(async {
        let mut bare = Bare::connect(port).await?;
        while !bare.is_there(READY).await? {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        bare.delete(READY).await?;
        let mut sent = Vec::new();
        for _ in 0..2 * TURNS {
            bare.create(KEY).await?;
            tokio::time::sleep(PAUSE).await;
            sent.push(now()?);
            bare.delete(KEY).await?;
        }
        Ok::<_, Failure>(sent)
    })?;
    let mut times = Vec::new();
    for (line, sent) in child::output(listener)?.lines().zip(sent) {
        times.push(line.parse::<u64>()?.saturating_sub(sent) as f64 / 1000.0);
    }
    Ok(quantile(&mut times, fraction))
}

/// The process of the bare client that watches. Prints, for each deletion, the time at which its read after the
/// deletion was answered.
pub(crate) fn print_arrivals(port: &str) -> Result<(), Failure> {
    let port = port.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let times = runtime.block_on(async {
        let mut bare = Bare::connect(port).await?;
        let mut events = bare.watch(KEY).await?;
        events.message().await?;
        bare.create(READY).await?;
        let mut times = Vec::new();
        while times.len() < 2 * TURNS {
            let watch_response = events.message().await?.ok_or("the watch ended")?;
            for _ in 0..watch_response.deletions() {
                bare.is_there(KEY).await?;
                times.push(now()?);
            }
        }
        Ok::<_, Failure>(times)
    })?;
    times.iter().for_each(|time| println!("{time}"));
    Ok(())
}
