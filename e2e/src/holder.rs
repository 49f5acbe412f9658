//! A process that holds a lock and executes the commands that it reads from its standard input, one per line. The tests
//! of the fault matrix stop and kill this process.

use std::{
    io::{BufRead, Write},
    time::{Duration, Instant},
};

use leasehold::{Error, Guard, Locks};

use crate::Failure;

/// Runs the program as a holder. The arguments are the URL of the locks, the name, and the ttl in milliseconds.
///
/// # Errors
/// When the process cannot acquire the lock, or a command is unknown.
pub fn main(args: &[&str]) -> Result<(), Failure> {
    let &[url, name, ttl] = args else { return Err("a holder needs three arguments".into()) };
    let locks = Locks::connect(url)?;
    let request = locks.mutex(name).ttl(Duration::from_millis(ttl.parse()?));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut guard = Some(runtime.block_on(request.acquire())?);
    reply(&guard.as_ref().map_or(0, |guard| guard.token().number).to_string())?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match (&words[..], &guard) {
            (["check"], Some(hold)) => hold.check().to_string(),
            (["spin", min_pause], Some(hold)) => spin(hold, Duration::from_millis(min_pause.parse()?))?,
            (["lost"], Some(hold)) => format!("{:?}", runtime.block_on(hold.lost())),
            (["write"], Some(hold)) => describe(runtime.block_on(write(&locks, name, hold))?),
            (["release"], Some(_)) => describe(guard.take().map_or(Ok(()), Guard::release_blocking)),
            (["abort"], _) => std::process::abort(),
            (["cycle"], _) => loop {
                drop(guard.take());
                guard = runtime.block_on(request.acquire()).ok();
            },
            _ => return Err(format!("unknown command: {line}").into()),
        };
        reply(&answer)?;
    }
    Ok(())
}

/// Checks the hold in a loop, until there was a pause of more than `min_pause` in which the machine did not run this
/// process. Returns the result of the first check after that pause.
fn spin(guard: &Guard, min_pause: Duration) -> std::io::Result<String> {
    reply("spinning")?;
    let mut previous = Instant::now();
    loop {
        // The clock is read before the check, so that the measured pause lies completely before this check.
        let now = Instant::now();
        let valid = guard.check();
        if now - previous > min_pause {
            return Ok(valid.to_string());
        }
        previous = now;
    }
}

/// Makes one write through a fence on the system that stores the lock.
async fn write(locks: &Locks, name: &str, hold: &Guard) -> Result<Result<(), Error>, Failure> {
    if let Some(fence) = locks.redis_fence(name) {
        return Ok(fence.write(hold.token(), &[&["INCR", "written"]]).await.map(drop));
    }
    let fence = locks.etcd_fence(name).ok_or("these locks have no fence")?;
    Ok(fence.write(hold.token(), &[("written", "by the holder")]).await.map(drop))
}

fn describe(ended: Result<(), Error>) -> String {
    ended.map_or_else(|error| format!("{:?}", error.kind()), |()| "ok".to_owned())
}

fn reply(answer: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}")?;
    out.flush()
}
