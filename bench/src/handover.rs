//! Two processes take one lock in turns: the time from before the release in the one to the grant in the other.

use std::{io::Write, path::Path, process::Child, thread::sleep, time::Duration};

use leasehold::Locks;
use nix::time::{ClockId, clock_gettime};

use crate::{
    Failure, child,
    contest::{Contest, quantile},
    free::bare_lock,
};

const TURNS: usize = 100;
/// Long enough that the other process waits by then.
const HOLD: Duration = Duration::from_millis(1);
/// Long enough that a lock without a queue goes to the other process.
const PAUSE: Duration = Duration::from_micros(300);

pub(crate) fn bench() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let bare = dir.path().join("bare").display().to_string();
    let locks = format!("file://{}", dir.path().join("locks").display());
    for (unit, at) in [("us, p50", 0.5), ("us, p99", 0.99)] {
        Contest::new(unit)
            .rounds(11)
            .way("bare flock, blocking", || handovers("flock", &bare, at))
            .way("leasehold, file", || handovers("leasehold", &locks, at))
            .run()?;
    }
    Ok(())
}

/// The wanted quantile of the time between release and grant, in microseconds.
fn handovers(way: &str, place: &str, at: f64) -> Result<f64, Failure> {
    between([child::start(&["handover", way, place])?, child::start(&["handover", way, place])?], TURNS, at)
}

/// The same for two child processes that print when each of their holds was granted and when it was released.
pub(crate) fn between(children: [Child; 2], turns: usize, at: f64) -> Result<f64, Failure> {
    let mut holds = Vec::new();
    for (number, child) in children.into_iter().enumerate() {
        for line in child::output(child)?.lines() {
            let (granted, released) = line.split_once(' ').ok_or("a torn line")?;
            holds.push((granted.parse::<u64>()?, released.parse::<u64>()?, number));
        }
    }
    holds.sort_unstable();
    let changes = holds.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let mut times: Vec<f64> = changes.map(|pair| pair[1].0.abs_diff(pair[0].1) as f64 / 1000.0).collect();
    if times.len() < turns {
        return Err(format!("only {} of {} turns changed the process", times.len(), 2 * turns).into());
    }
    Ok(quantile(&mut times, at))
}

/// Takes the lock repeatedly; prints when it was granted and when its release began.
pub(crate) fn child(way: &str, place: &str) -> Result<(), Failure> {
    let mut stamps = Vec::with_capacity(TURNS);
    if way == "flock" {
        let path = Path::new(place);
        for _ in 0..TURNS {
            let lock = bare_lock(path)?;
            stamps.push(section(|| drop(lock))?);
            sleep(PAUSE);
        }
    } else {
        let locks = Locks::connect(place)?;
        let request = locks.mutex("handover");
        for _ in 0..TURNS {
            let guard = pollster::block_on(request.acquire())?;
            stamps.push(section(|| drop(guard))?);
            sleep(PAUSE);
        }
    }
    let mut out = std::io::stdout().lock();
    for (granted, released) in stamps {
        writeln!(out, "{granted} {released}")?;
    }
    Ok(())
}

fn section(release: impl FnOnce()) -> Result<(u64, u64), Failure> {
    let granted = now()?;
    sleep(HOLD);
    let released = now()?;
    release();
    Ok((granted, released))
}

/// Nanoseconds on a clock that all processes share.
pub(crate) fn now() -> Result<u64, Failure> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
