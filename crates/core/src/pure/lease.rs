//! The lease of one hold, a pure state machine: how long the hold is valid, and when to renew it. Its input is time and
//! answers, its output decisions.
//!
//! R1: the deadline is counted from *before* the request was sent: `sent_at + granted x (1 - drift) - margin`. Only an
//! acknowledged renewal moves the deadline; a missing answer and the answer "unknown" never do.

use std::time::Duration;

use crate::{
    Instant, Loss, TimeChange, TimeLeft,
    pure::due::{self, LONGEST_INTERVAL, RENEW_FRACTION},
};

/// How much faster the engine's clock may run than the clock of this machine, in percent.
const DRIFT_PERCENT: u32 = 1;
/// The least time between the local deadline and the earliest expiry on the engine.
const LEAST_MARGIN: Duration = Duration::from_millis(2);
/// A pushed grant is renewed when this fraction of its claim time has passed, which leaves time for several more tries
/// of this renewal.
const PUSHED_FRACTION: u32 = 4;
/// How long after it was sent a request may still be applied by the engine.
const LATE_REQUEST: Duration = Duration::from_secs(10);
/// A renewal that gets no answer is repeated after this fraction of the lease.
const RETRY_FRACTION: u32 = 12;

/// Until when a hold is valid that was granted for the time `granted`, by a request that was sent at `sent_at`.
#[must_use]
pub fn deadline(sent_at: Instant, granted: Duration) -> Instant {
    let drift = granted * DRIFT_PERCENT / 100;
    let margin = (granted / 100).max(LEAST_MARGIN);
    sent_at.after(granted.saturating_sub(drift + margin))
}

/// A difference between the expected and the measured time of a hold that is smaller than this fraction of the granted
/// time, plus [`MEASURED_TOLERANCE`], is no change by another program: servers count time in milliseconds, and
/// their clocks are slewed.
const MEASURED_FRACTION: u32 = 50;
/// See [`MEASURED_FRACTION`].
const MEASURED_TOLERANCE: Duration = Duration::from_millis(20);

/// For how long a hold is valid, from the sending of its request on, that was granted for the time `granted`.
pub(crate) fn valid_for(granted: Duration) -> Duration {
    deadline(Instant::from_nanos(0), granted).since(Instant::from_nanos(0))
}

/// The time to ask an engine for, so that a hold is valid for at least `valid`: the inverse of [`valid_for`].
fn time_for(valid: Duration) -> Duration {
    // The drift and the margin take a hundredth each; for a short time the margin takes `LEAST_MARGIN`.
    valid.saturating_add(valid / 49).saturating_add(LEAST_MARGIN * 2)
}

/// Whether a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// In the background, as long as the hold is in use, when a third of the granted time has passed, or 20 s if that
    /// is shorter.
    Background,
    /// In the background, as long as the hold is in use, each time that this time has passed since the last renewal, or
    /// half of the granted time if that is shorter.
    Every(Duration),
    /// Never: the lease is fixed.
    Off,
}

/// The next action for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Send a renewal now.
    Renew,
    /// Nothing before this instant.
    Sleep(Instant),
    /// The hold is lost. This state is final.
    Lost(Loss),
}

/// The lease of one hold.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The requested lease time.
    ttl: Duration,
    /// Until when the hold is valid, unless it is in doubt.
    deadline: Instant,
    /// When the next renewal is due.
    renew_at: Instant,
    /// When the request was sent whose answer set the deadline: answers to older requests are ignored.
    confirmed_request: Instant,
    /// The time that the engine granted last.
    granted_time: Duration,
    lost: Option<Loss>,
    renewal: Renewal,
    /// Renewal was stopped, because the hold is being released or its `max_hold` has passed.
    renewal_stopped: bool,
    /// The hold is in doubt: not valid until a renewal is confirmed.
    in_doubt: bool,
    /// A pushed grant that no renewal has extended to the full ttl yet.
    pushed: bool,
    /// What the last confirmed renewal found: how another program had changed the time of the hold.
    time_change: Option<TimeChange>,
    /// The extension that the user asked for.
    extension: Option<Extension>,
}

/// An extension of a hold beyond its ttl.
#[derive(Clone, Copy, Debug)]
struct Extension {
    /// Until when the hold is to be valid at least.
    until: Instant,
    /// The latest end that a request of this process can have set on the engine.
    latest_end: Instant,
}

/// The deadline shown for a hold in doubt: long past, and different from every real deadline.
pub(crate) const DOUBT: Instant = Instant::from_nanos(1);

impl Lease {
    /// The lease of a grant whose request was sent at `sent_at`. `granted` is `None` where holds never lapse; a
    /// renewal, at each third of `ttl`, then only checks that the hold still exists.
    #[must_use]
    pub fn granted(sent_at: Instant, granted: Option<Duration>, ttl: Duration, renewal: Renewal) -> Self {
        let mut lease = Self {
            ttl,
            deadline: Instant::NEVER,
            renew_at: Instant::NEVER,
            confirmed_request: Instant::from_nanos(0),
            granted_time: ttl,
            lost: None,
            renewal,
            renewal_stopped: false,
            in_doubt: false,
            pushed: false,
            time_change: None,
            extension: None,
        };
        lease.confirm(sent_at, granted, None);
        lease
    }

    /// The lease of a grant that was pushed for the claim time `granted` and certainly began not before `since`. When a
    /// quarter of the claim time has passed, the lease is renewed to the full ttl, even if it is fixed. On a name with
    /// many waiters, most holds are over by then and need no renewal.
    #[must_use]
    pub fn pushed(since: Instant, granted: Option<Duration>, ttl: Duration, renewal: Renewal) -> Self {
        let mut lease = Self::granted(since, granted, ttl, renewal);
        if granted.is_some() {
            lease.pushed = true;
            lease.renew_at = since.after(lease.granted_time / PUSHED_FRACTION);
        }
        lease
    }

    /// The action at `now`. Early and repeated calls are harmless.
    pub fn step(&mut self, now: Instant) -> LeaseAction {
        if self.lost.is_none() && now >= self.deadline {
            self.lost = Some(Loss::Lapsed);
        }
        match self.lost {
            Some(loss) => LeaseAction::Lost(loss),
            None if now >= self.renew_at => LeaseAction::Renew,
            None => LeaseAction::Sleep(self.renew_at.min(self.deadline)),
        }
    }

    /// Records that a renewal is sent at `now`. If no answer comes, the next renewal is due a twelfth of the granted
    /// time after `now`, or earlier if the lease is renewed more often.
    pub fn renewal_sent(&mut self, now: Instant) {
        // While an extended hold has much time left, a renewal without an answer is repeated more rarely.
        let time_left = if self.is_extended() { self.deadline.since(now) } else { Duration::ZERO };
        let retry = self.granted_time.min(self.ttl).max(time_left) / RETRY_FRACTION;
        self.renew_at = now.after(match self.renewal {
            Renewal::Every(every) => retry.min(every),
            Renewal::Background => retry.min(LONGEST_INTERVAL),
            Renewal::Off => retry,
        });
    }

    /// Sets the deadline anew after the engine confirmed the renewal that was sent at `sent_at`. This never revives a
    /// lost lease. From now on the hold is renewed together with others of its `group`, if it has one; the first
    /// renewal is not grouped, because most holds end before it.
    pub fn renewed(&mut self, sent_at: Instant, now: Instant, granted: Option<Duration>, group: Option<u16>) {
        if matches!(self.step(now), LeaseAction::Lost(_)) || sent_at < self.confirmed_request {
            return;
        }
        self.confirm(sent_at, granted, group);
    }

    /// R3: puts the hold in doubt, because it may have ended early on the engine. It is not valid until a renewal that
    /// is sent from `now` on is confirmed. That renewal is due at once, also for a fixed lease, which is then renewed
    /// only for its remaining time.
    pub fn doubt(&mut self, now: Instant) {
        if self.lost.is_none() && self.deadline != Instant::NEVER {
            self.in_doubt = true;
            self.confirmed_request = self.confirmed_request.max(now);
            if !self.renewal_stopped {
                self.renew_at = Instant::from_nanos(0);
            }
        }
    }

    /// After a confirmed renewal: the hold stays in doubt, because what put it in doubt may still happen.
    pub(crate) const fn stay_in_doubt(&mut self) {
        self.in_doubt = true;
    }

    /// Compares the time that the hold had left before a renewal with this lease, and stores the change that another
    /// program made. The renewal was sent at `sent_at` and answered at `now`; call this before
    /// [`renewed`](Self::renewed). Returns the change if the renewal before did not find the same.
    ///
    /// The time was measured between these two moments, so a slow answer never looks like a change. Nor does a change
    /// of the server's clock that is known: a hold in doubt is not compared.
    pub(crate) fn compare_time(
        &mut self,
        sent_at: Instant,
        now: Instant,
        left: TimeLeft,
    ) -> Option<TimeChange> {
        let is_outdated = sent_at < self.confirmed_request;
        if self.lost.is_some()
            || self.in_doubt
            || is_outdated
            || self.deadline == Instant::NEVER
            || left == TimeLeft::Unknown
        {
            return None;
        }
        let tolerance = self.granted_time / MEASURED_FRACTION + MEASURED_TOLERANCE;
        let longest = self.longest_time(sent_at).max(self.deadline.since(sent_at));
        let change = match left {
            TimeLeft::Unknown => None,
            TimeLeft::Endless => Some(TimeChange::Removed),
            TimeLeft::For(left) if now.after(left).after(tolerance) < self.deadline => {
                Some(TimeChange::Shortened)
            }
            TimeLeft::For(left) if left > longest + tolerance => Some(TimeChange::Lengthened),
            TimeLeft::For(_) => None,
        };
        let before = std::mem::replace(&mut self.time_change, change);
        change.filter(|_| change != before)
    }

    /// How another program had changed the time of the hold, as the last confirmed renewal found.
    pub(crate) const fn time_change(&self) -> Option<TimeChange> {
        self.time_change
    }

    /// Until when guards are allowed to use the hold: the deadline, or a time long past if the hold is in doubt.
    #[must_use]
    pub const fn valid_until(&self) -> Instant {
        if self.in_doubt { DOUBT } else { self.deadline }
    }

    /// The ttl that a renewal at `now` requests: long enough for the time until which the hold was extended.
    #[must_use]
    pub(crate) fn requested_ttl(&self, now: Instant) -> Duration {
        let ttl = match self.renewal {
            Renewal::Off if self.in_doubt && !self.pushed => self.deadline.since(now),
            _ => self.ttl,
        };
        self.extension.map_or(ttl, |extension| ttl.max(time_for(extension.until.since(now))))
    }

    /// Extends the hold at `now`: from the next renewal on, the hold is valid until `until` at least, if the engine
    /// grants that. Never shortens it.
    pub(crate) fn extend(&mut self, now: Instant, until: Instant) {
        let latest_end = now.after(time_for(until.since(now))).after(LATE_REQUEST);
        let before = self.extension.unwrap_or(Extension { until, latest_end });
        self.extension =
            Some(Extension { until: before.until.max(until), latest_end: before.latest_end.max(latest_end) });
    }

    /// Whether the hold was extended beyond its ttl.
    pub(crate) const fn is_extended(&self) -> bool {
        self.extension.is_some()
    }

    /// Whether the hold is in doubt.
    pub(crate) const fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    /// The longest time for which the engine can have the hold from `now` on, by a request that was sent before.
    pub(crate) fn longest_time(&self, now: Instant) -> Duration {
        let extended = self.extension.map_or(Duration::ZERO, |extension| extension.latest_end.since(now));
        self.ttl.max(self.granted_time).max(extended)
    }

    /// Ends the lease for this reason. Does nothing if the lease has ended already.
    pub fn mark_lost(&mut self, loss: Loss) {
        self.lost.get_or_insert(loss);
    }

    /// Stops renewing; the deadline stays.
    pub fn stop_renewal(&mut self) {
        self.renewal = Renewal::Off;
        self.renew_at = Instant::NEVER;
        self.renewal_stopped = true;
    }

    /// Renews from now on, even if the lease was fixed, unless renewal was stopped. For a hold that the keeper keeps
    /// for a minimum hold time.
    pub(crate) fn start_renewal(&mut self, now: Instant) {
        if self.renewal == Renewal::Off && !self.renewal_stopped {
            self.renewal = Renewal::Background;
            self.renew_at = self.renew_at.min(now);
        }
    }

    /// The next renewal is due at once, unless renewal was stopped.
    pub(crate) const fn renew_now(&mut self) {
        if !self.renewal_stopped {
            self.renew_at = Instant::from_nanos(0);
        }
    }

    /// Whether the lease is renewed at all.
    #[must_use]
    pub fn is_renewed(&self) -> bool {
        self.lost.is_none() && self.renewal != Renewal::Off
    }

    /// Until when the hold is valid if no further answer comes; [`Instant::NEVER`] where it cannot lapse.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The time that the engine granted last; where holds cannot lapse, the time that was requested.
    #[must_use]
    pub const fn granted_time(&self) -> Duration {
        self.granted_time
    }

    /// Whether the hold is lost, and why, as of the last step.
    #[must_use]
    pub const fn lost(&self) -> Option<Loss> {
        self.lost
    }

    /// Whether, at `now`, the hold is worth handing over: renewal has not stopped, and at least a third of the last
    /// granted time is left. A pushed grant is for less than the ttl, and still worth handing over while its renewal is
    /// in flight.
    #[must_use]
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.lost.is_none()
            && !self.renewal_stopped
            && !self.in_doubt
            && now.after(self.granted_time.min(self.ttl) / RENEW_FRACTION) < self.deadline
    }

    /// Sets deadline and next renewal by a confirmed request that was sent at `sent_at`.
    fn confirm(&mut self, sent_at: Instant, granted: Option<Duration>, group: Option<u16>) {
        self.confirmed_request = sent_at;
        self.in_doubt = false;
        self.pushed = false;
        self.granted_time = granted.unwrap_or(self.ttl);
        self.deadline = granted.map_or(Instant::NEVER, |granted| deadline(sent_at, granted));
        // An extended hold is renewed as often as before, so that its loss is known as early as before.
        let span = match self.extension {
            Some(_) => self.granted_time.min(self.ttl),
            None => self.granted_time,
        };
        self.renew_at = match (self.renewal, group) {
            (Renewal::Background, Some(group)) => due::due_in_group(sent_at, span, self.ttl, group),
            (Renewal::Every(every), _) => due::due_every(every, sent_at, span, self.ttl),
            (Renewal::Background, None) => due::due_without_group(sent_at, span, self.ttl),
            (Renewal::Off, _) => Instant::NEVER,
        };
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
