//! One acquisition by a user: the request, the use of the lock, and the release.

use std::{pin::pin, time::Duration};

use leasehold_core::{Error, ErrorKind, Guard, Mode, Owner, Request};
use leasehold_testkit::history::{AttemptId, RecordedMode, What};

use super::{CHECKS, User, active_hold::ActiveHold, nanos};
use crate::plan::{Lock, Op, Patience};

/// One acquisition of a user.
pub(super) struct Attempt<'a> {
    pub(super) user: &'a User,
    pub(super) op: &'a Op,
    pub(super) lock: &'a Lock,
    pub(super) id: AttemptId,
    /// The owner, if requests carry one.
    owner: Option<Owner>,
    /// The hold whose owner acquires again.
    within: Option<AttemptId>,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(user: &'a User, op: &'a Op) -> Self {
        let id = user.journal.new_attempt(user.actor.process);
        let owner = user.plan.named.then(|| Owner::new(&id.to_string()));
        Self { user, op, lock: &user.plan.locks[op.lock], id, owner, within: None }
    }

    pub(super) async fn run(&self) {
        let limit = match self.op.patience {
            Patience::Within(limit) => Some(nanos(self.user.host.in_world(limit))),
            // A try joins no queue: nothing wakes it.
            Patience::Try | Patience::Tries(_) => Some(0),
            Patience::Endless => None,
        };
        self.called(limit);
        match self.acquire().await {
            None => self.failed(What::Cancel),
            Some(Err(error)) => self.refused(&error),
            Some(Ok(guard)) => {
                let mut active_hold = ActiveHold::begin(self, guard);
                self.use_it(&mut active_hold).await;
                active_hold.end().await;
            }
        }
    }

    pub(super) fn mode(&self) -> Mode {
        self.lock.mode(self.op.want)
    }

    /// `None`: the acquisition was given up.
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
        let mut request = match self.mode() {
            Mode::Exclusive => user.locks.mutex(lock.name),
            Mode::Shared => user.locks.rw(lock.name).read(),
            Mode::Permits { count, limit } => user.locks.semaphore(lock.name, limit).permits(count),
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

    fn called(&self, limit: Option<u64>) {
        self.user.truths.begun(self.id);
        let retries = matches!(self.op.patience, Patience::Tries(2..)) && self.within.is_none();
        self.record(What::AcqInv { mode: RecordedMode(self.mode()), limit, within: self.within, retries });
        self.user.journal.figures(|tally| tally.calls += 1);
    }

    fn refused(&self, error: &Error) {
        let err = format!("{:?}", error.kind());
        // A claim that waited may still be leaving the queue.
        let certain = error.kind() == ErrorKind::Taken && self.op.patience == Patience::Try;
        self.failed(if certain { What::AcqTaken } else { What::AcqUnknown { err } });
    }

    fn failed(&self, what: What) {
        self.user.truths.over(self.id);
        self.record(what);
    }

    async fn use_it(&self, active_hold: &mut ActiveHold<'_>) {
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
                // Its answer shows in the deadline.
                drop(active_hold.guard.confirm().await);
            }
            if check == 2 && op.again {
                self.enter_again(active_hold).await;
            }
        }
    }

    /// Checks the hold at the end, and whenever its state may have changed.
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

    /// The same owner acquires the same lock again, and releases it first.
    async fn enter_again(&self, active_hold: &ActiveHold<'_>) {
        let is_one = !matches!(self.mode(), Mode::Permits { .. });
        if !is_one || self.owner.is_none() || !active_hold.guard.check() {
            return;
        }
        let id = self.user.journal.new_attempt(self.user.actor.process);
        let again = Attempt { id, owner: self.owner.clone(), within: Some(self.id), ..*self };
        again.called(Some(0));
        match again.request().try_acquire().await {
            Ok(guard) if guard.token() == active_hold.guard.token() => {
                self.user.journal.figures(|tally| tally.again += 1);
                let inner = ActiveHold::begin(&again, guard);
                self.user.host.nap(self.op.hold / CHECKS).await;
                inner.end().await;
            }
            // The hold was lost in between, and this is another hold.
            Ok(_) => again.record(What::AcqUnknown { err: "another hold".into() }),
            Err(error) => again.refused(&error),
        }
    }

    pub(super) fn record(&self, what: What) {
        self.record_at(self.user.now(), what);
    }

    pub(super) fn record_at(&self, at: leasehold_core::Instant, what: What) {
        self.user.journal.record(at, self.user.actor, self.lock.name, self.id, what);
    }
}
