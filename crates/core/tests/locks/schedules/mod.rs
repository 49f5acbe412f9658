//! Schedules: each tick of a timetable runs one time, in one of several processes. On paused time.

mod clocks;
mod missed;
mod runs;
mod ticks;

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    Clock, Due, Engine, Env, Every, Instant, Keeper, Locks, Schedule, Tick,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::decorators::Slow;
use tokio::{task::JoinHandle, time::sleep};

use crate::cleanup::new_store;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const TTL: Duration = Duration::from_secs(10);

/// The time of day at which the tests begin, in seconds since 1970: a full hour.
const BEGIN: u64 = 1_767_225_600;

/// The tick so many seconds after the begin.
const fn at(secs: u64) -> Due {
    Due::from_unix_secs(BEGIN + secs)
}

/// The clock of one process: the time of the test, and a time of day that may be wrong.
struct SkewedClock {
    clock: Arc<dyn Clock>,
    began: Instant,
    /// Milliseconds.
    skew: Arc<AtomicI64>,
}

impl Clock for SkewedClock {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn time_of_day(&self) -> Duration {
        let passed = Duration::from_secs(BEGIN) + self.clock.now().since(self.began);
        let skew = self.skew.load(Ordering::Relaxed);
        let by = Duration::from_millis(skew.unsigned_abs());
        if skew < 0 { passed.saturating_sub(by) } else { passed + by }
    }
}

/// A store, and what the processes of a test have run.
struct Scene {
    store: Arc<MemoryStore>,
    env: Env,
    began: Instant,
    runs: Arc<Mutex<Vec<(&'static str, Due)>>>,
}

/// One process of a scene.
struct Process {
    name: &'static str,
    locks: Locks,
    slow: Arc<Slow>,
    skew: Arc<AtomicI64>,
    runs: Arc<Mutex<Vec<(&'static str, Due)>>>,
}

impl Scene {
    fn new() -> Self {
        let (store, env) = new_store();
        let began = env.clock.now();
        Self { store, env, began, runs: Arc::default() }
    }

    /// A process whose time of day is wrong by so many seconds.
    fn process(&self, name: &'static str, skew_secs: i64) -> Process {
        let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&self.store)))));
        let skew = Arc::new(AtomicI64::new(skew_secs * 1000));
        let clock =
            SkewedClock { clock: Arc::clone(&self.env.clock), began: self.began, skew: Arc::clone(&skew) };
        let env = Env { clock: Arc::new(clock), ..self.env.clone() };
        let keeper = Keeper::on(tokio::runtime::Handle::current());
        let locks = Locks::builder(Arc::clone(&slow) as Arc<dyn Engine>).keeper(keeper).env(env).build();
        Process { name, locks, slow, skew, runs: Arc::clone(&self.runs) }
    }

    /// The ticks that have run, with the process of each, in the order in which they began.
    fn runs(&self) -> Vec<(&'static str, Due)> {
        self.runs.lock().unwrap().clone()
    }

    /// The ticks that have run.
    fn dues(&self) -> Vec<Due> {
        self.runs().into_iter().map(|(_, due)| due).collect()
    }
}

impl Process {
    /// A schedule with a tick each minute.
    fn minutely(&self) -> Schedule {
        self.locks.schedule("report", Every::new(MINUTE)).ttl(TTL)
    }

    /// Runs the schedule; the work of a tick takes this time.
    fn run(&self, schedule: &Schedule, takes: Duration) -> JoinHandle<Result<(), leasehold_core::Error>> {
        let (name, runs) = (self.name, Arc::clone(&self.runs));
        tokio::spawn(schedule.run(async move |tick: &Tick| {
            runs.lock().unwrap().push((name, tick.due()));
            sleep(takes).await;
            Ok::<_, Infallible>(())
        }))
    }

    fn set_skew(&self, secs: i64) {
        self.skew.store(secs * 1000, Ordering::Relaxed);
    }
}

/// The ticks of each minute from the first to the last of these.
fn minutes(first: u64, last: u64) -> Vec<Due> {
    (first..=last).map(|minute| at(minute * 60)).collect()
}
