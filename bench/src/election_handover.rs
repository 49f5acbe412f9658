//! Two processes lead an election in turns. Measures the time from just before the resignation of one leader to the
//! moment at which the other leads, with its value published. This time is compared with the hand-over of a mutex on
//! the same engine.

use std::{io::Write, time::Duration};

use leasehold::Locks;
use leasehold_testkit::server::RedisServer;

use crate::{
    Failure, child,
    comparison::Comparison,
    handover::{handover_time, now},
};

const TURNS: usize = 100;
/// How long a process leads or holds: long enough that the other process waits at the end.
const HOLD: Duration = Duration::from_millis(1);
/// How long a process pauses afterwards: long enough that the grant has arrived at the other process.
const PAUSE: Duration = Duration::from_millis(1);

pub(crate) fn bench() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir()?;
    let urls = [
        ("on Redis", format!("redis://127.0.0.1:{}", server.port())),
        ("on files", format!("file://{}", dir.path().display())),
    ];
    for (engine, url) in &urls {
        println!("{engine}:");
        Comparison::new("us, p50")
            .rounds(11)
            .candidate("a mutex, from the release to the grant", || hand_overs("mutex", url))
            .candidate("an election, from the resignation to the next leader", || hand_overs("election", url))
            .run()?;
    }
    Ok(())
}

/// The median of the times between the end of one hold and the begin of the next, in microseconds.
fn hand_overs(candidate: &str, url: &str) -> Result<f64, Failure> {
    let start = || child::start(&["election-handover", candidate, url]);
    handover_time([start()?, start()?], TURNS, 0.5)
}

/// Leads, or holds the mutex, repeatedly. Prints when each hold began and when its end was called.
pub(crate) fn child(candidate: &str, url: &str) -> Result<(), Failure> {
    let locks = Locks::connect(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut stamps = Vec::with_capacity(TURNS);
    runtime.block_on(async {
        for _ in 0..TURNS {
            stamps.push(if candidate == "mutex" { hold(&locks).await? } else { lead(&locks).await? });
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, Failure>(())
    })?;
    let mut out = std::io::stdout().lock();
    for (granted, released) in stamps {
        writeln!(out, "{granted} {released}")?;
    }
    Ok(())
}

async fn hold(locks: &Locks) -> Result<(u64, u64), Failure> {
    let guard = locks.mutex("turns").acquire().await?;
    let granted = now()?;
    tokio::time::sleep(HOLD).await;
    let released = now()?;
    guard.release().await?;
    Ok((granted, released))
}

async fn lead(locks: &Locks) -> Result<(u64, u64), Failure> {
    let leading = locks.election("leader").value("10.0.0.7:8080").campaign().await?;
    let granted = now()?;
    tokio::time::sleep(HOLD).await;
    let resigned = now()?;
    leading.resign().await?;
    Ok((granted, resigned))
}
