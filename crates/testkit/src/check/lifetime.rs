//! How long an attempt may exist on the server, as far as its user can know.

use super::{
    attempt_history::{AttemptHistory, Failure, Outcome},
    history_index::HistoryIndex,
    terms::nanos,
};

impl HistoryIndex<'_> {
    /// The time from which the server may have forgotten a hold because of a disturbance; `None` if exclusion is
    /// promised or there was no disturbance.
    pub(super) fn may_be_forgotten_since(&self, attempt: &AttemptHistory<'_>) -> Option<u64> {
        let storm = self.storms.partition_point(|storm| storm.1 <= attempt.invoked);
        self.storms.get(storm).filter(|_| self.terms.lossy).map(|storm| storm.0.max(attempt.invoked))
    }

    /// The earliest time at which the lease of a hold may end on the server. Deadlines are assumed to be honest, which
    /// another invariant checks. A deadline earlier than the requested lease allows takes precedence, because a grant
    /// may be shorter than requested.
    pub(super) fn lapses(&self, attempt: &AttemptHistory<'_>) -> u64 {
        let Some(grant) = attempt.grant else { return attempt.invoked };
        let precision = nanos(self.terms.precision);
        let certain_end = |asked: Option<u64>, ttl: Option<u64>| {
            let lease = self.terms.shortest(ttl?);
            Some(asked?.saturating_add(lease).saturating_sub(precision))
        };
        let first = certain_end(grant.asked, grant.ttl).into_iter().chain(grant.deadline).min();
        let renewed = attempt.renewals.iter().map(|renewal| {
            certain_end(renewal.asked, renewal.ttl).map_or(renewal.deadline, |at| at.min(renewal.deadline))
        });
        let read = attempt.checks.iter().filter(|check| check.valid).filter_map(|check| check.deadline);
        // A hold that never lapses ends with its process.
        first.map_or(attempt.crashed.unwrap_or(u64::MAX), |first| renewed.chain(read).fold(first, u64::max))
    }

    /// The time from which nothing of an attempt is left on the server. `u64::MAX`: unknown.
    pub(super) fn gone_by(&self, attempt: &AttemptHistory<'_>) -> u64 {
        // With several tries, a try before the granted one may have left a claim.
        let earlier = attempt
            .grant
            .filter(|_| attempt.retries)
            .map_or(0, |grant| self.cleaned_by(attempt, Some(grant.at)));
        earlier.max(match (attempt.grant, attempt.answer) {
            (None, _) => self.gone_by_without_grant(attempt),
            (_, Some((at, Outcome::NotHeld))) => at,
            (_, Some((at, Outcome::Freed))) => match attempt.release.and_then(|release| release.min_hold) {
                Some(min_hold) => at.saturating_add(self.terms.longest(min_hold)),
                None => at,
            },
            _ => self.ended_by(attempt),
        })
    }

    /// For an attempt without a grant: when nothing of it is left.
    fn gone_by_without_grant(&self, attempt: &AttemptHistory<'_>) -> u64 {
        match attempt.failure {
            Some((at, Failure::Taken)) if attempt.is_try() => at,
            failure => self.cleaned_by(attempt, failure.map(|(at, _)| at)),
        }
    }

    /// When the remains of an attempt that ended at `ended` are cleaned up. If the process cannot clean up: when the
    /// lease has ended.
    pub(super) fn cleaned_by(&self, attempt: &AttemptHistory<'_>, ended: Option<u64>) -> u64 {
        let slack = nanos(self.terms.cancelled);
        let entry_life = nanos(self.terms.entry_life);
        let ttl = self.longest_lease.get(attempt.lock).map(|ttl| entry_life.max(*ttl));
        let killed = |at: u64| attempt.crashed.filter(|crashed| *crashed < at.saturating_add(slack));
        let due = match ended {
            Some(at) if killed(at).is_none() => self.latest(attempt.proc, at, slack),
            _ => attempt
                .crashed
                .map_or(u64::MAX, |crashed| self.lapsed(attempt, self.last_contact(crashed), ttl)),
        };
        self.after_storms(attempt, due, ttl)
    }

    /// For a hold without a confirmed release: when its last lease has ended.
    fn ended_by(&self, attempt: &AttemptHistory<'_>) -> u64 {
        let fixed = attempt.grant.filter(|grant| grant.fixed).map(|grant| grant.at);
        let contact = attempt.crashed.map(|crashed| self.last_contact(crashed));
        let lost = attempt.lost.map(|lost| self.last_contact(lost));
        let renewed_until = [attempt.release.map(|release| release.at), lost, contact, fixed];
        let Some(last) = renewed_until.into_iter().flatten().min() else { return u64::MAX };
        let ttl = match (attempt.longest_ttl(), attempt.crashed) {
            (Some(ttl), _) => Some(ttl),
            // A hold that never lapses ends with its process.
            (None, Some(_)) => Some(0),
            (None, None) => return u64::MAX,
        };
        // A hold that was reported lost may still have existed, so its release may have started a minimum hold.
        let min_hold_end = attempt.release.and_then(|release| Some((release.at, release.min_hold?))).map_or(
            0,
            |(at, min_hold)| {
                at.saturating_add(self.terms.longest(min_hold)).saturating_add(nanos(self.terms.cancelled))
            },
        );
        let due = self.lapsed(attempt, last, ttl).max(attempt.deadline().unwrap_or(0)).max(min_hold_end);
        self.after_storms(attempt, due, ttl)
    }

    /// The latest time at which the last renewal may reach the system, for a process that was killed or was notified of
    /// the loss at `ended`.
    fn last_contact(&self, ended: u64) -> u64 {
        ended.saturating_add(nanos(self.terms.under_way))
    }

    /// The end of a lease whose request was sent at `asked` and reached the system as soon as the machine allowed. With
    /// the `ttl` `None` the lease never ends.
    fn lapsed(&self, attempt: &AttemptHistory<'_>, asked: u64, ttl: Option<u64>) -> u64 {
        let served = self.given(attempt.proc, asked, nanos(self.terms.report_limit));
        ttl.map_or(u64::MAX, |ttl| served.saturating_add(self.terms.longest(ttl)))
    }

    /// The time `due` or, if a disturbance since the call may have delayed a request, one lease after the disturbance.
    fn after_storms(&self, attempt: &AttemptHistory<'_>, mut due: u64, ttl: Option<u64>) -> u64 {
        let first = self.storms.partition_point(|storm| storm.1 <= attempt.invoked);
        for &(begin, end) in &self.storms[first..] {
            if begin >= due {
                break;
            }
            due = due.max(self.lapsed(attempt, end, ttl));
        }
        due
    }
}
