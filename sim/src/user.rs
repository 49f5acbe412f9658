//! What user code does with locks, and writes down about it. The library under test records nothing.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Error, ErrorKind, Guard, Instant, Locks, Loss, Mode, Owner, Request};
use leasehold_testkit::history::{AttemptId, HowHeld, What};
use tokio::sync::oneshot;

use crate::{
    client::Host,
    journal::{Journal, Who},
    plan::{End, Lock, Op, Patience, Plan},
    resource::{Overtaken, Resources},
    truth::Truths,
};

/// The least time for which a long lease is granted: when it is pushed.
const CLAIM_TIME: Duration = Duration::from_secs(2);
/// A hold is looked at so often while it is used.
const LOOKS: u32 = 4;

/// One task of a client.
pub(crate) struct User {
    /// The run.
    pub(crate) plan: Arc<Plan>,
    /// Who it is.
    pub(crate) who: Who,
    /// Its process.
    pub(crate) host: Host,
    /// What it locks with.
    pub(crate) locks: Locks,
    /// Where it writes down what happens.
    pub(crate) journal: Arc<Journal>,
    /// What it writes to.
    pub(crate) resources: Arc<Resources>,
    /// Where it says which claim is whose.
    pub(crate) truths: Arc<Truths>,
}

/// One acquisition.
struct Attempt<'a> {
    user: &'a User,
    op: &'a Op,
    lock: &'a Lock,
    id: AttemptId,
}

/// A hold that is used.
struct Belief<'a> {
    attempt: &'a Attempt<'a>,
    guard: Guard,
    /// The latest deadline that it told.
    deadline: Instant,
    /// The loss was told.
    told: Arc<AtomicBool>,
    /// Dropped with it: nobody waits for its loss any more.
    _watch: oneshot::Sender<()>,
}

impl User {
    /// Does one thing after the other.
    pub(crate) async fn work(self, ops: Vec<Op>) {
        for op in &ops {
            self.host.nap(op.pause).await;
            let (lock, id) = (&self.plan.locks[op.lock], self.journal.new_attempt(self.who.process));
            Attempt { user: &self, op, lock, id }.run().await;
        }
    }

    fn now(&self) -> Instant {
        self.journal.clockwork().now()
    }
}

impl Attempt<'_> {
    async fn run(&self) {
        let Self { user, op, lock, .. } = self;
        let limit = match op.patience {
            Patience::Within(limit) => Some(nanos(user.host.in_world(limit))),
            // Who tries stands in no line: nothing wakes it.
            Patience::Try | Patience::Tries(_) => Some(0),
            Patience::Endless => None,
        };
        self.record(What::AcqInv { mode: HowHeld(lock.mode(op.want)), limit, within: None });
        user.journal.figures(|tally| tally.calls += 1);
        match self.acquire().await {
            None => self.record(What::Cancel),
            Some(Err(error)) => self.refused(&error),
            Some(Ok(guard)) => {
                let mut belief = self.believe(guard);
                self.use_it(&mut belief).await;
                belief.end().await;
            }
        }
    }

    /// `None` when it was given up.
    async fn acquire(&self) -> Option<Result<Guard, Error>> {
        let request = self.request();
        let acquire = pin!(match self.op.patience {
            Patience::Endless => request.acquire(),
            Patience::Within(limit) => request.acquire_within(limit),
            Patience::Try => request.try_acquire(),
            Patience::Tries(tries) => request.attempts(tries).acquire(),
        });
        let Some(after) = self.op.cancel else { return Some(acquire.await) };
        tokio::select! {
            biased;
            granted = acquire => Some(granted),
            () = self.user.host.nap(after) => None,
        }
    }

    fn request(&self) -> Request {
        let Self { user, op, lock, .. } = self;
        let mut request = match lock.mode(op.want) {
            Mode::Exclusive => user.locks.mutex(lock.name),
            Mode::Shared => user.locks.rw(lock.name).read(),
            Mode::Permits { count, limit } => user.locks.semaphore(lock.name, limit).permits(count),
        };
        request = request.ttl(op.ttl).renew(op.renew);
        if let Some(max_hold) = op.max_hold {
            request = request.max_hold(max_hold);
        }
        if user.plan.named {
            request = request.owner(Owner::new(&self.id.to_string()));
        }
        request
    }

    fn refused(&self, error: &Error) {
        let err = format!("{:?}", error.kind());
        // Whoever waited may still be on the way out of the line.
        let certain = error.kind() == ErrorKind::Taken && self.op.patience == Patience::Try;
        self.record(if certain { What::AcqFail { err } } else { What::AcqUnknown { err } });
    }

    fn believe(&self, guard: Guard) -> Belief<'_> {
        let Self { user, op, lock, id } = self;
        let told = Arc::new(AtomicBool::new(false));
        let _watch = self.watch(&guard, &told);
        let asked = user.truths.granted(*id, guard.id());
        let mut deadline = self.deadline(&guard);
        if deadline.as_nanos() == 0 {
            // Lapsed, or in doubt: believed for no time at all, but granted for nine tenths of this at least.
            deadline = user.now().min(asked.unwrap_or(deadline).after(op.ttl.min(CLAIM_TIME) * 9 / 10));
        }
        self.record(What::AcqOk {
            token: guard.token().number,
            lineage: guard.token().lineage.to_string(),
            deadline: Some(deadline.as_nanos()),
            ttl: Some(nanos(op.ttl)),
            asked: asked.map(Instant::as_nanos),
            watched: true,
            fixed: self.is_fixed(),
        });
        user.journal.clockwork().note(*id, || format!("{} was granted to {id:x}", lock.name));
        Belief { attempt: self, guard, deadline, told, _watch }
    }

    /// The first deadline is the last. Not of what is confirmed, nor of a pushed grant, which is made as long as was asked for
    /// once; not where a stop may have come between reading the clock and reading the deadline, nor in doubt.
    fn is_fixed(&self) -> bool {
        let (op, plan) = (self.op, &self.user.plan);
        let is_last = !op.renew && !op.confirm && op.patience == Patience::Try;
        is_last && plan.stops_in_steps().is_zero() && plan.promise().no_doubt
    }

    /// Writes down, in a task of its own, when the loss is told.
    fn watch(&self, guard: &Guard, told: &Arc<AtomicBool>) -> oneshot::Sender<()> {
        let (watch, over) = oneshot::channel();
        let (lost, told) = (guard.lost(), Arc::clone(told));
        let (journal, who, id) = (Arc::clone(&self.user.journal), self.user.who, self.id);
        let name = self.lock.name;
        self.user.host.run(async move {
            tokio::select! {
                biased;
                _ = over => {}
                loss = lost => {
                    told.store(true, Ordering::Relaxed);
                    let now = journal.clockwork().now();
                    journal.record(now, who, name, id, What::Lost { err: format!("{loss:?}") });
                }
            }
        });
        watch
    }

    async fn use_it(&self, belief: &mut Belief<'_>) {
        let Self { user, op, lock, .. } = self;
        for look in 0..LOOKS {
            user.host.nap(op.hold / LOOKS).await;
            belief.look();
            if belief.told.load(Ordering::Relaxed) && !op.stubborn {
                return;
            }
            if look < op.writes && lock.mode(op.want) == Mode::Exclusive {
                self.write_fenced(belief, look).await;
                self.write_unfenced(belief, look).await;
            }
            if look == 1 && op.confirm {
                // What it answers shows in the deadline.
                drop(belief.guard.confirm().await);
            }
        }
    }

    /// Adds an element: to what it read after it had shown its token.
    async fn write_fenced(&self, belief: &Belief<'_>, number: u32) {
        let (token, name) = (belief.guard.token().number, self.lock.name);
        if !self.dares(belief) {
            return;
        }
        self.record(What::WriteInv { token });
        let (visit, element) = (&self.user.resources, self.element(number));
        let process = self.user.who.process;
        let written = match visit.visit(process, name, move |lists| lists.seal(token)).await {
            Err(overtaken) => Err(overtaken),
            Ok(mut elements) => {
                elements.push(element);
                visit.visit(process, name, move |lists| lists.write_fenced(token, elements)).await
            }
        };
        match written {
            Ok(()) => {
                visit.acknowledge(name, |lists| &mut lists.fenced, element);
                self.record(What::WriteOk { token });
            }
            Err(Overtaken) => self.record(What::WriteFenced { token }),
        }
    }

    /// The same where nobody looks at tokens.
    async fn write_unfenced(&self, belief: &Belief<'_>, number: u32) {
        let (name, process) = (self.lock.name, self.user.who.process);
        let (visit, element) = (&self.user.resources, self.element(number));
        if !self.dares(belief) {
            return;
        }
        let mut elements = visit.visit(process, name, |lists| lists.unfenced.read()).await;
        elements.push(element);
        if self.dares(belief) {
            visit.visit(process, name, move |lists| lists.unfenced.write(elements)).await;
            visit.acknowledge(name, |lists| &mut lists.unfenced, element);
        }
    }

    /// Careful users check before they write.
    fn dares(&self, belief: &Belief<'_>) -> bool {
        self.op.stubborn || belief.guard.check()
    }

    fn element(&self, number: u32) -> u64 {
        self.id * u64::from(LOOKS) + u64::from(number)
    }

    /// Until when the guard may be believed, by the world's clock; never too late, for that is read first. Long ago if it may
    /// not be believed now.
    fn deadline(&self, guard: &Guard) -> Instant {
        let before = self.user.now();
        match guard.remaining() {
            None => Instant::NEVER,
            Some(Duration::ZERO) => Instant::from_nanos(0),
            Some(left) => before.after(self.user.host.in_world(left)),
        }
    }

    fn record(&self, what: What) {
        self.record_at(self.user.now(), what);
    }

    fn record_at(&self, at: Instant, what: What) {
        self.user.journal.record(at, self.user.who, self.lock.name, self.id, what);
    }
}

impl Belief<'_> {
    /// Checks the hold, and reads its deadline.
    fn look(&mut self) {
        let Self { attempt, guard, .. } = self;
        let before = attempt.user.now();
        let valid = guard.check();
        let deadline = attempt.deadline(guard);
        if deadline > self.deadline {
            self.deadline = deadline;
            let ttl = Some(nanos(attempt.op.ttl));
            attempt.record(What::RenewOk { deadline: deadline.as_nanos(), ttl });
        }
        // A hold in doubt is neither valid nor lost: it may come back.
        let is_lost = attempt.user.plan.promise().no_doubt || self.told.load(Ordering::Relaxed);
        // Between check and deadline it may have lapsed: then its deadline at the check is not known.
        let is_known = deadline > before;
        if valid && is_known || !valid && is_lost {
            let deadline = valid.then_some(self.deadline.as_nanos());
            attempt.record_at(before, What::Check { valid, deadline });
        }
    }

    async fn end(mut self) {
        self.look();
        let Self { attempt, guard, told, .. } = self;
        let keep = match attempt.op.end {
            End::Keep(at_least) => Some(nanos(at_least)),
            End::Release | End::Drop => None,
        };
        attempt.user.truths.released(attempt.id);
        attempt.record(What::RelInv { keep });
        let was_lost = told.load(Ordering::Relaxed) || !guard.check();
        let released = match attempt.op.end {
            End::Drop => return drop(guard),
            End::Release => guard.release().await,
            End::Keep(at_least) => guard.release_at_least(at_least).await,
        };
        attempt.record(match released {
            Ok(()) => What::RelOk,
            Err(error) if error.kind() == ErrorKind::Lost(Loss::Gone) && !was_lost => What::RelNotheld,
            // A loss that the guard knew of is answered at once, and says nothing of the server.
            Err(error) => What::RelUnknown { err: format!("{:?}", error.kind()) },
        });
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}
