//! Measures lost updates: holders are paused for longer than their lease, some of them between the check of the hold
//! and the write. The holders write to a file without a fence, to a file with a fence, and to a key in Redis with a
//! fence.

use std::{
    fmt,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::{Error, Guard, Locks, RedisFence};
use leasehold_testkit::{history::now_nanos, server::RedisServer};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    Failure,
    results::{ResultStore, WriteOutcome},
    rng::Rng,
};

/// The number of writing processes.
const WRITERS: usize = 4;
/// The lease of a writer's hold: shorter than each pause of a writer.
const TTL: Duration = Duration::from_millis(400);
/// How long a writer holds the lock.
const HOLD_TIME: Duration = Duration::from_millis(80);
/// The name of the lock and of the resource that it protects.
const NAME: &str = "resource";

/// The resource that updates go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A file without a fence.
    File,
    /// A file with a fence.
    FencedFile,
    /// A key of Redis with a fence.
    FencedKey,
}

/// All destinations.
pub const DESTINATIONS: [Destination; 3] =
    [Destination::File, Destination::FencedFile, Destination::FencedKey];

/// The results of the updates at one destination.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// The destination.
    pub destination: Destination,
    /// How many increments and appends were acknowledged.
    pub acknowledged: u64,
    /// How many updates were refused because of their token.
    pub refused: u64,
    /// How many acknowledged increments are missing.
    pub lost_increments: u64,
    /// How many acknowledged appends are missing.
    pub lost_appends: u64,
}

/// Runs the measurement and prints the table of results. Returns 1 if an update behind a fence was lost, otherwise 0.
///
/// # Errors
/// When the measurement cannot be run.
pub fn main(args: &[&str]) -> Result<ExitCode, Failure> {
    let (mut seconds, mut seed) = (20, Rng::random_seed());
    for pair in args.chunks(2) {
        match *pair {
            ["--seconds", value] => seconds = value.parse()?,
            ["--seed", value] => seed = value.parse()?,
            _ => return Err("--seconds and --seed are known, each with a value".into()),
        }
    }
    println!("seed {seed}, {seconds} s, {WRITERS} processes, a lease of {TTL:?}");
    let tallies = run(&std::env::current_exe()?, seed, Duration::from_secs(seconds))?;
    println!(
        "{:14} {:>12} {:>8} {:>16} {:>13}",
        "", "acknowledged", "refused", "lost increments", "lost appends"
    );
    for tally in &tallies {
        println!("{tally}");
    }
    let lost = |tally: &Tally| {
        tally.destination != Destination::File && tally.lost_increments + tally.lost_appends > 0
    };
    Ok(if tallies.iter().any(lost) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Runs the writers.
///
/// # Errors
/// When a writer fails, or on an error of the operating system.
pub fn run(program: &Path, seed: u64, time: Duration) -> Result<Vec<Tally>, Failure> {
    let server = RedisServer::start(&[]);
    let dir = tempfile::tempdir()?;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let until = now_nanos() + time.as_nanos() as u64;
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(["writer", &url, &dir.path().display().to_string()])
            .args([until.to_string(), (seed + number as u64).to_string()])
            .stdin(Stdio::null())
            .spawn()?;
        writers.push(Writer(process));
    }
    let (admin, mut rng) = (Locks::connect(&url)?, Rng::new(seed, 9));
    while now_nanos() < until {
        sleep(rng.millis(20..150));
        let Some(victim) = holder(&admin, &writers)? else { continue };
        kill(victim, Signal::SIGSTOP)?;
        sleep(TTL + rng.millis(50..400));
        kill(victim, Signal::SIGCONT)?;
    }
    for Writer(process) in &mut writers {
        let status = process.wait()?;
        if !status.success() {
            return Err(format!("a writer ended with {status}").into());
        }
    }
    let results = ResultStore::new(dir.path());
    DESTINATIONS.iter().map(|&destination| audit(destination, &results, &server)).collect()
}

/// The writer process that holds the lock now, if any.
fn holder(admin: &Locks, writers: &[Writer]) -> Result<Option<Pid>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let view = runtime.block_on(admin.show(NAME))?;
    let owner = view.holders.first().map_or("", |holder| holder.owner.as_str());
    let mut pids = writers.iter().map(|Writer(process)| process.id());
    let held = pids.find(|pid| owner.ends_with(&format!(":{pid}")));
    Ok(held.map(|pid| Pid::from_raw(pid as i32)))
}

/// A writer process. Dropping this value kills the process.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Compares the updates that the writers recorded as acknowledged with the content of the destination.
fn audit(destination: Destination, results: &ResultStore, server: &RedisServer) -> Result<Tally, Failure> {
    let (counter, list) = (format!("{destination:?}-counter"), format!("{destination:?}-list"));
    let (increments, appends) = (results.acknowledged(&counter)?, results.acknowledged(&list)?);
    let (lost_increments, lost_appends) = if destination == Destination::FencedKey {
        let count = server.command(&["GET", &counter]).join("").parse().unwrap_or(0);
        let text = server.command(&["GET", &list]).join("");
        let present: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let missing = appends.iter().filter(|element| !present.contains(element)).count();
        ((increments.len() as u64).saturating_sub(count), missing as u64)
    } else {
        (results.lost_increments(&counter)?, results.lost_elements(&list)?)
    };
    let refused = results.acknowledged(&format!("{destination:?}-refused"))?.len() as u64;
    let acknowledged = (increments.len() + appends.len()) as u64;
    Ok(Tally { destination, acknowledged, refused, lost_increments, lost_appends })
}

/// Runs the program as a writer: it acquires the lock, checks it, reads, may be paused, and writes.
///
/// # Errors
/// When the writer cannot work.
pub fn writer(args: &[&str]) -> Result<(), Failure> {
    let &[url, dir, until, seed] = args else { return Err("a writer needs four arguments".into()) };
    let (until, mut rng): (u64, _) = (until.parse()?, Rng::new(seed.parse()?, 1));
    let (locks, results) = (Locks::connect(url)?, ResultStore::new(Path::new(dir)));
    let fence = locks.redis_fence(NAME).ok_or("these locks are on Redis")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let mut element = u64::from(std::process::id()) << 32;
    while now_nanos() < until {
        let guard = runtime.block_on(locks.mutex(NAME).ttl(TTL).acquire())?;
        let begin = Instant::now();
        while begin.elapsed() < HOLD_TIME && guard.check() {
            element += 1;
            let destination = *rng.pick(&DESTINATIONS);
            let work = Work { destination, results: &results, element, between: rng.millis(5..30) };
            let outcome = if destination == Destination::FencedKey {
                runtime.block_on(work.on_redis(&guard, &fence, rng.percent(50)))?
            } else {
                work.on_file(&guard, rng.percent(50))?
            };
            if outcome == WriteOutcome::Fenced {
                results.acknowledge(&format!("{destination:?}-refused"), 1)?;
            }
        }
        // The release reports the loss of the hold if this holder was paused for too long. That is no error here.
        let _ = guard.release_blocking();
    }
    Ok(())
}

/// One update.
struct Work<'a> {
    destination: Destination,
    results: &'a ResultStore,
    /// The element to append. It is unique among all writers.
    element: u64,
    /// The time between the read and the write.
    between: Duration,
}

impl Work<'_> {
    /// Updates a file. Increments the counter if `increments` is true; otherwise appends the element to the list.
    fn on_file(&self, guard: &Guard, increments: bool) -> std::io::Result<WriteOutcome> {
        let fence = (self.destination == Destination::FencedFile).then(|| guard.token());
        let between = || sleep(self.between);
        if increments {
            self.results.increment(&format!("{:?}-counter", self.destination), fence, between)
        } else {
            self.results.append(&format!("{:?}-list", self.destination), self.element, fence, between)
        }
    }

    /// Updates a key of Redis as [`on_file`](Self::on_file) updates a file.
    async fn on_redis(
        &self,
        guard: &Guard,
        fence: &RedisFence,
        increments: bool,
    ) -> Result<WriteOutcome, Failure> {
        let key = format!("{:?}-{}", self.destination, if increments { "counter" } else { "list" });
        let done = async {
            // This seals the key (shows the token to the fence) and reads it.
            let seen = fence.write(guard.token(), &[&["GET", &key]]).await?;
            let text = seen[0].text().unwrap_or_default();
            let next = if increments {
                (text.parse().unwrap_or(0_u64) + 1).to_string()
            } else {
                format!("{text} {}", self.element)
            };
            tokio::time::sleep(self.between).await;
            fence.write(guard.token(), &[&["SET", &key, &next]]).await.map(drop)
        };
        match done.await {
            Ok(()) => {
                self.results.acknowledge(&key, self.element)?;
                Ok(WriteOutcome::Done)
            }
            Err(error) if Error::is_fenced(&error) => Ok(WriteOutcome::Fenced),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let destination = match self.destination {
            Destination::File => "file",
            Destination::FencedFile => "fenced file",
            Destination::FencedKey => "fenced key",
        };
        let Self { acknowledged, refused, lost_increments, lost_appends, .. } = self;
        write!(f, "{destination:14} {acknowledged:>12} {refused:>8} {lost_increments:>16} {lost_appends:>13}")
    }
}
