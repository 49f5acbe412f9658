//! What a guard knows about its hold: a deadline and, once, a loss.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{Instant, Lease, Loss, Owner, Token, pure::lease::DOUBT};

/// Shared between one guard and the keeper. The keeper only moves the deadline; the guard only reads.
pub(crate) struct Validity {
    /// Nanoseconds since boot until which the hold may be believed in; 0 once it is lost.
    deadline: AtomicU64,
    /// The same, whether it is in doubt or not: until when the hold lasts if it stands.
    lasts: AtomicU64,
    /// Nanoseconds for which the engine granted the hold the last time.
    granted: AtomicU64,
    /// The end of this guard's own `max_hold`.
    end: Instant,
    token: Token,
    /// Who may take the same hold again.
    owner: Option<Owner>,
    loss: OnceLock<Loss>,
    told: Notify,
    rest: Mutex<Rest>,
}

/// What few guards have.
#[derive(Default)]
struct Rest {
    /// What is to be called when it is lost.
    calls: Vec<Call>,
    /// What went wrong with the last renewal, unless one was confirmed since.
    trouble: Option<Arc<str>>,
}

/// A loss, as users are told of it.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) loss: Loss,
    trouble: Option<Arc<str>>,
}

impl From<Loss> for Lost {
    fn from(loss: Loss) -> Self {
        Self { loss, trouble: None }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, trouble } = self;
        match trouble {
            Some(trouble) => write!(f, "{loss}; the last one failed: {trouble}"),
            None => loss.fmt(f),
        }
    }
}

/// Neither blocks nor panics: the keeper makes it.
pub(crate) type Call = Box<dyn FnOnce(Loss) + Send>;

impl Validity {
    pub(crate) fn new(lease: &Lease, end: Instant, token: Token, owner: Option<Owner>) -> Self {
        let deadline = AtomicU64::new(lease.belief().min(end).as_nanos());
        let lasts = AtomicU64::new(lease.deadline().min(end).as_nanos());
        let granted = AtomicU64::new(nanos(lease.span()));
        let (loss, told, rest) = Default::default();
        Self { deadline, lasts, granted, end, token, owner, loss, told, rest }
    }

    pub(crate) const fn token(&self) -> Token {
        self.token
    }

    pub(crate) fn is_owned_by(&self, owner: &Owner) -> bool {
        self.owner.as_ref().is_some_and(|own| own.is(owner))
    }

    /// Until when the hold may be believed in.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Until when the hold lasts if it stands and nothing more is heard: what is in doubt mostly does.
    pub(crate) fn lasts(&self) -> Instant {
        Instant::from_nanos(self.lasts.load(Ordering::Acquire))
    }

    /// For how long the hold was granted the last time. Read before the deadline, it is not newer than that.
    pub(crate) fn granted(&self) -> Duration {
        Duration::from_nanos(self.granted.load(Ordering::Acquire))
    }

    /// The end of this guard's own `max_hold`.
    pub(crate) const fn end(&self) -> Instant {
        self.end
    }

    /// The lease was renewed, or is in doubt. Nothing revives a lost cell.
    pub(crate) fn extend(&self, lease: &Lease) {
        let ends = [(&self.deadline, lease.belief()), (&self.lasts, lease.deadline())];
        for (at, end) in ends {
            let new = end.min(self.end).as_nanos();
            let _ = at.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| (old != 0).then_some(new));
        }
        self.granted.store(nanos(lease.span()), Ordering::Release);
    }

    /// A renewal failed. What was told last of a lost cell stays.
    pub(crate) fn failed(&self, trouble: &Arc<str>) {
        if !self.is_told() {
            self.rest().trouble = Some(Arc::clone(trouble));
        }
    }

    /// A renewal was confirmed.
    pub(crate) fn succeeded(&self) {
        self.rest().trouble = None;
    }

    /// What went wrong with the last renewal, unless one was confirmed since.
    pub(crate) fn trouble(&self) -> Option<Arc<str>> {
        self.rest().trouble.clone()
    }

    /// Tells the guard, once, that its hold is lost; false if it knew before.
    pub(crate) fn lose(&self, loss: Loss) -> bool {
        self.deadline.store(0, Ordering::Release);
        self.lasts.store(0, Ordering::Release);
        let notification = self.loss.set(loss).is_ok();
        if notification {
            self.told.notify_waiters();
            self.make_calls(loss);
        }
        notification
    }

    /// `call` is made once, when the loss is told; now, if it was.
    pub(crate) fn on_lost(&self, call: Call) {
        self.rest().calls.push(call);
        // Who told meanwhile did not see it, or took it with him.
        if let Some(&loss) = self.loss.get() {
            self.make_calls(loss);
        }
    }

    /// The guard is gone: nobody wants to be called.
    pub(crate) fn forget_calls(&self) {
        // Dropped when the lock is free again: it is code of users.
        let calls = std::mem::take(&mut self.rest().calls);
        drop(calls);
    }

    fn make_calls(&self, loss: Loss) {
        let calls = std::mem::take(&mut self.rest().calls);
        calls.into_iter().for_each(|call| call(loss));
    }

    fn rest(&self) -> MutexGuard<'_, Rest> {
        // Nothing under the lock can panic half-way through a change.
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the hold is lost, if it is, as of `now`.
    pub(crate) fn loss(&self, now: Instant) -> Option<Loss> {
        let deadline = self.deadline();
        // In doubt is not lost: the keeper asks, and tells.
        if now < deadline || (deadline == DOUBT && now < self.end) {
            return None;
        }
        let passed = if now >= self.end { Loss::MaxHold } else { Loss::Lapsed };
        Some(self.loss.get().copied().unwrap_or(passed))
    }

    /// The same, and what went wrong with its last renewal where it lapsed for that.
    pub(crate) fn lost(&self, now: Instant) -> Option<Lost> {
        let loss = self.loss(now)?;
        Some(Lost { loss, trouble: self.trouble().filter(|_| loss == Loss::Lapsed) })
    }

    /// Whether the hold may have ended on the engine before its time.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.deadline() == DOUBT
    }

    /// Whether the keeper has told the loss.
    pub(crate) fn is_told(&self) -> bool {
        self.loss.get().is_some()
    }

    /// Resolves when the keeper has told the loss. Cancel safe.
    pub(crate) async fn told(&self) -> Loss {
        loop {
            let told = self.told.notified();
            let mut told = std::pin::pin!(told);
            told.as_mut().enable();
            if let Some(&loss) = self.loss.get() {
                return loss;
            }
            told.await;
        }
    }
}

/// More than five hundred years are as good as that.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lineage, Renewal};

    #[test]
    fn nothing_revives_a_lost_validity() {
        let at = Instant::from_nanos;
        let secs = Duration::from_secs;
        let mut lease = Lease::granted(at(0), Some(secs(10)), secs(10), Renewal::Background);
        let validity =
            Validity::new(&lease, Instant::NEVER, Token { lineage: Lineage::new(1), number: 1 }, None);
        lease.renewed(at(50), at(60), Some(secs(20)), None);
        validity.extend(&lease);
        assert_eq!((validity.deadline(), validity.granted()), (lease.deadline(), secs(20)));
        assert_eq!(validity.loss(at(150)), None);
        assert!(validity.lose(Loss::Broken) && !validity.lose(Loss::Gone), "told once");
        lease.renewed(at(100), at(110), Some(secs(30)), None);
        validity.extend(&lease);
        assert_eq!((validity.deadline(), validity.loss(at(150))), (at(0), Some(Loss::Broken)));
        assert_eq!(validity.lasts(), at(0));
    }

    #[test]
    fn a_validity_in_doubt_is_not_to_be_believed_in_and_knows_when_its_lease_ends() {
        let at = Instant::from_nanos;
        let secs = Duration::from_secs;
        let mut lease = Lease::granted(at(0), Some(secs(10)), secs(10), Renewal::Background);
        let validity =
            Validity::new(&lease, Instant::NEVER, Token { lineage: Lineage::new(1), number: 1 }, None);
        lease.doubt(at(50));
        validity.extend(&lease);
        assert_eq!(
            (validity.deadline(), validity.lasts(), validity.loss(at(60))),
            (DOUBT, lease.deadline(), None)
        );
        let doubted = Validity::new(&lease, at(70), validity.token(), None);
        assert_eq!((doubted.deadline(), doubted.lasts()), (DOUBT, at(70)), "its own `max_hold` ends it");
    }
}
