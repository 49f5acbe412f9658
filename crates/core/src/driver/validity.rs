//! The state of one guard's hold: its deadline and, when the hold is lost, the reason.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{Instant, Lease, Loss, Mode, Owner, TimeChange, Token, pure::lease::DOUBT};

/// Until when one guard is allowed to use its hold; shared between the guard and the keeper. Only the keeper moves the
/// deadline; the guard only reads it.
pub(crate) struct Validity {
    /// Until when the hold is valid, in nanoseconds after boot; 0 after the loss of the hold.
    deadline: AtomicU64,
    /// The end of the lease, also while the hold is in doubt: until when the hold lasts if the engine still has it. In
    /// nanoseconds after boot; 0 after the loss of the hold.
    lease_end: AtomicU64,
    /// The time that the engine granted last, in nanoseconds.
    granted_nanos: AtomicU64,
    /// The end of this guard's own `max_hold`.
    max_hold_end: Instant,
    /// The token of the guard, until it was converted.
    token: Token,
    /// The mode of the request, until the guard was converted: a re-entered hold has another mode than this guard,
    /// perhaps.
    mode: Mode,
    /// The guard was converted: its token and mode are in `rare_fields`.
    is_converted: AtomicBool,
    /// The owner that may take the same hold again.
    owner: Option<Owner>,
    /// The reason of the loss; empty until the keeper reports the loss.
    loss: OnceLock<Loss>,
    /// Notified when the loss is reported.
    reported: Notify,
    rare_fields: Mutex<RareFields>,
}

/// The fields that few guards use.
#[derive(Default)]
struct RareFields {
    /// No user has the guard any more: its loss concerns nobody.
    ended: bool,
    /// The guard is of a set that is not granted as a whole yet: observers get no event of the guard.
    withheld: Option<Withheld>,
    /// The token and the mode of a guard that was converted.
    converted: Option<Box<(Token, Mode)>>,
    /// The callbacks for a loss.
    callbacks: Vec<LossCallback>,
    /// The error of the last renewal; `None` if the last renewal was confirmed.
    renewal_error: Option<Arc<str>>,
    /// How another program had changed the time of the hold, as the last confirmed renewal found.
    time_change: Option<TimeChange>,
}

/// The grant of a name of a set, to be reported when the whole set is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Withheld {
    /// The hold was handed over inside the process.
    pub(crate) local: bool,
}

/// A loss with its cause, as reported to users.
#[derive(Clone, Debug)]
pub(crate) struct LossReport {
    pub(crate) loss: Loss,
    pub(crate) renewal_error: Option<Arc<str>>,
}

impl From<Loss> for LossReport {
    fn from(loss: Loss) -> Self {
        Self { loss, renewal_error: None }
    }
}

impl fmt::Display for LossReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, renewal_error } = self;
        match renewal_error {
            Some(renewal_error) => write!(f, "{loss}; the last one failed: {renewal_error}"),
            None => loss.fmt(f),
        }
    }
}

/// A callback for a loss. It must neither block nor panic, because the keeper calls it.
pub(crate) type LossCallback = Box<dyn FnOnce(Loss) + Send>;

impl Validity {
    pub(crate) fn new(
        lease: &Lease,
        max_hold_end: Instant,
        (token, mode): (Token, Mode),
        owner: Option<Owner>,
    ) -> Self {
        let deadline = AtomicU64::new(lease.valid_until().min(max_hold_end).as_nanos());
        let lease_end = AtomicU64::new(lease.deadline().min(max_hold_end).as_nanos());
        let granted_nanos = AtomicU64::new(nanos(lease.granted_time()));
        let (is_converted, loss, reported, rare_fields) = Default::default();
        Self {
            deadline,
            lease_end,
            granted_nanos,
            max_hold_end,
            token,
            mode,
            is_converted,
            owner,
            loss,
            reported,
            rare_fields,
        }
    }

    /// The same validity, for a guard whose events are withheld until [`grant`](Self::grant).
    pub(crate) fn of_set(mut self) -> Self {
        self.rare_fields.get_mut().unwrap_or_else(PoisonError::into_inner).withheld =
            Some(Withheld::default());
        self
    }

    /// Keeps the grant for the event at [`grant`](Self::grant).
    pub(crate) fn withhold(&self, grant: Withheld) {
        self.rare_fields().withheld = Some(grant);
    }

    /// Whether the guard has no events yet.
    pub(crate) fn is_withheld(&self) -> bool {
        self.rare_fields().withheld.is_some()
    }

    /// The whole set is granted: the guard has events from now on. Returns the grant that was withheld, and the loss,
    /// if it was reported without an event.
    pub(crate) fn grant(&self) -> (Withheld, Option<Loss>) {
        // Under the lock: either this call returns a loss, or `mark_lost` does.
        let mut fields = self.rare_fields();
        (fields.withheld.take().unwrap_or_default(), self.loss.get().copied())
    }

    /// The token of this guard.
    pub(crate) fn token(&self) -> Token {
        self.converted().map_or(self.token, |(token, _)| token)
    }

    /// The mode in which the guard is held.
    pub(crate) fn mode(&self) -> Mode {
        self.converted().map_or(self.mode, |(_, mode)| mode)
    }

    /// The guard has this token and this mode from now on. What waits for its loss, waits on.
    pub(crate) fn convert(&self, token: Token, mode: Mode) {
        self.rare_fields().converted = Some(Box::new((token, mode)));
        self.is_converted.store(true, Ordering::Release);
    }

    /// The token and the mode of a guard that was converted.
    fn converted(&self) -> Option<(Token, Mode)> {
        if !self.is_converted.load(Ordering::Acquire) {
            return None;
        }
        self.rare_fields().converted.as_deref().copied()
    }

    /// The owner of the guard, if it has one of its own.
    pub(crate) const fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// Whether the guard belongs to this owner, so that the owner may take the hold again.
    pub(crate) fn is_owned_by(&self, owner: &Owner) -> bool {
        self.owner.as_ref().is_some_and(|guard_owner| guard_owner.is(owner))
    }

    /// Until when the hold is valid.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Until when the hold lasts without further answers, if the engine still has it; most holds in doubt are valid.
    pub(crate) fn lease_end(&self) -> Instant {
        Instant::from_nanos(self.lease_end.load(Ordering::Acquire))
    }

    /// The time that the engine granted last. A caller that reads it first and then the deadline gets no granted time
    /// that is newer than the deadline.
    pub(crate) fn granted(&self) -> Duration {
        Duration::from_nanos(self.granted_nanos.load(Ordering::Acquire))
    }

    /// The end of this guard's own `max_hold`.
    pub(crate) const fn max_hold_end(&self) -> Instant {
        self.max_hold_end
    }

    /// Copies the ends of a lease that was renewed or put in doubt. This never revives a lost hold.
    pub(crate) fn copy_ends(&self, lease: &Lease) {
        let new_ends = [(&self.deadline, lease.valid_until()), (&self.lease_end, lease.deadline())];
        for (stored_end, new_end) in new_ends {
            let new = new_end.min(self.max_hold_end).as_nanos();
            let _ =
                stored_end.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| (old != 0).then_some(new));
        }
        self.granted_nanos.store(nanos(lease.granted_time()), Ordering::Release);
    }

    /// Stores the error of a renewal. For a hold whose loss was reported, the earlier error stays. Returns whether the
    /// renewal before was confirmed, or there was none.
    pub(crate) fn renewal_failed(&self, renewal_error: &Arc<str>) -> bool {
        !self.is_loss_reported()
            && self.rare_fields().renewal_error.replace(Arc::clone(renewal_error)).is_none()
    }

    /// Clears the error after a renewal that was confirmed. `change`: how another program had changed the time of the
    /// hold, as this renewal found.
    pub(crate) fn renewal_succeeded(&self, change: Option<TimeChange>) {
        let mut fields = self.rare_fields();
        fields.renewal_error = None;
        fields.time_change = change;
    }

    /// How another program had changed the time of the hold, as the last confirmed renewal found.
    pub(crate) fn time_change(&self) -> Option<TimeChange> {
        self.rare_fields().time_change
    }

    /// The error of the last renewal; `None` if the last renewal was confirmed.
    pub(crate) fn renewal_error(&self) -> Option<Arc<str>> {
        self.rare_fields().renewal_error.clone()
    }

    /// Reports to the guard that its hold is lost. If a loss was reported before, that report stays. Returns whether
    /// this is the first report and a user still has the guard, or is about to get it.
    pub(crate) fn mark_lost(&self, loss: Loss) -> bool {
        self.deadline.store(0, Ordering::Release);
        self.lease_end.store(0, Ordering::Release);
        // Under the lock: either this report counts, or `end` returns it.
        let fields = self.rare_fields();
        let is_first_report = self.loss.set(loss).is_ok();
        let has_user = !fields.ended && fields.withheld.is_none();
        drop(fields);
        if is_first_report {
            self.reported.notify_waiters();
            self.run_callbacks(loss);
        }
        is_first_report && has_user
    }

    /// Calls `callback` when the loss is reported; immediately if the loss was reported already. Calls it at most one
    /// time.
    pub(crate) fn on_lost(&self, callback: LossCallback) {
        self.rare_fields().callbacks.push(callback);
        // A loss that is reported at the same time has either called this callback, or has not found it in the list.
        if let Some(&loss) = self.loss.get() {
            self.run_callbacks(loss);
        }
    }

    /// Records that no user has the guard any more, and drops its callbacks. Returns the loss, if it was reported.
    pub(crate) fn end(&self) -> Option<Loss> {
        let mut fields = self.rare_fields();
        fields.ended = true;
        let reported = self.loss.get().copied();
        let callbacks = std::mem::take(&mut fields.callbacks);
        // Dropped after the lock is free: the callbacks are user code.
        drop(fields);
        drop(callbacks);
        reported
    }

    /// Calls and removes all callbacks.
    fn run_callbacks(&self, loss: Loss) {
        let callbacks = std::mem::take(&mut self.rare_fields().callbacks);
        callbacks.into_iter().for_each(|callback| callback(loss));
    }

    fn rare_fields(&self) -> MutexGuard<'_, RareFields> {
        // No code under the lock can panic in the middle of a change.
        self.rare_fields.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason of the loss as of `now`, if the hold is lost.
    pub(crate) fn loss(&self, now: Instant) -> Option<Loss> {
        let deadline = self.deadline();
        // A hold in doubt is not lost: the keeper asks the engine and reports the result.
        if now < deadline || (deadline == DOUBT && now < self.max_hold_end) {
            return None;
        }
        let loss_by_time = if now >= self.max_hold_end { Loss::MaxHold } else { Loss::Lapsed };
        Some(self.loss.get().copied().unwrap_or(loss_by_time))
    }

    /// The loss, with the error of the last renewal if the hold lapsed because of it.
    pub(crate) fn loss_report(&self, now: Instant) -> Option<LossReport> {
        let loss = self.loss(now)?;
        Some(LossReport { loss, renewal_error: self.renewal_error().filter(|_| loss == Loss::Lapsed) })
    }

    /// Whether the hold may have ended early on the engine.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.deadline() == DOUBT
    }

    /// Whether the keeper has reported the loss.
    pub(crate) fn is_loss_reported(&self) -> bool {
        self.loss.get().is_some()
    }

    /// Resolves when the keeper has reported the loss. Cancel safe.
    pub(crate) async fn reported(&self) -> Loss {
        loop {
            let reported = self.reported.notified();
            let mut reported = std::pin::pin!(reported);
            reported.as_mut().enable();
            if let Some(&loss) = self.loss.get() {
                return loss;
            }
            reported.await;
        }
    }
}

/// The duration in nanoseconds; one of more than 500 years counts as the longest.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lineage, Renewal};

    const TOKEN: (Token, Mode) = (Token { lineage: Lineage::new(1), number: 1 }, Mode::Exclusive);

    #[test]
    fn nothing_revives_a_lost_validity() {
        let at = Instant::from_nanos;
        let secs = Duration::from_secs;
        let mut lease = Lease::granted(at(0), Some(secs(10)), secs(10), Renewal::Background);
        let validity = Validity::new(&lease, Instant::NEVER, TOKEN, None);
        lease.renewed(at(50), at(60), Some(secs(20)), None);
        validity.copy_ends(&lease);
        assert_eq!((validity.deadline(), validity.granted()), (lease.deadline(), secs(20)));
        assert_eq!(validity.loss(at(150)), None);
        assert!(validity.mark_lost(Loss::Broken) && !validity.mark_lost(Loss::Gone), "reported once");
        lease.renewed(at(100), at(110), Some(secs(30)), None);
        validity.copy_ends(&lease);
        assert_eq!((validity.deadline(), validity.loss(at(150))), (at(0), Some(Loss::Broken)));
        assert_eq!(validity.lease_end(), at(0));
    }

    #[test]
    fn a_loss_counts_before_the_end_or_is_returned_by_it() {
        let secs = Duration::from_secs;
        let lease = Lease::granted(Instant::from_nanos(0), Some(secs(10)), secs(10), Renewal::Background);
        let (lost, ended) = (
            Validity::new(&lease, Instant::NEVER, TOKEN, None),
            Validity::new(&lease, Instant::NEVER, TOKEN, None),
        );
        assert!(lost.mark_lost(Loss::Broken));
        assert_eq!(lost.end(), Some(Loss::Broken));
        assert_eq!(ended.end(), None);
        assert!(!ended.mark_lost(Loss::Broken) && ended.is_loss_reported());
    }

    #[test]
    fn a_withheld_loss_is_returned_by_the_grant() {
        let secs = Duration::from_secs;
        let lease = Lease::granted(Instant::from_nanos(0), Some(secs(10)), secs(10), Renewal::Background);
        let of_set = || Validity::new(&lease, Instant::NEVER, TOKEN, None).of_set();
        let (lost, granted) = (of_set(), of_set());
        assert!(lost.is_withheld() && !lost.mark_lost(Loss::Broken), "it has no event");
        let grant = Withheld { local: true };
        lost.withhold(grant);
        assert_eq!(lost.grant(), (grant, Some(Loss::Broken)));
        assert_eq!(granted.grant(), (Withheld::default(), None));
        assert!(granted.mark_lost(Loss::Broken) && !granted.is_withheld());
    }

    #[test]
    fn a_validity_in_doubt_is_not_valid_and_knows_the_end_of_its_lease() {
        let at = Instant::from_nanos;
        let secs = Duration::from_secs;
        let mut lease = Lease::granted(at(0), Some(secs(10)), secs(10), Renewal::Background);
        let validity = Validity::new(&lease, Instant::NEVER, TOKEN, None);
        lease.doubt(at(50));
        validity.copy_ends(&lease);
        assert_eq!(
            (validity.deadline(), validity.lease_end(), validity.loss(at(60))),
            (DOUBT, lease.deadline(), None)
        );
        let doubted = Validity::new(&lease, at(70), TOKEN, None);
        assert_eq!((doubted.deadline(), doubted.lease_end()), (DOUBT, at(70)), "its own `max_hold` ends it");
    }
}
