//! The kit: a store of locks, its processes, its time and its faults.

use std::{
    collections::BTreeMap,
    fmt,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold_core::{
    Answer, BoxFuture, Claim, ClaimId, Clock, Engine, Entropy, Env, How, Inspect, Instant, Keeper, Lineage,
    Loss, Mode, Name, Notification, Previous, Release, Runtime, Token, View,
    memory::{MemoryEngine, MemoryStore},
};

use super::{
    Fault,
    clock::KitClock,
    entropy::Seeded,
    history::{History, ProcessHistory},
    runtime::KitRuntime,
    wire::Wire,
};
use crate::{Connect, Locks, Verb, open::EngineHandle};

/// How long after the last release the store may still have something of it, if replies were lost.
const CLEAN_UP: Duration = Duration::from_secs(1);
/// The pause between two looks at the store.
const CLEAN_UP_PAUSE: Duration = Duration::from_millis(10);

/// A store of locks for one test, with the processes that use it. Cheap to clone; all clones are one kit.
#[derive(Clone)]
pub struct Kit(Arc<Inner>);

struct Inner {
    seed: u64,
    clock: Arc<KitClock>,
    runtime: Arc<KitRuntime>,
    store: Arc<MemoryStore>,
    history: Arc<History>,
    /// A client of the store that is never cut.
    operator: MemoryEngine,
    processes: Mutex<BTreeMap<String, (Locks, Arc<Wire>)>>,
    /// How many processes were ever made, the killed ones included: no two of them draw the same ids.
    process_count: AtomicU64,
    /// The ids of foreign claims.
    foreign_ids: Seeded,
}

impl Kit {
    /// A kit with an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::seeded(0)
    }

    /// A kit with an empty store. The seed decides all that is random in its locks: ids, and the pauses between two
    /// questions of a waiting request.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let clock = Arc::new(KitClock::default());
        let (hash_key, shared_clock) = (u128::from(seed).to_be_bytes(), Arc::clone(&clock) as Arc<dyn Clock>);
        let store = MemoryStore::with_hash_key(Lineage::new(u128::from(seed) + 1), shared_clock, hash_key);
        Self(Arc::new(Inner {
            seed,
            runtime: KitRuntime::new(Arc::clone(&clock)),
            operator: MemoryEngine::new(Arc::clone(&store)),
            history: Arc::default(),
            processes: Mutex::default(),
            process_count: AtomicU64::new(0),
            foreign_ids: Seeded::of_process(seed, 0),
            clock,
            store,
        }))
    }

    /// The locks of the process `name`, which begins to exist at the first call. In a tokio runtime, the locks run in
    /// this runtime and on its time.
    #[must_use]
    pub fn process(&self, name: &str) -> Locks {
        self.process_with(name, Connect::default())
    }

    /// As [`process`](Self::process), with options for a process that does not exist yet. The keeper of the options is
    /// ignored.
    ///
    /// # Panics
    /// If an option is set that only an engine with a URL has, such as a password.
    #[must_use]
    pub fn process_with(&self, name: &str, options: Connect) -> Locks {
        let option = options.option_of_url();
        assert!(option.is_none(), "the store of a kit has no {}", option.unwrap_or_default());
        let mut processes = self.processes();
        if let Some((locks, _)) = processes.get(name) {
            return locks.clone();
        }
        let inner = &self.0;
        let (keeper, sleeper) = match inner.clock.follow_current_runtime() {
            Some(handle) => (Keeper::on(handle), sleep_on_tokio as fn(&Arc<KitRuntime>, Duration) -> _),
            None => {
                let runtime = Arc::clone(&inner.runtime);
                (Keeper::with(runtime), sleep_on_kit as fn(&Arc<KitRuntime>, Duration) -> _)
            }
        };
        let runtime = Arc::clone(&inner.runtime);
        let engine = MemoryEngine::new(Arc::clone(&inner.store));
        let sleeper = Box::new(move |duration| sleeper(&runtime, duration));
        let wire = Arc::new(Wire::new(engine, Arc::clone(&inner.clock), sleeper));
        let number = inner.process_count.fetch_add(1, Ordering::Relaxed) + 1;
        let entropy = Arc::new(Seeded::of_process(inner.seed, number));
        let history = ProcessHistory {
            process: name.to_owned(),
            clock: Arc::clone(&inner.clock),
            history: Arc::clone(&inner.history),
        };
        // On a thread of their own, loss callbacks would run at another moment in each run of the test.
        let keeper = keeper.calling_back_in_tasks();
        let builder = options.owner_unless_set(name).builder(Arc::clone(&wire) as _);
        let env = Env { clock: Arc::clone(&inner.clock) as _, entropy };
        let core = builder.env(env).keeper(keeper).observe(Arc::new(history)).build();
        let locks = Locks::new(core, EngineHandle::Nothing, None);
        processes.insert(name.to_owned(), (locks.clone(), wire));
        locks
    }

    /// How much time has passed since the kit was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.clock.elapsed()
    }

    /// Lets `time` pass: holds are renewed, leases end, waits end. In a tokio runtime this sleeps on the time of the
    /// runtime, which has to be paused if the test is not to take so long. Cancel safe.
    pub async fn advance(&self, time: Duration) {
        if self.0.clock.follow_current_runtime().is_some() {
            tokio::time::sleep(time).await;
        } else {
            self.0.runtime.sleep(time).await;
        }
    }

    /// [`advance`](Self::advance) without a runtime.
    ///
    /// # Panics
    /// In a tokio runtime.
    pub fn advance_blocking(&self, time: Duration) {
        self.block_on(self.advance(time));
    }

    /// Runs `future` without a runtime: its locks, the time and the background work of all processes run on this
    /// thread. If all of them wait, time passes.
    ///
    /// # Panics
    /// In a tokio runtime; or if nothing that the kit knows will ever wake `future`.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        assert!(
            tokio::runtime::Handle::try_current().is_err(),
            "this is a tokio runtime: await the async method instead"
        );
        let mut value = None;
        self.0.runtime.block_on(pin!(async { value = Some(future.await) }));
        value.expect("block_on returns when the future is done")
    }

    /// Stops all processes for `time`, as SIGSTOP or a suspended machine would: the clock continues, nothing is renewed
    /// meanwhile, and no timer fires before the end.
    pub fn suspend(&self, time: Duration) {
        self.0.clock.jump(time);
    }

    /// Plans `fault` for the next request of the process with this verb. If several faults are planned, the requests
    /// meet them one after the other.
    ///
    /// # Panics
    /// If there is no such process, as all methods that name a process do.
    pub fn fail_next(&self, process: &str, verb: Verb, fault: Fault) {
        self.wire(process).plan(verb, fault);
    }

    /// Cuts the process off from the store, until [`mend`](Self::mend).
    pub fn cut(&self, process: &str) {
        self.wire(process).cut(Instant::NEVER);
    }

    /// Cuts the process off from the store for `time`.
    pub fn cut_for(&self, process: &str, time: Duration) {
        self.wire(process).cut(self.0.clock.now().after(time));
    }

    /// Ends a cut. The process learns that it may have missed something, as after a reconnect.
    pub fn mend(&self, process: &str) {
        self.wire(process).mend();
    }

    /// Kills the process: nothing of it reaches the store any more, and [`process`](Self::process) makes a new one. Its
    /// holds stay until their leases end.
    pub fn kill(&self, process: &str) {
        self.cut(process);
        self.processes().remove(process);
    }

    /// Takes `name` away from its holders: the store has forgotten them, and tells them so. The next holder is told
    /// that the hold before it lapsed. Returns the number of holders.
    ///
    /// # Panics
    /// If the name is invalid, as all methods that name a lock do.
    pub fn lose(&self, name: &str, loss: Loss) -> usize {
        let (name, view) = self.view(name);
        for (id, token) in holders(&view) {
            let (mode, min_hold) = (view.mode.unwrap_or(Mode::Exclusive), None);
            let release = Release {
                id,
                name: name.clone(),
                mode,
                token: Some(token),
                ended: Previous::Lapsed,
                min_hold,
            };
            at_once(self.0.operator.release(&[release]));
            for (_, wire) in self.processes().values() {
                wire.push(Notification::Lost { name: name.clone(), id, loss });
            }
        }
        view.holders.len()
    }

    /// Breaks `name`, as an operator does with `leasehold break`. Returns the number of holders.
    ///
    /// # Panics
    /// If the name is invalid.
    pub fn break_hold(&self, name: &str) -> usize {
        let (name, view) = self.view(name);
        for (_, token) in holders(&view) {
            at_once(self.0.operator.break_hold(&name, token.number, true)).expect("the store answers");
        }
        view.holders.len()
    }

    /// Another program takes `name` for `ttl`, or until the returned value is dropped. `None` if the name is taken.
    ///
    /// # Panics
    /// If the name is invalid.
    #[must_use]
    pub fn foreign(&self, name: &str, ttl: Duration) -> Option<Foreign> {
        let mut id = [0; 16];
        self.0.foreign_ids.fill(&mut id);
        let claim = Claim {
            id: ClaimId(id),
            name: Name::new(name).expect("a valid name"),
            mode: Mode::Exclusive,
            ttl,
            claim_time: ttl,
            may_queue: false,
            tokens: 1,
            owner: "foreign".into(),
            stops_on_term: false,
        };
        match at_once(self.0.operator.claim(&claim, How::Create)) {
            Ok(Answer::Held(grant)) => Some(Foreign { kit: self.clone(), claim, token: grant.token }),
            _ => None,
        }
    }

    /// The events of all processes since the kit was made, or since the last call, as lines: time, process, name, mode,
    /// token, event. For [`assert_eq!`], and to print what happened.
    #[must_use]
    pub fn history(&self) -> Vec<String> {
        self.0.history.take()
    }

    /// Waits, for at most a second, until nothing is held and nothing waits. Memos may stay: the stored results of
    /// [`Locks::once`], and the last value of an election.
    ///
    /// # Panics
    /// If something is left after that time, or a planned fault did not happen: then the test did not test it.
    pub async fn assert_clean(&self) {
        let until = self.0.clock.now().after(CLEAN_UP);
        while !self.leftovers().is_empty() && self.0.clock.now() < until {
            self.advance(CLEAN_UP_PAUSE).await;
        }
        let leftovers = self.leftovers();
        assert!(leftovers.is_empty(), "left in the store: {leftovers:?}");
        for (process, (_, wire)) in &*self.processes() {
            let faults = wire.pending_faults();
            assert!(faults.is_empty(), "faults of {process:?} that did not happen: {faults:?}");
        }
    }

    /// [`assert_clean`](Self::assert_clean) without a runtime.
    ///
    /// # Panics
    /// As [`assert_clean`](Self::assert_clean), and in a tokio runtime.
    pub fn assert_clean_blocking(&self) {
        self.block_on(self.assert_clean());
    }

    /// The holders and waiters in the store.
    fn leftovers(&self) -> Vec<String> {
        // Of a claim that ended, the store remembers the id for a while. Memos outlive holds on purpose.
        let may_stay = |line: &String| line.ends_with("dead claims") || line.ends_with(": a memo");
        self.0.store.leftovers().into_iter().filter(|line| !may_stay(line)).collect()
    }

    fn view(&self, name: &str) -> (Name, View) {
        let name = Name::new(name).expect("a valid name");
        let view = at_once(self.0.operator.show(&name)).expect("the store answers");
        (name, view)
    }

    fn wire(&self, process: &str) -> Arc<Wire> {
        let wire = self.processes().get(process).map(|(_, wire)| Arc::clone(wire));
        wire.unwrap_or_else(|| panic!("the kit has no process {process:?}"))
    }

    fn processes(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, (Locks, Arc<Wire>)>> {
        self.0.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Kit {
    fn default() -> Self {
        Self::new()
    }
}

/// A hold of a program other than leasehold. Dropping it frees the name.
#[must_use = "a foreign hold that is dropped at once is no hold"]
pub struct Foreign {
    kit: Kit,
    claim: Claim,
    token: Token,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let Claim { id, name, mode, .. } = self.claim.clone();
        let (token, ended) = (Some(self.token), Previous::Clean);
        at_once(self.kit.0.operator.release(&[Release { id, name, mode, token, ended, min_hold: None }]));
    }
}

/// The ids and tokens of the holders.
fn holders(view: &View) -> Vec<(ClaimId, Token)> {
    let parts = view.holders.iter().filter_map(|holder| {
        let token = Token { lineage: view.lineage?, number: holder.token? };
        Some((ClaimId::read(&holder.id)?, token))
    });
    parts.collect()
}

/// The answer of the store, which is inside this process.
fn at_once<T>(mut answer: BoxFuture<'_, T>) -> T {
    match Pin::as_mut(&mut answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the memory engine answers at its first poll"),
    }
}

fn sleep_on_tokio(_: &Arc<KitRuntime>, duration: Duration) -> BoxFuture<'static, ()> {
    Box::pin(tokio::time::sleep(duration))
}

fn sleep_on_kit(runtime: &Arc<KitRuntime>, duration: Duration) -> BoxFuture<'static, ()> {
    runtime.sleep(duration)
}

impl fmt::Debug for Kit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kit")
            .field("seed", &self.0.seed)
            .field("elapsed", &self.elapsed())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Foreign({:?})", self.claim.name)
    }
}
