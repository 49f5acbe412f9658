//! Two processes acquire one lock on ZooKeeper in turns. Measures the time from the sending of the release in one
//! process to the grant in the other. This time is compared with that of a bare client that deletes a node, while a
//! bare client in another process watches the node and, after each deletion, lists the node's directory once.

use std::time::Duration;

use leasehold_core::Env;
use leasehold_testkit::server::ZookeeperServer;
use leasehold_zookeeper::{Config, ZookeeperEngine};

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
    handover::{handover_time, now},
    stamped::{Turns, take_turns},
    zookeeper_bare::Bare,
};

const TURNS: usize = 50;
/// How long a process holds the lock: several times the duration of a write to the disk, so that the other process
/// waits for the lock when the hold ends.
const HOLD: Duration = Duration::from_millis(20);
/// How long a process pauses after a release: long enough that the grant has arrived at the other process, and short
/// enough that this process is in the queue again before the other process releases.
const PAUSE: Duration = Duration::from_millis(10);
const DIR: &str = "/bare/handover";
const KEY: &str = "/bare/handover/lock";
const READY: &str = "/bare/handover-ready";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = ZookeeperServer::durable(&[]);
    for (unit, fraction) in [("us, p50", 0.5), ("us, p99", 0.99)] {
        let handovers = |keeper: &str, release_point: &str| {
            let start =
                || child::start(&["zookeeper-handover", keeper, release_point, &server.port().to_string()]);
            handover_time([start()?, start()?], TURNS, fraction)
        };
        Comparison::new(unit)
            .rounds(5)
            .candidate("bare deletion -> watch event -> one list", || watch_time(server.port(), fraction))
            .candidate("leasehold, from the release that leaves", || handovers("thread", "sent"))
            .candidate("the same, keeper on the caller's runtime", || handovers("on_runtime", "sent"))
            .candidate("leasehold, from before the drop", || handovers("thread", "dropped"))
            .run()?;
    }
    Ok(())
}

/// Acquires and releases the lock repeatedly.
pub(crate) fn child(keeper: &str, release_point: &str, port: &str) -> Result<(), Failure> {
    let config = Config::from_url("zookeeper", &format!("//127.0.0.1:{port}"))?;
    let engine = ZookeeperEngine::new(config, &Env::system());
    take_turns(engine, keeper, release_point, Turns { count: TURNS, hold: HOLD, pause: PAUSE })
}

fn watch_time(port: u16, fraction: f64) -> Result<f64, Failure> {
    let listener = child::start(&["zookeeper-watched", &port.to_string()])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = runtime.block_on(async {
        let bare = Bare::connect(port, 1).await?;
        bare.create_dir(DIR).await?;
        while !bare.is_there(READY).await? {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The node `READY` is deleted here, because otherwise it would exist longer than the listener's process: the
        // session of the listener ends some time after the process.
        bare.delete(READY).await?;
        let mut sent = Vec::new();
        for _ in 0..2 * TURNS {
            bare.create(KEY).await?;
            tokio::time::sleep(HOLD).await;
            sent.push(now()?);
            bare.delete(KEY).await?;
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, Failure>(sent)
    })?;
    let mut times = Vec::new();
    for (line, sent) in child::output(listener)?.lines().zip(sent) {
        times.push(line.parse::<u64>()?.saturating_sub(sent) as f64 / 1000.0);
    }
    Ok(quantile(&mut times, fraction))
}

/// The process of the bare client that watches. Prints, for each deletion, the time at which its list of the directory
/// after the deletion was answered.
pub(crate) fn print_arrivals(port: &str) -> Result<(), Failure> {
    let port = port.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let times = runtime.block_on(async {
        let bare = Bare::connect(port, 1).await?;
        bare.create_dir(DIR).await?;
        bare.create(READY).await?;
        let mut times = Vec::new();
        while times.len() < 2 * TURNS {
            bare.wait_for_deletion(DIR, KEY).await?;
            times.push(now()?);
        }
        Ok::<_, Failure>(times)
    })?;
    times.iter().for_each(|time| println!("{time}"));
    Ok(())
}
