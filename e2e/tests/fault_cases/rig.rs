//! Fixture: a server, clients through a proxy, holder processes, and random times.

use std::{
    io::{BufRead, BufReader, Write},
    ops::Range,
    pin::pin,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    task::{Context, Waker},
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::{Guard, Locks};
use leasehold_e2e::rng::Rng;
use leasehold_testkit::server::{Proxy, RedisServer};
use nix::sys::signal::Signal;

/// The time limit for events that come soon or never; it judges no speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// How much the machine may delay a measured event. The stopwatch already excludes the time that the machine did not
/// give.
pub(crate) const SLACK: Duration = Duration::from_millis(400);

/// A ttl that outlasts the test; at most one renewal is due.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A ttl of a hold that is renewed during the test: after a third of it. The rest is a reserve for stalls.
pub(crate) const HELD: Duration = Duration::from_secs(9);

/// The random numbers of a test, by `LEASEHOLD_SEED` or by a random seed, which a failed test shows.
pub(crate) fn rng() -> Rng {
    let typed = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = typed.unwrap_or_else(Rng::random_seed);
    println!("repeat with LEASEHOLD_SEED={seed}");
    Rng::new(seed, 0)
}

pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Waits until `done` is true; panics after a long time.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < limit, "waited {PATIENCE:?} until {what}");
        sleep(millis(5));
    }
}

pub(crate) fn acquire(locks: &Locks, name: &str, ttl: Duration) -> Guard {
    locks.mutex(name).ttl(ttl).blocking().acquire_within(PATIENCE).unwrap()
}

/// Connects by a claim and a release. The release may fail: a stall of the machine may be longer than a short lease.
pub(crate) fn warm(locks: &Locks, ttl: Duration) {
    let _ = acquire(locks, "warm", ttl).release_blocking();
}

/// Waits until a hold is renewed: only a renewal increases its remaining time.
pub(crate) fn until_renewed(guard: &Guard) {
    let left = || guard.remaining().unwrap();
    // A hold in doubt, as after a restart, has no remaining time until its renewal.
    let is_lost = || pin!(guard.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    until_more("it is renewed", millis(20), left, |left| !left.is_zero() || !is_lost());
}

/// Waits until a value that otherwise decreases grows, as long as `may` allows the value.
fn until_more<T: Copy + PartialOrd + std::fmt::Debug>(
    what: &str,
    speed: Duration,
    look: impl Fn() -> T,
    may: impl Fn(T) -> bool,
) {
    let (mut least, limit) = (look(), Instant::now() + PATIENCE);
    loop {
        sleep(speed);
        let now = look();
        if now > least {
            return;
        }
        assert!(may(now) && Instant::now() < limit, "waited until {what}: {now:?}");
        least = now;
    }
}

/// F01: a holder is stopped at a random time, for longer than its lease. Meanwhile another client takes the name and
/// seals the fence. The first check of the resumed holder fails.
pub(crate) fn pause_beyond_the_lease(
    url: &str,
    ttl: Duration,
    phase: Range<u64>,
    pause: Duration,
    seal: impl FnOnce(&Locks, &Guard),
) {
    let locks = Locks::connect(url).unwrap();
    let mut holder = Holder::start(url, "a", ttl);
    assert_eq!(holder.ask(&format!("spin {}", (2 * ttl).as_millis())), "spinning");
    sleep(rng().millis(phase));
    holder.signal(Signal::SIGSTOP);
    let next = acquire(&locks, "a", LONG);
    assert!(next.token().number > holder.token);
    seal(&locks, &next);
    sleep(pause);
    holder.signal(Signal::SIGCONT);
    assert_eq!(holder.receive(), "false", "the first check after the pause");
    assert_eq!(holder.ask("write"), "Fenced");
    assert_eq!(holder.ask("lost"), "Lapsed");
    assert!(holder.ask("release").starts_with("Lost"));
    assert!(next.check(), "the late release affects no other hold");
}

/// A server and its clients.
pub(crate) struct Rig {
    pub(crate) server: RedisServer,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(arguments: &[&str]) -> Self {
        Self { server: RedisServer::start(arguments) }
    }

    pub(crate) fn with_clock() -> Self {
        Self { server: RedisServer::with_clock(&[]) }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.server.port())
    }

    pub(crate) fn locks(&self) -> Locks {
        Locks::connect(&self.url()).unwrap()
    }

    /// A connected client behind a proxy.
    pub(crate) fn proxied(&self) -> (Proxy, Locks) {
        let proxy = Proxy::start(self.server.port());
        let locks = Locks::connect(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
        warm(&locks, LONG);
        (proxy, locks)
    }

    pub(crate) fn command(&self, command: &[&str]) -> String {
        self.server.command(command).join(" ")
    }

    /// The content of the lock key of `name`: the holder and its token.
    pub(crate) fn holder(&self, name: &str) -> String {
        // Ignore the mark of a grant that is not confirmed yet.
        self.command(&["GET", &format!("lock:{name}")]).trim_end_matches('?').to_owned()
    }

    /// The ttl of a key in milliseconds; negative without the key.
    pub(crate) fn left(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).parse().unwrap()
    }

    /// Waits until the hold of another process is renewed.
    pub(crate) fn until_renewed(&self, name: &str) {
        let key = format!("lock:{name}");
        until_more("it is renewed", millis(50), || self.left(&key), |left| left > 0);
    }

    pub(crate) fn waiters(&self, name: &str) -> usize {
        pollster::block_on(self.locks().show(name)).unwrap().waiters.len()
    }
}

/// A process that holds a lock.
pub(crate) struct Holder {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// The token of its grant.
    pub(crate) token: u64,
}

impl Holder {
    pub(crate) fn start(url: &str, name: &str, ttl: Duration) -> Self {
        Self::start_in(url, name, ttl, &[])
    }

    pub(crate) fn start_in(url: &str, name: &str, ttl: Duration, environment: &[(&str, String)]) -> Self {
        let mut holder = Self::spawn(url, name, ttl, environment);
        holder.wait_for_grant();
        holder
    }

    /// Starts a process without waiting for its grant: see [`wait_for_grant`](Self::wait_for_grant).
    pub(crate) fn spawn(url: &str, name: &str, ttl: Duration, environment: &[(&str, String)]) -> Self {
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", env!("CARGO_BIN_EXE_leasehold-e2e"), "holder", url, name])
            .arg(ttl.as_millis().to_string())
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output), token: 0 }
    }

    /// Waits until the process holds the lock.
    pub(crate) fn wait_for_grant(&mut self) {
        self.token = self.receive().parse().unwrap();
    }

    pub(crate) fn send(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
    }

    pub(crate) fn receive(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.send(order);
        self.receive()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        leasehold_testkit::signal(self.process.id(), signal);
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
