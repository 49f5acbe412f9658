//! The quota of an external API: at most 3 concurrent calls over a fleet of 20 processes. Five of the processes are
//! killed, some of them during a call. Their permits become free: on the file engine at once, on a server when their
//! leases end.
//!
//! Each call has its own file, and the caller holds an advisory lock on this file as long as the call lasts. The kernel
//! releases this lock when the caller dies. So a caller can count the calls in progress without leasehold.
//!
//! With `--textbook` the permits are three keys in Redis that expire while their holders are still calling.

use std::{
    fs::{self, File},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use leasehold::{Guard, Locks};
use leasehold_examples::{
    Data, Failure, Floor, Owner, Protection, Release, Scenario, TTL, Textbook, TextbookHold, TextbookPlace,
    WorkerLocks, check, failures, run, wait_until,
};

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
    run(&Scenario { data: Data::Files, textbook: TextbookPlace::Redis }, boss, worker)
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
    let beyond = calls.iter().filter(|line| line.parse().is_ok_and(|count: u32| count > LIMIT)).count();
    floor.judge(beyond, "calls beyond the quota")?;
    check(most >= LIMIT, "the quota was never used up")?;
    check(calls.len() >= (FLEET - KILLED) * CALLS, "calls are missing")?;
    if floor.protection != Protection::Leasehold {
        return Ok(());
    }
    let free = floor.locks()?.semaphore("api", LIMIT).permits(LIMIT).blocking().acquire_within(TTL * 10);
    check(free.is_ok(), "a permit leaked")
}

/// A permit of one call.
enum Permit {
    Leasehold(Guard),
    Textbook(TextbookHold),
    None,
}

impl Permit {
    fn acquire(locks: &WorkerLocks) -> Result<Self, Failure> {
        match locks {
            WorkerLocks::Leasehold(locks) => permit(locks).map(Self::Leasehold),
            WorkerLocks::Textbook(textbook) => article_permit(textbook).map(Self::Textbook),
            WorkerLocks::None => Ok(Self::None),
        }
    }

    fn release(self) -> Result<(), Failure> {
        match self {
            Self::Leasehold(guard) => Ok(guard.release_blocking()?),
            Self::Textbook(hold) => hold.release(),
            Self::None => Ok(()),
        }
    }
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

/// Tries one key after the other.
fn article_permit(textbook: &Textbook) -> Result<TextbookHold, Failure> {
    loop {
        for number in 0..LIMIT {
            if let Some(hold) = textbook.try_acquire(&format!("api-{number}"))? {
                return Ok(hold);
            }
        }
        thread::sleep(PAUSE / 10);
    }
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let locks = WorkerLocks::connect(floor, |url| Textbook::connect(url, Owner::Unique, Release::Compare))?;
    // With leasehold, each call waits until as many calls are in progress as the quota allows; without leasehold, until
    // there is one call more.
    let awaited = LIMIT as usize + usize::from(floor.protection != Protection::Leasehold);
    for call in 0..CALLS {
        let permit = Permit::acquire(&locks)?;
        let name = format!("calls/{}-{call}", floor.worker.unwrap_or_default());
        let mine = File::create(floor.file(&name))?;
        mine.lock()?;
        let mut count = under_way(floor)?;
        let begin = Instant::now();
        while count < awaited && begin.elapsed() < longest(floor) {
            thread::sleep(Duration::from_millis(5));
            count = under_way(floor)?;
        }
        if count >= awaited {
            File::create(floor.file("used-up"))?;
        }
        floor.append("calls.log", &count.to_string())?;
        drop(mine);
        permit.release()?;
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
