//! The quota of an external API: at most 3 concurrent calls over a fleet of 20 processes. Five of the processes are
//! killed, some of them during a call. Their permits become free: on the file engine at once, on a server when their
//! leases end.
//!
//! Each call has its own file, and the caller holds an advisory lock on this file as long as the call lasts. The kernel
//! releases this lock when the caller dies. So a caller can count the calls in progress without leasehold.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use leasehold::{Guard, Locks};
use leasehold_examples::{Failure, Floor, TTL, check, failures, run, wait_until};

const FLEET: usize = 20;
const KILLED: usize = 5;
const LIMIT: u32 = 3;
const CALLS: usize = 10;
/// How many times a worker sends a request that the server cannot answer, and the pause between two of these requests.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);
/// How long a call waits, at most, for the moment at which the quota is used up. Because calls wait, the quota is used
/// up even if grants are slow.
const CALL: Duration = Duration::from_millis(100);
/// The limit that applies in place of [`CALL`] until the quota is used up for the first time. It is so long that the
/// quota is used up even on a busy machine.
const FIRST_CALL: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    run(boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    fs::create_dir(floor.file("calls"))?;
    let mut fleet: Vec<_> = (0..FLEET).map(|number| floor.start(number)).collect::<Result<_, _>>()?;
    for (killed, worker) in fleet.iter_mut().take(KILLED).enumerate() {
        wait_until("calls", || Ok(floor.lines("calls.log")?.len() >= 10 * (killed + 1)))?;
        worker.kill()?;
    }
    println!("{KILLED} of {FLEET} workers killed");
    check(failures(fleet)? == 0, "a worker failed")?;

    let calls = floor.lines("calls.log")?;
    let most = calls.iter().filter_map(|line| line.parse::<u32>().ok()).max().unwrap_or_default();
    println!("{} calls, at most {most} at once", calls.len());
    check(most <= LIMIT, "the quota was exceeded")?;
    check(most == LIMIT, "the quota was never used up")?;
    check(calls.len() >= (FLEET - KILLED) * CALLS, "calls are missing")?;
    let free = floor.locks()?.semaphore("api", LIMIT).permits(LIMIT).blocking().acquire_within(TTL * 10);
    check(free.is_ok(), "a permit leaked")
}

/// Acquires a permit. If the server cannot answer, repeats the request, up to [`ATTEMPTS`] times: workers are killed in
/// the middle of requests, which may disturb the server.
fn permit(locks: &Locks) -> Result<Guard, Failure> {
    for _ in 0..ATTEMPTS {
        match locks.semaphore("api", LIMIT).ttl(TTL).blocking().acquire() {
            Err(error) if error.is_unreachable() => thread::sleep(PAUSE),
            ended => return Ok(ended?),
        }
    }
    Err("the server cannot be reached".into())
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let locks = floor.locks()?;
    for call in 0..CALLS {
        let permit = permit(&locks)?;
        let name = format!("calls/{}-{call}", floor.worker.unwrap_or_default());
        let mine = File::create(floor.file(&name))?;
        mine.lock()?;
        let mut count = under_way(floor)?;
        let begin = Instant::now();
        while count < LIMIT as usize && begin.elapsed() < longest(floor) {
            thread::sleep(Duration::from_millis(5));
            count = under_way(floor)?;
        }
        if count == LIMIT as usize {
            File::create(floor.file("used-up"))?;
        }
        log(floor, count)?;
        drop(mine);
        permit.release_blocking()?;
    }
    Ok(())
}

fn longest(floor: &Floor) -> Duration {
    if floor.file("used-up").exists() { CALL } else { FIRST_CALL }
}

/// The number of calls in progress. It is the number of files on which a caller holds a lock.
fn under_way(floor: &Floor) -> Result<usize, Failure> {
    let mut count = 0;
    for entry in fs::read_dir(floor.file("calls"))? {
        let call = File::open(entry?.path())?;
        count += usize::from(call.try_lock_shared().is_err());
    }
    Ok(count)
}

fn log(floor: &Floor, count: usize) -> Result<(), Failure> {
    let mut file = OpenOptions::new().append(true).create(true).open(floor.file("calls.log"))?;
    Ok(file.write_all(format!("{count}\n").as_bytes())?)
}
