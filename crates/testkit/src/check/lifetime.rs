//! From when until when an attempt may stand on the server, as far as its user can know.

use super::{
    history_index::HistoryIndex,
    life::{Failure, Life, Outcome},
    terms::nanos,
};

impl HistoryIndex<'_> {
    /// Where exclusion is not promised: since when the server may have forgotten a hold that a disturbance met.
    pub(super) fn forgotten(&self, life: &Life<'_>) -> Option<u64> {
        let storm = self.storms.partition_point(|storm| storm.1 <= life.invoked);
        self.storms.get(storm).filter(|_| self.terms.lossy).map(|storm| storm.0.max(life.invoked))
    }

    /// When the lease of a hold may run out on the server at the earliest. A deadline is believed to be honest, which is another
    /// invariant, and counts where it is earlier than what was asked for: a grant may be for less.
    pub(super) fn lapses(&self, life: &Life<'_>) -> u64 {
        let Some(grant) = life.grant else { return life.invoked };
        let precision = nanos(self.terms.precision);
        let certain = |asked: Option<u64>, ttl: Option<u64>| {
            let lease = self.terms.shortest(ttl?);
            Some(asked?.saturating_add(lease).saturating_sub(precision))
        };
        let first = certain(grant.asked, grant.ttl).into_iter().chain(grant.deadline).min();
        let renewed = life.renewals.iter().map(|renewal| {
            certain(renewal.asked, renewal.ttl).map_or(renewal.deadline, |at| at.min(renewal.deadline))
        });
        let read = life.checks.iter().filter(|check| check.valid).filter_map(|check| check.deadline);
        // What never lapses ends with its process.
        first.map_or(life.crashed.unwrap_or(u64::MAX), |first| renewed.chain(read).fold(first, u64::max))
    }

    /// When nothing of an attempt is left on the server; `u64::MAX`: that is not known.
    pub(super) fn gone_by(&self, life: &Life<'_>) -> u64 {
        // Of several tries one before the one that was granted may have left something.
        let earlier =
            life.grant.filter(|_| life.retries).map_or(0, |grant| self.cleaned_by(life, Some(grant.at)));
        earlier.max(match (life.grant, life.answer) {
            (None, _) => self.left_by(life),
            (_, Some((at, Outcome::NotHeld))) => at,
            (_, Some((at, Outcome::Freed))) => match life.release.and_then(|release| release.min_hold) {
                Some(min_hold) => at.saturating_add(self.terms.longest(min_hold)),
                None => at,
            },
            _ => self.ended_by(life),
        })
    }

    /// For an attempt without a grant: when nothing of it is left.
    fn left_by(&self, life: &Life<'_>) -> u64 {
        match life.failure {
            Some((at, Failure::Taken)) if life.is_try() => at,
            failure => self.cleaned_by(life, failure.map(|(at, _)| at)),
        }
    }

    /// When what an attempt left that ended then is cleaned up, or its lease has run out where it cannot be.
    pub(super) fn cleaned_by(&self, life: &Life<'_>, ended: Option<u64>) -> u64 {
        let slack = nanos(self.terms.cancelled);
        let queue_entry = nanos(self.terms.place);
        let ttl = self.longest.get(life.lock).map(|ttl| queue_entry.max(*ttl));
        let killed = |at: u64| life.crashed.filter(|crashed| *crashed < at.saturating_add(slack));
        let due = match ended {
            Some(at) if killed(at).is_none() => self.latest(life.proc, at, slack),
            _ => life.crashed.map_or(u64::MAX, |crashed| self.lapsed(life, self.last_contact(crashed), ttl)),
        };
        self.after_storms(life, due, ttl)
    }

    /// For a hold that nobody saw released: when its last lease has run out.
    fn ended_by(&self, life: &Life<'_>) -> u64 {
        let fixed = life.grant.filter(|grant| grant.fixed).map(|grant| grant.at);
        let contact = life.crashed.map(|crashed| self.last_contact(crashed));
        let lost = life.lost.map(|lost| self.last_contact(lost));
        let renewed_until = [life.release.map(|release| release.at), lost, contact, fixed];
        let Some(last) = renewed_until.into_iter().flatten().min() else { return u64::MAX };
        let ttl = match (life.longest_ttl(), life.crashed) {
            (Some(ttl), _) => Some(ttl),
            // What never lapses ends with its process.
            (None, Some(_)) => Some(0),
            (None, None) => return u64::MAX,
        };
        // Also what was told lost may have been there, to be kept.
        let min_hold_end = life.release.and_then(|release| Some((release.at, release.min_hold?))).map_or(
            0,
            |(at, min_hold)| {
                at.saturating_add(self.terms.longest(min_hold)).saturating_add(nanos(self.terms.cancelled))
            },
        );
        let due = self.lapsed(life, last, ttl).max(life.deadline().unwrap_or(0)).max(min_hold_end);
        self.after_storms(life, due, ttl)
    }

    /// When the system heard the last renewal of a hold whose process was killed, or told its loss, then.
    fn last_contact(&self, ended: u64) -> u64 {
        ended.saturating_add(nanos(self.terms.under_way))
    }

    /// When a lease is over that was asked for at `asked`, and came to the system as soon as the machine let it. `None`: never.
    fn lapsed(&self, life: &Life<'_>, asked: u64, ttl: Option<u64>) -> u64 {
        let served = self.given(life.proc, asked, nanos(self.terms.told));
        ttl.map_or(u64::MAX, |ttl| served.saturating_add(self.terms.longest(ttl)))
    }

    /// `due`, unless a disturbance since the call may have kept a request: then a lease after the disturbance.
    fn after_storms(&self, life: &Life<'_>, mut due: u64, ttl: Option<u64>) -> u64 {
        let first = self.storms.partition_point(|storm| storm.1 <= life.invoked);
        for &(begin, end) in &self.storms[first..] {
            if begin >= due {
                break;
            }
            due = due.max(self.lapsed(life, end, ttl));
        }
        due
    }
}
