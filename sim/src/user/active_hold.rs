//! A hold, from its grant to the call of its release, as its user sees it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{ErrorKind, Guard, Instant, Loss, Mode};
use leasehold_testkit::history::What;
use tokio::sync::oneshot;

use super::{attempt::Attempt, nanos};
use crate::{
    client::CLAIM_TIME,
    plan::{End, Patience},
};

/// The longest time from a grant until its user sees it, if the process is not paused.
const SLACK: Duration = Duration::from_millis(10);

/// A hold, from its grant to the call of its release.
pub(super) struct ActiveHold<'a> {
    attempt: &'a Attempt<'a>,
    pub(super) guard: Guard,
    /// The latest deadline that the guard has reported.
    deadline: Instant,
    /// Two times between which the grant happened. The minimum hold time of `release_at_least` counts from the grant.
    since: (Instant, Instant),
    /// Whether the loss was reported.
    reported: Arc<AtomicBool>,
    /// Dropped when the hold ends. This ends the task that waits for the loss of the hold.
    _watch: oneshot::Sender<()>,
}

impl<'a> ActiveHold<'a> {
    /// Records a grant and its guard, and begins to watch the hold.
    pub(super) fn begin(attempt: &'a Attempt<'a>, guard: Guard) -> Self {
        let Attempt { user, op, lock, id, .. } = attempt;
        let reported = Arc::new(AtomicBool::new(false));
        let _watch = attempt.watch(&guard, &reported);
        // The earliest and the latest time from which the lease counts.
        let (sent, asked) = user.truths.granted(*id, guard.id()).unzip();
        let mut deadline = attempt.deadline(&guard);
        if deadline.as_nanos() == 0 && !user.plan.promise().no_doubt {
            // The hold is in doubt: it is not valid now, but its grant was for at least nine tenths of this time.
            deadline = user.now().min(sent.unwrap_or(deadline).after(op.ttl.min(CLAIM_TIME) * 9 / 10));
        }
        attempt.check_alive(deadline, asked);
        attempt.record(What::AcqOk {
            token: guard.token().number,
            lineage: guard.token().lineage.to_string(),
            deadline: Some(deadline.as_nanos()),
            ttl: Some(nanos(op.ttl)),
            asked: asked.map(Instant::as_nanos),
            watched: true,
            fixed: attempt.is_fixed(),
        });
        user.journal.scheduler().note(*id, || format!("{} was granted to {id:x}", lock.name));
        let now = user.now();
        // If the process was paused before it confirmed a pushed grant, the minimum hold time counts from the push,
        // whose time is not recorded.
        let pushed = !user.plan.stops_in_steps().is_zero();
        let since = (if pushed { Instant::from_nanos(0) } else { sent.unwrap_or(now) }, now);
        Self { attempt, guard, deadline, since, reported, _watch }
    }

    /// Whether the loss was reported.
    pub(super) fn is_reported(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
    }

    /// Checks the hold, and reads its deadline.
    pub(super) fn check(&mut self) {
        let Self { attempt, guard, .. } = self;
        let before = attempt.user.now();
        let valid = guard.check();
        let deadline = attempt.deadline(guard);
        if deadline > self.deadline {
            self.deadline = deadline;
            let ttl = Some(nanos(attempt.op.ttl));
            attempt.record(What::RenewOk { deadline: deadline.as_nanos(), ttl });
        }
        // In runs in which holds may be in doubt, a failed check does not show a loss: the hold may become valid again.
        // In such runs only a reported loss counts.
        let is_lost = attempt.user.plan.promise().no_doubt || self.reported.load(Ordering::Relaxed);
        // The hold may lapse between the check and the reading of its deadline. Then the deadline that it had at the
        // check is not known.
        let is_known = deadline > before;
        if valid && is_known || !valid && is_lost {
            let deadline = valid.then_some(self.deadline.as_nanos());
            attempt.record_at(before, What::Check { valid, deadline });
        }
    }

    /// Ends the hold as the plan says.
    pub(super) async fn end(mut self) {
        self.check();
        let Self { attempt, guard, reported, since, .. } = self;
        let others = attempt.user.truths.over(attempt.id);
        let min_hold = match attempt.op.end {
            // The release tells the server how much of the minimum hold time is left. The part that has passed is
            // measured by the client's clock.
            End::MinHold(at_least) => {
                let user = attempt.user;
                let left = |since| nanos(at_least.saturating_sub(user.own_time(user.now().since(since))));
                // If several guards share the hold, the release of the last guard applies the minimum hold time, unless
                // the hold is lost before.
                Some((if others { 0 } else { left(since.0) }, left(since.1)))
            }
            End::Release | End::Drop => None,
        };
        let (sure, min_hold) = min_hold.unzip();
        attempt.record(What::RelInv { min_hold, sure });
        let valid = guard.check();
        let was_lost = reported.load(Ordering::Relaxed) || !valid;
        let asked = attempt.user.now();
        let released = match attempt.op.end {
            End::Drop => return drop(guard),
            End::Release => guard.release().await,
            End::MinHold(at_least) => guard.release_at_least(at_least).await,
        };
        // I10: if a release is answered at the instant of its call, the server was not asked, so the answer says only
        // what the process knows.
        if released.is_ok() && !valid && attempt.user.now() == asked {
            let text =
                format!("{:x} got the answer at once that it freed a hold which was not valid", attempt.id);
            attempt.user.journal.complain("I10 releases", text);
        }
        attempt.record(match released {
            Ok(()) => What::RelOk,
            Err(error) if error.kind() == ErrorKind::Lost(Loss::Gone) && !was_lost => What::RelNotheld,
            // If the guard knew of the loss, the release is answered at once, and the answer says nothing about the
            // server.
            Err(error) => What::RelUnknown { err: format!("{:?}", error.kind()) },
        });
    }
}

impl Attempt<'_> {
    /// Complains about a grant that had lapsed before the user got it (F02 of `docs/proof.md`). A user is allowed to
    /// get such a grant only if its process was paused.
    fn check_alive(&self, deadline: Instant, asked: Option<Instant>) {
        let Self { user, op, .. } = self;
        let is_dead =
            deadline.as_nanos() == 0 && asked.is_some_and(|asked| asked.after(op.ttl + SLACK) < user.now());
        if is_dead && user.plan.promise().no_doubt && user.plan.stops().is_zero() {
            user.journal
                .complain("dead on arrival", format!("attempt {:x} was granted what had lapsed", self.id));
        }
    }

    /// Whether the first deadline is also the last. There are later deadlines if the lease is renewed; if the user
    /// confirms the hold; if the grant may have been pushed, because it is then extended once to the requested lease;
    /// if the hold is shared, because other tasks of the process may renew it; or if holds may be in doubt.
    fn is_fixed(&self) -> bool {
        let (op, plan) = (self.op, &self.user.plan);
        let is_last = self.mode() != Mode::Shared && !op.renew && !op.confirm && op.patience == Patience::Try;
        is_last && plan.promise().no_doubt
    }

    /// Starts a task that waits for the report of the loss and records it.
    fn watch(&self, guard: &Guard, reported: &Arc<AtomicBool>) -> oneshot::Sender<()> {
        let (watch, over) = oneshot::channel();
        let (lost, reported) = (guard.lost(), Arc::clone(reported));
        let (journal, actor, id) = (Arc::clone(&self.user.journal), self.user.actor, self.id);
        let name = self.lock.name;
        self.user.host.run(async move {
            tokio::select! {
                biased;
                _ = over => {}
                loss = lost => {
                    reported.store(true, Ordering::Relaxed);
                    let now = journal.scheduler().now();
                    journal.record(now, actor, name, id, What::Lost { err: format!("{loss:?}") });
                }
            }
        });
        watch
    }

    /// Until when the guard is valid, by the world's clock. A time in the past if the guard is not valid now.
    fn deadline(&self, guard: &Guard) -> Instant {
        loop {
            let now = self.user.now();
            let left = guard.remaining();
            // If the client was paused between the two readings, the readings do not belong together and give no
            // deadline. In this case the loop reads again.
            if self.user.now() == now {
                return match left {
                    None => Instant::NEVER,
                    Some(Duration::ZERO) => Instant::from_nanos(0),
                    Some(left) => now.after(self.user.host.in_world(left)),
                };
            }
        }
    }
}
