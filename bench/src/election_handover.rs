//! Two processes lead an election in turns. Measures the time from just before the resignation of one leader to the
//! grant of the lead to the other, and to the moment at which the value of the other is published too. These times are
//! compared with the hand-over of a mutex on the same engine.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold::{Connect, Event, Locks, Observe};
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
            .candidate("an election, from the resignation to the grant", || hand_overs("grant", url))
            .candidate("an election, from the resignation to the published value", || {
                hand_overs("value", url)
            })
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
    let last_grant = Arc::new(LastGrant::default());
    let locks = Connect::default().observe(Arc::clone(&last_grant) as _).connect(url)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut stamps = Vec::with_capacity(TURNS);
    runtime.block_on(async {
        for _ in 0..TURNS {
            let (published, ended) = match candidate {
                "mutex" => (None, hold(&locks).await?),
                candidate => {
                    let (published, resigned) = lead(&locks).await?;
                    ((candidate == "value").then_some(published), resigned)
                }
            };
            stamps.push((published.unwrap_or_else(|| last_grant.0.load(Ordering::Acquire)), ended));
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

/// Remembers when the last hold was granted.
#[derive(Default)]
struct LastGrant(AtomicU64);

impl Observe for LastGrant {
    fn event(&self, event: &Event<'_>) {
        if let (Event::Granted { .. }, Ok(now)) = (event, now()) {
            self.0.store(now, Ordering::Release);
        }
    }
}

/// Holds the mutex for a while. Returns when its release began.
async fn hold(locks: &Locks) -> Result<u64, Failure> {
    let guard = locks.mutex("turns").acquire().await?;
    tokio::time::sleep(HOLD).await;
    let released = now()?;
    guard.release().await?;
    Ok(released)
}

/// Leads for a while. Returns when its value was published, and when its resignation began.
async fn lead(locks: &Locks) -> Result<(u64, u64), Failure> {
    let leading = locks.election("leader").value("10.0.0.7:8080").campaign().await?;
    let published = now()?;
    tokio::time::sleep(HOLD).await;
    let resigned = now()?;
    leading.resign().await?;
    Ok((published, resigned))
}
