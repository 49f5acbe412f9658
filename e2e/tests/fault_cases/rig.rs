//! What the rows need: a server, clients through a proxy, processes that hold, and a phase that chance chooses.

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

/// Not a measure of speed: for what never comes if it does not come soon.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// How much the machine may delay what a row measures, while it gives what it has to this process.
pub(crate) const SLACK: Duration = Duration::from_millis(400);

/// A lease that is to outlive the row: renewed once meanwhile at the most.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A lease that is to be renewed in the row: after a third of it, and the rest is for a machine that stalls.
pub(crate) const HELD: Duration = Duration::from_secs(9);

/// The dice of a row: by `LEASEHOLD_SEED`, or a seed that nobody chose. Shown when the row fails.
pub(crate) fn rng() -> Rng {
    let typed = std::env::var("LEASEHOLD_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = typed.unwrap_or_else(Rng::random_seed);
    println!("repeat with LEASEHOLD_SEED={seed}");
    Rng::new(seed, 0)
}

pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Waits until `done`, for what is certain to come.
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

/// Connects: takes a name, and gives it back. The machine may stand still meanwhile, for longer than a short lease.
pub(crate) fn warm(locks: &Locks, ttl: Duration) {
    let _ = acquire(locks, "warm", ttl).release_blocking();
}

/// Waits until the server says once more that it keeps a hold: only that makes what remains of it longer.
pub(crate) fn until_renewed(guard: &Guard) {
    let left = || guard.remaining().unwrap();
    // Nothing remains of one in doubt, as after a restart, until the server has said so.
    let is_lost = || pin!(guard.lost()).poll(&mut Context::from_waker(Waker::noop())).is_ready();
    until_more("it is renewed", millis(20), left, |left| !left.is_zero() || !is_lost());
}

/// Waits until something grows that becomes less all the while, as long as it may.
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

/// F01: a holder is stopped in some phase of its lease, for longer than that. Another takes the name meanwhile and seals the fence of
/// its resource; the first finds out as soon as it goes on.
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
    assert_eq!(holder.receive(), "false", "the first look after the pause");
    assert_eq!(holder.ask("write"), "Fenced");
    assert_eq!(holder.ask("lost"), "Lapsed");
    assert!(holder.ask("release").starts_with("Lost"));
    assert!(next.check(), "the late release harmed nobody");
}

/// A server and who reaches it.
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

    /// Locks behind a proxy, connected.
    pub(crate) fn proxied(&self) -> (Proxy, Locks) {
        let proxy = Proxy::start(self.server.port());
        let locks = Locks::connect(&format!("redis://127.0.0.1:{}", proxy.port())).unwrap();
        warm(&locks, LONG);
        (proxy, locks)
    }

    pub(crate) fn command(&self, command: &[&str]) -> String {
        self.server.command(command).join(" ")
    }

    /// Who holds `name`, and by which token.
    pub(crate) fn holder(&self, name: &str) -> String {
        // The mark of a grant that its claim has not answered yet goes by itself.
        self.command(&["GET", &format!("lock:{name}")]).trim_end_matches('?').to_owned()
    }

    /// For how many milliseconds a key lives still; negative if it is not there.
    pub(crate) fn left(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).parse().unwrap()
    }

    /// Waits until the hold of another process is renewed once more.
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
    /// What it was granted.
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

    /// One that may have to wait: it is to be asked for its grant.
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

    /// Waits until it holds.
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
