//! One acquisition by a user: the request, the use of the lock, and the release.

use std::{pin::pin, time::Duration};

use leasehold_core::{Error, ErrorKind, Guard, KnownMode, Mode, Owner, Request};
use leasehold_testkit::history::{AttemptId, RecordedMode, What};

use super::{CHECKS, User, active_hold::ActiveHold, nanos};
use crate::plan::{Lock, Op, Patience};

/// One acquisition of a user.
pub(super) struct Attempt<'a> {
    pub(super) user: &'a User,
    pub(super) op: &'a Op,
    pub(super) lock: &'a Lock,
    pub(super) id: AttemptId,
    /// The owner, if the plan gives requests an owner.
    owner: Option<Owner>,
    /// For a re-entrant acquisition: the attempt of the same owner that holds the lock.
    within: Option<AttemptId>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(user: &'a User, op: &'a Op) -> Self {
        let id = user.journal.new_attempt(user.actor.process);
        let owner = user.plan.named.then(|| Owner::new(&id.to_string()));
        Self { user, op, lock: &user.plan.locks[op.lock], id, owner, within: None }
    }

    /// Acquires, uses the lock, and releases it.
    pub(super) async fn run(&self) {
        let limit = match self.op.patience {
            Patience::Within(limit) => Some(nanos(self.user.host.in_world(limit))),
            // A try joins no queue, so nothing wakes it.
            Patience::Try | Patience::Tries(_) => Some(0),
            Patience::Endless => None,
        };
        self.record_call(limit);
        match self.acquire().await {
            None => self.record_failure(What::Cancel),
            Some(Err(error)) => self.record_error(&error),
            Some(Ok(guard)) => {
                let mut active_hold = ActiveHold::begin(self, guard);
                self.use_lock(&mut active_hold).await;
                active_hold.end().await;
            }
        }
    }

    /// The mode of the acquisition.
    pub(super) fn mode(&self) -> Mode {
        self.lock.mode(self.op.want)
    }

    /// Acquires the lock. `None`: the acquisition was dropped.
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

    /// The request, with the options of the plan.
    fn request(&self) -> Request {
        let Self { user, op, lock, .. } = self;
        let mut request = match self.mode().known() {
            KnownMode::Exclusive => user.locks.mutex(lock.name),
            KnownMode::Shared => user.locks.rw(lock.name).read(),
            KnownMode::Permits { count, limit } => user.locks.semaphore(lock.name, limit).permits(count),
        };
        request = request.ttl(op.ttl).renew(op.renew);
        if let Some(max_hold) = op.max_hold {
            request = request.max_hold(max_hold);
        }
        if let Some(owner) = &self.owner {
            request = request.owner(owner.clone());
        }
        request
    }

    /// Records the call of an acquire.
    fn record_call(&self, limit: Option<u64>) {
        self.user.truths.begun(self.id);
        let retries = matches!(self.op.patience, Patience::Tries(2..)) && self.within.is_none();
        self.record(What::AcqInv { mode: RecordedMode(self.mode()), limit, within: self.within, retries });
        self.user.journal.figures(|tally| tally.calls += 1);
    }

    /// Records an acquire that returned an error.
    fn record_error(&self, error: &Error) {
        let err = format!("{:?}", error.kind());
        // If the claim waited, it may still be in the queue. So only a single try is certain to leave nothing.
        let certain = error.kind() == ErrorKind::Taken && self.op.patience == Patience::Try;
        self.record_failure(if certain { What::AcqTaken } else { What::AcqUnknown { err } });
    }

    /// Records the end of an attempt that got no guard.
    fn record_failure(&self, what: What) {
        self.user.truths.over(self.id);
        self.record(what);
    }

    /// Uses the lock: checks the hold, and writes to the resources.
    async fn use_lock(&self, active_hold: &mut ActiveHold<'_>) {
        let op = self.op;
        for check in 0..CHECKS {
            self.use_for(active_hold, op.hold / CHECKS).await;
            if active_hold.is_reported() && !op.stubborn {
                return;
            }
            if check < op.writes && self.mode() == Mode::Exclusive {
                self.write_fenced(active_hold, check).await;
                self.write_unfenced(active_hold, check).await;
            }
            if check == 1 && op.confirm {
                // The answer shows in the deadline that the next check reads.
                drop(active_hold.guard.confirm().await);
            }
            if check == 2 && op.again {
                self.enter_again(active_hold).await;
            }
        }
    }

    /// Waits for a time. Checks the hold at the end, and whenever its state may have changed.
    async fn use_for(&self, active_hold: &mut ActiveHold<'_>, time: Duration) {
        let mut end = pin!(self.user.host.nap(time));
        loop {
            let over = tokio::select! {
                biased;
                () = &mut end => true,
                () = self.user.renewed.notified() => false,
            };
            active_hold.check();
            if over {
                return;
            }
        }
    }

    /// Acquires the same lock again with the same owner. Releases the inner hold before the outer one.
    async fn enter_again(&self, active_hold: &ActiveHold<'_>) {
        let is_reentrant = !matches!(self.mode(), Mode::Permits { .. });
        if !is_reentrant || self.owner.is_none() || !active_hold.guard.check() {
            return;
        }
        let id = self.user.journal.new_attempt(self.user.actor.process);
        let again = Attempt { id, owner: self.owner.clone(), within: Some(self.id), ..*self };
        again.record_call(Some(0));
        match again.request().try_acquire().await {
            Ok(guard) if guard.token() == active_hold.guard.token() => {
                self.user.journal.figures(|tally| tally.again += 1);
                let inner = ActiveHold::begin(&again, guard);
                self.user.host.nap(self.op.hold / CHECKS).await;
                inner.end().await;
            }
            // The outer hold was lost meanwhile, so this is another hold.
            Ok(_) => again.record(What::AcqUnknown { err: "another hold".into() }),
            Err(error) => again.record_error(&error),
        }
    }

    /// Records an event of this attempt, now.
    pub(super) fn record(&self, what: What) {
        self.record_at(self.user.now(), what);
    }

    /// Records an event of this attempt at this time.
    pub(super) fn record_at(&self, at: leasehold_core::Instant, what: What) {
        self.user.journal.record(at, self.user.actor, self.lock.name, self.id, what);
    }
}
