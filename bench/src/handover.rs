//! Two processes acquire one lock in turns. Measures the time from just before the release in one process to the grant
//! in the other.

use std::{io::Write, path::Path, process::Child, thread::sleep, time::Duration};

use leasehold::Locks;
use nix::time::{ClockId, clock_gettime};

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
    free::bare_lock,
    stamped::Turns,
};

const TURNS: usize = 100;
/// How long a process holds the lock: long enough that the other process waits for it when the hold ends.
const HOLD: Duration = Duration::from_millis(1);
/// How long a process pauses after a release: long enough that a lock without a queue goes to the other process, and
/// not to the same process again.
const PAUSE: Duration = Duration::from_micros(300);

/// What each process of this bench does.
const OWN_TURNS: Turns = Turns { count: TURNS, hold: HOLD, pause: PAUSE };

pub(crate) fn bench() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let bare = dir.path().join("bare").display().to_string();
    let locks = format!("file://{}", dir.path().join("locks").display());
    for (unit, fraction) in [("us, p50", 0.5), ("us, p99", 0.99)] {
        Comparison::new(unit)
            .rounds(11)
            .candidate("bare flock, blocking", || handovers("flock", &bare, fraction))
            .candidate("leasehold, file", || handovers("leasehold", &locks, fraction))
            .run()?;
    }
    Ok(())
}

/// The quantile at `fraction` of the times between release and grant, in microseconds.
fn handovers(candidate: &str, place: &str, fraction: f64) -> Result<f64, Failure> {
    handover_time(children(candidate, place, &OWN_TURNS)?, TURNS, fraction)
}

/// Two processes that acquire one lock in turns.
pub(crate) fn children(candidate: &str, place: &str, turns: &Turns) -> Result<[Child; 2], Failure> {
    let Turns { count, hold, pause } = turns;
    let times = [*count as u128, hold.as_micros(), pause.as_micros()].map(|number| number.to_string());
    let start = || child::start(&["handover", candidate, place, &times[0], &times[1], &times[2]]);
    Ok([start()?, start()?])
}

/// The quantile at `fraction` of the times between release and grant, in microseconds.
pub(crate) fn handover_time(children: [Child; 2], turns: usize, fraction: f64) -> Result<f64, Failure> {
    Ok(quantile(&mut handover_times(children, turns)?, fraction))
}

/// The times between release and grant, in microseconds: at least `least` of them. The two child processes print when
/// each of their holds was granted and when it was released.
pub(crate) fn handover_times(children: [Child; 2], least: usize) -> Result<Vec<f64>, Failure> {
    let mut holds = Vec::new();
    for (number, child) in children.into_iter().enumerate() {
        for line in child::output(child)?.lines() {
            let (granted, released) = line.split_once(' ').ok_or("a torn line")?;
            holds.push((granted.parse::<u64>()?, released.parse::<u64>()?, number));
        }
    }
    holds.sort_unstable();
    let handovers = holds.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let times: Vec<f64> = handovers.map(|pair| pair[1].0.abs_diff(pair[0].1) as f64 / 1000.0).collect();
    if times.len() < least {
        return Err(format!("only {} of {} turns changed the process", times.len(), holds.len()).into());
    }
    Ok(times)
}

/// Acquires and releases the lock repeatedly. Prints when each hold was granted and when its release began.
pub(crate) fn child(candidate: &str, place: &str, turns: [&str; 3]) -> Result<(), Failure> {
    let [count, hold, pause] = turns;
    let count: usize = count.parse()?;
    let (hold, pause) = (Duration::from_micros(hold.parse()?), Duration::from_micros(pause.parse()?));
    let mut stamps = Vec::with_capacity(count);
    if candidate == "flock" {
        let path = Path::new(place);
        for _ in 0..count {
            let lock = bare_lock(path)?;
            stamps.push(hold_once(hold, || drop(lock))?);
            sleep(pause);
        }
    } else {
        let locks = Locks::connect(place)?;
        let request = locks.mutex("handover");
        for _ in 0..count {
            let guard = pollster::block_on(request.acquire())?;
            stamps.push(hold_once(hold, || drop(guard))?);
            sleep(pause);
        }
    }
    let mut out = std::io::stdout().lock();
    for (granted, released) in stamps {
        writeln!(out, "{granted} {released}")?;
    }
    Ok(())
}

fn hold_once(hold: Duration, release: impl FnOnce()) -> Result<(u64, u64), Failure> {
    let granted = now()?;
    sleep(hold);
    let released = now()?;
    release();
    Ok((granted, released))
}

/// The time in nanoseconds, on a clock that all processes share.
pub(crate) fn now() -> Result<u64, Failure> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64)
}
