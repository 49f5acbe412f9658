//! How long a hold may be believed in, and when to renew it: a pure machine. Time comes in, decisions come out.
//!
//! R1: the deadline is counted from *before* the request left: `sent + granted x (1 - drift) - margin`.
//! Only an acknowledged renewal moves it; silence and "unknown" never do.

use std::time::Duration;

use crate::{
    Instant, Loss,
    pure::due::{self, RENEW_FRACTION},
};

/// How much faster the engine's clock may run than ours, in percent.
const DRIFT_PERCENT: u32 = 1;
/// The least time between the end of belief and the earliest expiry on the engine.
const LEAST_MARGIN: Duration = Duration::from_millis(2);
/// A pushed grant is renewed when this fraction of its claim time has passed: there is time for several more tries.
const PUSHED_FRACTION: u32 = 4;
/// After a renewal without answer the next one follows after this fraction of the lease.
const RETRY_FRACTION: u32 = 12;

/// Until when a grant of `granted`, asked for at `sent`, may be believed in.
#[must_use]
pub fn deadline(sent: Instant, granted: Duration) -> Instant {
    let drift = granted * DRIFT_PERCENT / 100;
    let margin = (granted / 100).max(LEAST_MARGIN);
    sent.after(granted.saturating_sub(drift + margin))
}

/// Whether a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// In the background, as long as the hold is used.
    Background,
    /// Never: the lease is fixed.
    Off,
}

/// What to do next about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAction {
    /// Send a renewal now.
    Renew,
    /// Nothing before this instant.
    Sleep(Instant),
    /// The hold is lost. Sticky.
    Lost(Loss),
}

/// The lease of one hold.
#[derive(Clone, Debug)]
pub struct Lease {
    ttl: Duration,
    deadline: Instant,
    renew_at: Instant,
    /// When the request left whose answer set the deadline: answers to older ones are history.
    confirmed: Instant,
    /// How long the engine granted the last time.
    span: Duration,
    lost: Option<Loss>,
    renewal: Renewal,
    stopped: bool,
    doubted: bool,
    /// A pushed grant that no renewal has made as long as was asked for.
    pushed: bool,
}

/// The end of belief in a hold that is in doubt: long past, and unlike every real deadline.
pub(crate) const DOUBT: Instant = Instant::from_nanos(1);

impl Lease {
    /// The lease of a grant that was asked for at `sent`; `granted` is `None` where holds never lapse, and renewal then
    /// only paces a check at a third of `ttl`.
    #[must_use]
    pub fn granted(sent: Instant, granted: Option<Duration>, ttl: Duration, renewal: Renewal) -> Self {
        let mut lease = Self {
            ttl,
            deadline: Instant::NEVER,
            renew_at: Instant::NEVER,
            confirmed: Instant::from_nanos(0),
            span: ttl,
            lost: None,
            renewal,
            stopped: false,
            doubted: false,
            pushed: false,
        };
        lease.confirm(sent, granted, None);
        lease
    }

    /// The lease of a grant that was pushed for the claim time `granted` and certainly stood not before `since`:
    /// it is renewed to the full ttl, fixed or not, once a part of that time has passed. Where many want a name, most holds are
    /// over by then, and need no renewal.
    #[must_use]
    pub fn pushed(since: Instant, granted: Option<Duration>, ttl: Duration, renewal: Renewal) -> Self {
        let mut lease = Self::granted(since, granted, ttl, renewal);
        if granted.is_some() {
            lease.pushed = true;
            lease.renew_at = since.after(lease.span / PUSHED_FRACTION);
        }
        lease
    }

    /// What to do at `now`. Early and repeated calls are harmless.
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

    /// A renewal leaves at `now`. Without an answer the next one is due a twelfth of what was granted later.
    pub fn sent(&mut self, now: Instant) {
        self.renew_at = now.after(self.span.min(self.ttl) / RETRY_FRACTION);
    }

    /// The engine confirmed the renewal that left at `sent`. Nothing revives a lost lease. From then on it is renewed together with
    /// others of its `group`, if it has one; before, nobody knows whether it will last so long.
    pub fn renewed(&mut self, sent: Instant, now: Instant, granted: Option<Duration>, group: Option<u16>) {
        if matches!(self.step(now), LeaseAction::Lost(_)) || sent < self.confirmed {
            return;
        }
        self.confirm(sent, granted, group);
    }

    /// R3: the hold may have ended on the engine before its time. Until a renewal that leaves from `now` on is confirmed it
    /// is not to be believed in; it is due at once, also of a fixed lease, for which it only asks for the time that is left.
    pub fn doubt(&mut self, now: Instant) {
        if self.lost.is_none() && self.deadline != Instant::NEVER {
            self.doubted = true;
            self.confirmed = self.confirmed.max(now);
            if !self.stopped {
                self.renew_at = Instant::from_nanos(0);
            }
        }
    }

    /// Until when guards may believe in the hold: the deadline, unless it is in doubt.
    #[must_use]
    pub const fn belief(&self) -> Instant {
        if self.doubted { DOUBT } else { self.deadline }
    }

    /// For how long a renewal at `now` asks.
    #[must_use]
    pub(crate) fn asks_for(&self, now: Instant) -> Duration {
        match self.renewal {
            Renewal::Off if self.doubted && !self.pushed => self.deadline.since(now),
            _ => self.ttl,
        }
    }

    /// The hold is lost. The first reason stays.
    pub fn lose(&mut self, loss: Loss) {
        self.lost.get_or_insert(loss);
    }

    /// No renewal is to be sent any more; the deadline stays.
    pub fn stop_renewal(&mut self) {
        self.renewal = Renewal::Off;
        self.renew_at = Instant::NEVER;
        self.stopped = true;
    }

    /// It is renewed from now on, also if it was fixed: the hold is to last for a time of its own.
    pub(crate) fn keep_up(&mut self, now: Instant) {
        if self.renewal == Renewal::Off && !self.stopped {
            self.renewal = Renewal::Background;
            self.renew_at = self.renew_at.min(now);
        }
    }

    /// Whether it is to be renewed at all.
    #[must_use]
    pub fn is_renewed(&self) -> bool {
        self.lost.is_none() && self.renewal == Renewal::Background
    }

    /// Until when the hold may be believed in, if nothing is heard any more; [`Instant::NEVER`] where it cannot lapse.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// How long the engine granted the last time; where it cannot lapse, how long was asked for.
    #[must_use]
    pub const fn span(&self) -> Duration {
        self.span
    }

    /// Whether the hold is lost, and why, as of the last step.
    #[must_use]
    pub const fn lost(&self) -> Option<Loss> {
        self.lost
    }

    /// Whether at `now` at least a third of what was granted last is left to believe in, and it is kept up: less is not worth
    /// handing on. A pushed grant is for less than the ttl, and worth handing on while its renewal is under way.
    #[must_use]
    pub fn is_fresh(&self, now: Instant) -> bool {
        self.lost.is_none()
            && !self.stopped
            && !self.doubted
            && now.after(self.span.min(self.ttl) / RENEW_FRACTION) < self.deadline
    }

    fn confirm(&mut self, sent: Instant, granted: Option<Duration>, group: Option<u16>) {
        self.confirmed = sent;
        self.doubted = false;
        self.pushed = false;
        self.span = granted.unwrap_or(self.ttl);
        self.deadline = granted.map_or(Instant::NEVER, |granted| deadline(sent, granted));
        self.renew_at = match (self.renewal, group) {
            (Renewal::Background, Some(group)) => due::in_group(sent, self.span, self.ttl, group),
            (Renewal::Background, None) => due::alone(sent, self.span, self.ttl),
            (Renewal::Off, _) => Instant::NEVER,
        };
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
