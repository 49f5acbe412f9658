//! Clocks that stop, step, or run at wrong rates.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread::{scope, sleep},
    time::Duration,
};

use leasehold_core::{
    Clock, Env, Instant, Locks,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::server::WallClock;
use nix::sys::signal::Signal;

use crate::rig::{HELD, Holder, LONG, PATIENCE, Rig, acquire, millis, rng, until};

/// The clock of the machine, run at another rate and set forward.
struct SkewedClock {
    begin: Instant,
    per_mille: u64,
    ahead: AtomicU64,
}

impl Clock for SkewedClock {
    fn now(&self) -> Instant {
        let passed = Env::system().clock.now().since(self.begin).as_nanos() as u64;
        let skewed = u128::from(passed) * u128::from(self.per_mille) / 1000;
        Instant::from_nanos(self.begin.as_nanos() + skewed as u64 + self.ahead.load(Relaxed))
    }
}

/// A store on the clock of the machine, with a client on a skewed clock and a client on the clock of the machine.
fn memory(per_mille: u64) -> (Arc<SkewedClock>, Locks, Locks) {
    let env = Env::system();
    let store = MemoryStore::new(env.lineage(), Arc::clone(&env.clock));
    let clock = Arc::new(SkewedClock { begin: env.clock.now(), per_mille, ahead: AtomicU64::new(0) });
    let engine = || Arc::new(MemoryEngine::new(Arc::clone(&store)));
    let skewed = Env { clock: Arc::clone(&clock) as _, ..Env::system() };
    (clock, Locks::builder(engine()).env(skewed).build(), Locks::new(engine()))
}

#[test]
fn f07_suspend() {
    let (clock, locks, _) = memory(1000);
    let guard = locks.mutex("a").ttl(Duration::from_secs(20)).blocking().acquire().unwrap();
    sleep(rng().millis(0..100));
    assert!(guard.check());
    // The machine was suspended for an hour: no timer has fired yet, only the clock shows it.
    clock.ahead.store(3_600_000_000_000, Relaxed);
    assert!(!guard.check());
    assert_eq!(pollster::block_on(guard.lost()), leasehold::Loss::Lapsed);
}

#[test]
fn f08_wall_clock_of_the_client_steps() {
    let rig = Rig::new();
    let dir = tempfile::tempdir().unwrap();
    let clock = WallClock::new(dir.path());
    let start = |name, ttl| Holder::start_in(&rig.url(), name, ttl, &clock.environment());
    let (mut holder, mut brief) = (start("a", HELD), start("brief", millis(900)));
    for step in [3600, -3600, 0] {
        clock.set(step);
        rig.until_renewed("a");
        assert_eq!(holder.ask("check"), "true", "{step} s");
    }
    clock.set(-3600);
    brief.signal(Signal::SIGSTOP);
    acquire(&rig.locks(), "brief", LONG).release_blocking().unwrap();
    brief.signal(Signal::SIGCONT);
    assert_eq!(brief.ask("check"), "false", "a step back does not revive an expired hold");
}

#[test]
fn f09_server_clock_steps_forward_past_the_lease() {
    let (rig, ttl) = (Rig::with_clock(), Duration::from_secs(60));
    let locks = rig.locks();
    let guard = acquire(&locks, "a", ttl);
    sleep(rng().millis(0..200));
    rig.server.set_clock(3600);
    // Any reply of the server shows the step to the client of the holder.
    let next = acquire(&rig.locks(), "a", ttl);
    acquire(&locks, "b", ttl).release_blocking().unwrap();
    until("the loss is reported", || !guard.check());
    assert!(guard.release_blocking().unwrap_err().is_lost());
    assert!(next.check() && next.token().number > 0);
    let notes = pollster::block_on(locks.guarantee()).unwrap().to_string();
    assert!(notes.contains("set forward ends them early"), "the guarantee names the reason: {notes}");
}

#[test]
fn f10_server_clock_steps_back_while_a_holder_dies() {
    let (rig, ttl) = (Rig::with_clock(), millis(800));
    let locks = rig.locks();
    let (holder, left) = loop {
        let holder = Holder::start(&rig.url(), "a", ttl);
        holder.signal(Signal::SIGKILL);
        sleep(rng().millis(0..100));
        rig.server.set_clock(-3600);
        // After a stall of the machine, the lease may have ended before the step: then try again.
        let view = pollster::block_on(locks.show("a")).unwrap();
        if let Some(held) = view.holders.first() {
            break (holder, held.remaining.unwrap());
        }
        rig.server.set_clock(0);
    };
    assert!(left > 10 * ttl, "the view shows the fault: {left:?} of a lease of {ttl:?}");
    let error = locks.mutex("a").blocking().acquire_within(2 * ttl).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    pollster::block_on(locks.break_hold("a", holder.token, true)).unwrap();
    let next = acquire(&locks, "a", ttl);
    assert!(next.token().number > holder.token);
}

#[test]
fn f75_clock_rates_differ() {
    let run = |per_mille| {
        let (_, skewed, accurate) = memory(per_mille);
        let request = skewed.mutex("a").ttl(Duration::from_secs(2)).renew(false);
        let guard = request.blocking().acquire().unwrap();
        let next = accurate.mutex("a").ttl(LONG).blocking().acquire_within(PATIENCE).unwrap();
        assert!(!guard.check() && next.check(), "I1 at {per_mille} per mille");
    };
    scope(|scope| {
        for per_mille in [990, 1010] {
            scope.spawn(move || run(per_mille));
        }
    });
}
