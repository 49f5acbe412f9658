//! A process that holds a lock and does what it is told, line by line: the one that the rows of the matrix stop and kill.

use std::{
    io::{BufRead, Write},
    time::{Duration, Instant},
};

use leasehold::{Error, Guard, Locks};

use crate::Failure;

/// The program as a holder: of which locks, which name, for how many milliseconds at a time.
///
/// # Errors
/// What keeps it from holding.
pub fn main(args: &[&str]) -> Result<(), Failure> {
    let &[url, name, ttl] = args else { return Err("a holder has three orders".into()) };
    let locks = Locks::connect(url)?;
    let request = locks.mutex(name).ttl(Duration::from_millis(ttl.parse()?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut guard = Some(runtime.block_on(request.acquire())?);
    say(&guard.as_ref().map_or(0, |guard| guard.token().number).to_string())?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match (&words[..], &guard) {
            (["check"], Some(held)) => held.check().to_string(),
            (["spin", longest], Some(held)) => spin(held, Duration::from_millis(longest.parse()?))?,
            (["lost"], Some(held)) => format!("{:?}", runtime.block_on(held.lost())),
            (["write"], Some(held)) => told(runtime.block_on(write(&locks, name, held))?),
            (["release"], Some(_)) => told(guard.take().map_or(Ok(()), Guard::release_blocking)),
            (["abort"], _) => std::process::abort(),
            (["cycle"], _) => loop {
                drop(guard.take());
                guard = runtime.block_on(request.acquire()).ok();
            },
            _ => return Err(format!("unknown: {line}").into()),
        };
        say(&answer)?;
    }
    Ok(())
}

/// Looks again and again until it was not running for so long; what the first look after that said.
fn spin(guard: &Guard, longest: Duration) -> std::io::Result<String> {
    say("spinning")?;
    let mut before = Instant::now();
    loop {
        // The clock first: whatever was between two looks has passed when the second one begins.
        let now = Instant::now();
        let valid = guard.check();
        if now - before > longest {
            return Ok(valid.to_string());
        }
        before = now;
    }
}

/// Writes once, behind a fence on the system that holds the lock.
async fn write(locks: &Locks, name: &str, held: &Guard) -> Result<Result<(), Error>, Failure> {
    if let Some(fence) = locks.redis_fence(name) {
        return Ok(fence.write(held.token(), &[&["INCR", "written"]]).await.map(drop));
    }
    let fence = locks.etcd_fence(name).ok_or("these locks have no fence")?;
    Ok(fence.write(held.token(), &[("written", "by the holder")]).await.map(drop))
}

fn told(ended: Result<(), Error>) -> String {
    ended.map_or_else(|error| format!("{:?}", error.kind()), |()| "ok".to_owned())
}

fn say(answer: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    out.flush()
}
