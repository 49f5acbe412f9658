//! The state that all parts of one `Locks` share: the engine, the environment, the local state, and the work for the
//! keeper.

use std::{
    ops::Deref,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    Claim, ClaimId, Engine, Error, ErrorKind, Instant, Name, Profile,
    contract::process,
    driver::followers::Followers,
    driver::keeper::{
        Env, Keeper, KeeperJob, KeeperWake, LossCallbacks, Pending, TimerAction, TimerKey, Timers,
    },
    driver::local::{NameTable, NewestTokens, Terms, WaitLimit},
    driver::observer::Observer,
    driver::outage::{Outage, WhenUnreachable},
    driver::tasks::{Panicked, catch_panic_unless},
};

/// How long a pushed grant lasts if its claim sends no request (R15). If the ttl is shorter, the grant lasts for the
/// ttl.
const CLAIM_TIME: Duration = Duration::from_secs(2);

/// The tokens of a grant that only one task waits for: enough for a few later requests. An engine with one counter for
/// all names restarts that counter from its clock after it has lost its state. So the counter must never get ahead of
/// the clock, and grants must not carry many tokens.
const LONE_TOKENS: u32 = 8;

/// The state of one `Locks`.
pub(crate) struct Shared {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) profile: Profile,
    pub(crate) env: Env,
    pub(crate) observer: Observer,
    /// The local state of each name.
    pub(crate) table: NameTable,
    pub(crate) newest_tokens: NewestTokens,
    /// The timers that the keeper fires.
    pub(crate) timers: Timers,
    /// Counts the work that has to be finished before the keeper or the process may end.
    pub(crate) pending: Pending,
    /// Wakes the main loop of the keeper.
    pub(crate) wake: Notify,
    /// How long to try an engine that was never reached.
    pub(crate) connect_timeout: Duration,
    /// The engine answered at least once.
    pub(crate) reached: AtomicBool,
    /// The engine had been reached, but then did not answer a request that a caller waited for, or did not carry it
    /// out. Since then it has carried out no request.
    pub(crate) unresponsive: AtomicBool,
    /// What is known of an outage of the engine.
    pub(crate) outage: Outage,
    /// What a request does during an outage.
    pub(crate) when_unreachable: WhenUnreachable,
    /// The limit on waiting requests.
    pub(crate) wait_limit: WaitLimit,
    /// When the holds were last put in doubt, in nanoseconds: grants whose requests were sent earlier are in doubt too.
    pub(crate) last_doubt: AtomicU64,
    pub(crate) keeper: Keeper,
    /// The followers of memos.
    pub(crate) followers: Followers,
    /// The number of the last write of a memo.
    pub(crate) memo_numbers: AtomicU64,
    /// The callbacks of users for lost holds.
    pub(crate) loss_callbacks: LossCallbacks,
    /// The label of requests without an owner of their own.
    owner: Arc<str>,
    /// The jobs that the keeper has not started yet; `None` after the keeper has ended.
    jobs: Mutex<Option<Vec<KeeperJob>>>,
    /// Held while the keeper is started, so that it is started only one time.
    starting: Mutex<()>,
    /// The keeper was started.
    serving: AtomicBool,
    /// All handles are dropped: the keeper finishes pending work and ends.
    stopping: AtomicBool,
    /// Nothing new may be started.
    closed: AtomicBool,
    /// Notified when `stopping` or `closed` is set.
    over: Notify,
    /// The next ticket of a local queue.
    tickets: AtomicU64,
    /// How many requests in a row were made while nothing else was pending.
    pub(crate) lone_requests_in_a_row: AtomicU64,
    /// The process that made the `Locks`: see [`process::generation`].
    generation: u32,
}

/// The parts of a `Locks` that its builder sets.
pub(crate) struct Parts {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) env: Env,
    pub(crate) observer: Observer,
    pub(crate) owner: Arc<str>,
    pub(crate) keeper: Keeper,
    pub(crate) connect_timeout: Duration,
    pub(crate) when_unreachable: WhenUnreachable,
    pub(crate) max_waiting: Option<usize>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        Self {
            profile: parts.engine.profile().clone(),
            engine: parts.engine,
            table: NameTable::new(parts.env.random()),
            env: parts.env,
            observer: parts.observer,
            newest_tokens: NewestTokens::default(),
            timers: Timers::default(),
            pending: Pending::default(),
            wake: Notify::new(),
            connect_timeout: parts.connect_timeout,
            reached: AtomicBool::new(false),
            unresponsive: AtomicBool::new(false),
            outage: Outage::default(),
            when_unreachable: parts.when_unreachable,
            wait_limit: WaitLimit::new(parts.max_waiting),
            last_doubt: AtomicU64::new(0),
            keeper: parts.keeper,
            followers: Followers::default(),
            memo_numbers: AtomicU64::new(0),
            loss_callbacks: LossCallbacks::default(),
            owner: parts.owner,
            jobs: Mutex::new(Some(Vec::new())),
            starting: Mutex::default(),
            serving: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            over: Notify::new(),
            tickets: AtomicU64::new(0),
            lone_requests_in_a_row: AtomicU64::new(0),
            generation: process::generation(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.env.clock.now()
    }

    /// Whether this is the process that made the `Locks`: a forked child has a copy of the memory, but no keeper and no
    /// right to the holds.
    pub(crate) fn is_own_process(&self) -> bool {
        process::generation() == self.generation
    }

    /// An error if nothing new may be started.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if !self.is_own_process() {
            return Err(Error::new(
                ErrorKind::Forked,
                "this Locks belongs to the parent process: connect again after fork",
            ));
        }
        if self.is_closed() {
            return Err(Error::new(
                ErrorKind::Closed,
                "this Locks was closed, or its keeper's runtime is gone",
            ));
        }
        Ok(())
    }

    /// Starts the keeper if it does not run yet: before anything is claimed, so that no hold is ever without a keeper.
    pub(crate) fn ensure_served(self: &Arc<Self>) -> Result<(), Error> {
        if !self.is_served() && self.is_own_process() {
            let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
            if !self.is_served() {
                self.keeper.spawn(crate::driver::keeper::serve(Arc::clone(self)))?;
                self.serving.store(true, Ordering::Release);
            }
        }
        self.check_open()
    }

    /// Whether the keeper was started.
    pub(crate) fn is_served(&self) -> bool {
        self.serving.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn set_closed(&self) {
        self.closed.store(true, Ordering::Release);
        self.over.notify_waiters();
    }

    /// Waits until this `Locks` is closed or all its handles are dropped.
    pub(crate) async fn until_over(&self) {
        loop {
            let mut over = std::pin::pin!(self.over.notified());
            over.as_mut().enable();
            if self.is_stopping() || self.is_closed() {
                return;
            }
            over.await;
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// A new ticket for a local queue.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }

    /// A claim with a new id. With `others_wait`, more requests of this process want the name: then the claim asks for
    /// as many tokens as the engine gives, for hand-overs inside the process.
    pub(crate) fn new_claim(&self, name: &Name, terms: &Terms, may_queue: bool, others_wait: bool) -> Claim {
        let tokens = self.profile.tokens.max(1);
        let owner = terms.owner.as_ref().map_or_else(|| Arc::clone(&self.owner), |owner| owner.label_arc());
        Claim {
            id: ClaimId(self.env.random()),
            name: name.clone(),
            mode: terms.mode,
            ttl: terms.ttl,
            claim_time: CLAIM_TIME.min(terms.ttl),
            may_queue,
            tokens: if others_wait { tokens } else { tokens.min(LONE_TOKENS) },
            owner,
            stops_on_term: terms.stops_on_term,
        }
    }

    /// Adds a timer, and wakes the keeper if the timer is earlier than its next wake-up.
    pub(crate) fn add_timer(self: &Arc<Self>, at: Instant, action: TimerAction) -> TimerKey {
        let (key, wake) = self.timers.add(at, action);
        if matches!(wake, KeeperWake::Now) {
            self.wake.notify_one();
        }
        key
    }

    /// Queues a job for the keeper. The keeper starts queued releases first, then the other jobs in the order in which
    /// they were queued. Without a keeper the job is dropped, which notifies the tasks that wait for its outcome.
    pub(crate) fn queue_job(&self, job: KeeperJob) {
        if let Err(error) = self.keeper.begin() {
            tracing::error!(%error, "cannot start the keeper thread: the request was dropped");
            return drop(job);
        }
        let dropped_job = match &mut *self.lock_jobs() {
            Some(jobs) => {
                jobs.push(job);
                None
            }
            None => Some(job),
        };
        drop(dropped_job);
        self.wake.notify_one();
        self.run_keeper_soon();
    }

    /// Removes and returns all queued jobs.
    pub(crate) fn take_jobs(&self) -> Vec<KeeperJob> {
        self.lock_jobs().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Whether the keeper has started all queued jobs.
    pub(crate) fn has_no_jobs(&self) -> bool {
        self.lock_jobs().as_ref().is_some_and(Vec::is_empty)
    }

    /// Accepts no jobs from now on. Returns the jobs that were queued but not started.
    pub(crate) fn end_jobs(&self) -> Option<Vec<KeeperJob>> {
        self.lock_jobs().take()
    }

    /// Runs a task concurrently with the others. If the task panics, nobody knows what it left undone: all waits end
    /// and all holds are reported lost, as when the keeper panics.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        // A keeper that accepts no more tasks has already ended all waits and reported all holds lost.
        let _ = self.keeper.spawn(self.guarded(task));
    }

    /// Wraps a task so that its panic ends all waits and reports all holds lost.
    pub(crate) fn guarded(
        self: &Arc<Self>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(self);
        // An async function that takes a future reserves room for it twice: unboxed, a task of 2 kB took 8 kB.
        let task = Box::pin(task);
        async move {
            if let Err(panicked) = shared.catch_panic(task).await {
                shared.end_after_panic(&panicked);
            }
        }
    }

    /// The result of `work`, or its panic. On a [`Runtime`](crate::Runtime) other than tokio, the panic is passed on to
    /// the runtime, which reports it.
    pub(crate) async fn catch_panic<T>(&self, work: impl Future<Output = T>) -> Result<T, Panicked> {
        catch_panic_unless(self.keeper.reports_panics(), work).await
    }

    fn lock_jobs(&self) -> std::sync::MutexGuard<'_, Option<Vec<KeeperJob>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle on the state of a `Locks`, part of every `Locks`, request and guard of the user. When the last handle is
/// dropped, the keeper finishes pending work and ends.
pub(crate) struct SharedHandle(pub(crate) Arc<Shared>);

impl Deref for SharedHandle {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.0
    }
}

impl Drop for SharedHandle {
    fn drop(&mut self) {
        if self.is_own_process() {
            self.stopping.store(true, Ordering::Release);
            self.over.notify_waiters();
            self.wake.notify_one();
        }
    }
}
