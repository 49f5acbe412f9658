//! How long something of an attempt may exist on the server, as far as the history shows.

use super::{
    attempt_history::{AttemptHistory, Failure, Outcome},
    history_index::HistoryIndex,
    terms::nanos,
};

impl HistoryIndex<'_> {
    /// The time from which the server may have forgotten a hold because of a disturbance. `None`: the run promises
    /// exclusion in every disturbance, or all disturbances had ended before the acquire was called.
    pub(super) fn may_be_forgotten_since(&self, attempt: &AttemptHistory<'_>) -> Option<u64> {
        let storm = self.storms.partition_point(|storm| storm.1 <= attempt.invoked);
        self.storms.get(storm).filter(|_| self.terms.lossy).map(|storm| storm.0.max(attempt.invoked))
    }

    /// The earliest time at which the lease of a hold may end on the server. This assumes that deadlines are honest,
    /// which another invariant checks. If a deadline is earlier than the end of the requested lease, the deadline
    /// counts, because the granted lease may be shorter than the requested one.
    pub(super) fn earliest_expiry(&self, attempt: &AttemptHistory<'_>) -> u64 {
        let Some(grant) = attempt.grant else { return attempt.invoked };
        let precision = nanos(self.terms.precision);
        let certain_end = |sent_at: Option<u64>, ttl: Option<u64>| {
            let lease = self.terms.shortest(ttl?);
            Some(sent_at?.saturating_add(lease).saturating_sub(precision))
        };
        let first = certain_end(grant.sent_at, grant.ttl).into_iter().chain(grant.deadline).min();
        let renewed = attempt.renewals.iter().map(|renewal| {
            certain_end(renewal.sent_at, renewal.ttl).map_or(renewal.deadline, |at| at.min(renewal.deadline))
        });
        let read = attempt.checks.iter().filter(|check| check.valid).filter_map(|check| check.deadline);
        let end_of_process = attempt.killed_at.unwrap_or(u64::MAX);
        // A hold that never lapses ends with its process.
        let end_of_lease = first.map_or(end_of_process, |first| renewed.chain(read).fold(first, u64::max));
        if self.terms.ends_with_process { end_of_lease.min(end_of_process) } else { end_of_lease }
    }

    /// The time from which nothing of an attempt is left on the server. `u64::MAX`: unknown.
    pub(super) fn latest_end(&self, attempt: &AttemptHistory<'_>) -> u64 {
        // If the attempt made several claims, a claim before the granted one may still be on the server.
        let earlier = attempt
            .grant
            .filter(|_| attempt.retries)
            .map_or(0, |grant| self.latest_cleanup(attempt, Some(grant.at)));
        earlier.max(match (attempt.grant, attempt.answer) {
            (None, _) => self.latest_end_without_grant(attempt),
            (_, Some((at, Outcome::NotHeld))) => at,
            (_, Some((at, Outcome::Freed))) => match attempt.release.and_then(|release| release.min_hold) {
                Some(min_hold) => at.saturating_add(self.terms.longest(min_hold)),
                None => at,
            },
            _ => self.latest_expiry(attempt),
        })
    }

    /// The latest end of a record that is kept for `keep` and is written under the hold of an attempt. It is written
    /// while the hold exists, at the latest. A server that restarts may give the record its full time again.
    pub(super) fn latest_record_end(&self, attempt: &AttemptHistory<'_>, keep: u64) -> u64 {
        let longest = Some(keep.saturating_add(nanos(self.terms.kept_longer)));
        let due = self.end_of_lease(attempt, self.latest_end(attempt), longest);
        self.after_storms(attempt, due, longest)
    }

    /// For an attempt without a grant: the time from which nothing of it is left on the server.
    fn latest_end_without_grant(&self, attempt: &AttemptHistory<'_>) -> u64 {
        match attempt.failure {
            Some((at, Failure::Taken)) if attempt.leaves_nothing_if_taken() => at,
            failure => self.latest_cleanup(attempt, failure.map(|(at, _)| at)),
        }
    }

    /// The time by which the remains of an attempt that ended at `ended` are cleaned up. If the process was killed
    /// before it could clean up, this is the time by which the lease of the remains has ended.
    pub(super) fn latest_cleanup(&self, attempt: &AttemptHistory<'_>, ended: Option<u64>) -> u64 {
        let slack = nanos(self.terms.cancelled);
        let entry_life = nanos(self.terms.entry_life);
        let ttl = self.longest_lease.get(attempt.lock).map(|ttl| entry_life.max(*ttl));
        let killed = |at: u64| attempt.killed_at.filter(|killed_at| *killed_at < at.saturating_add(slack));
        let due = match ended {
            Some(at) if killed(at).is_none() => self.latest_time(attempt.proc, at, slack),
            _ => attempt.killed_at.map_or(u64::MAX, |killed_at| {
                self.end_of_lease(attempt, self.latest_arrival(killed_at), ttl)
            }),
        };
        self.after_storms(attempt, due, ttl)
    }

    /// For a hold without a confirmed release: the time by which its last lease has ended.
    fn latest_expiry(&self, attempt: &AttemptHistory<'_>) -> u64 {
        let fixed = attempt.grant.filter(|grant| grant.fixed).map(|grant| grant.at);
        let contact = attempt.killed_at.map(|killed_at| self.latest_arrival(killed_at));
        let lost = attempt.lost.map(|lost| self.latest_arrival(lost));
        let renewed_until = [attempt.release.map(|release| release.at), lost, contact, fixed];
        let Some(last) = renewed_until.into_iter().flatten().min() else { return u64::MAX };
        let ttl = match (attempt.longest_ttl(), attempt.killed_at) {
            (Some(ttl), _) => Some(ttl),
            // A hold that never lapses ends with its process.
            (None, Some(_)) => Some(0),
            (None, None) => return u64::MAX,
        };
        // The client may report a loss although the server still has the hold. In this case the release may have
        // started a minimum hold on the server.
        let min_hold_end = attempt.release.and_then(|release| Some((release.at, release.min_hold?))).map_or(
            0,
            |(at, min_hold)| {
                at.saturating_add(self.terms.longest(min_hold)).saturating_add(nanos(self.terms.cancelled))
            },
        );
        let due =
            self.end_of_lease(attempt, last, ttl).max(attempt.deadline().unwrap_or(0)).max(min_hold_end);
        self.after_storms(attempt, due, ttl)
    }

    /// The latest time at which the last renewal of a process can reach the server, if the process was killed at
    /// `ended`, or was notified of the loss at `ended`.
    fn latest_arrival(&self, ended: u64) -> u64 {
        ended.saturating_add(nanos(self.terms.under_way))
    }

    /// The latest end of a lease whose request was sent at `sent_at`. Stalls of the machine can delay the arrival of
    /// the request, and the lease begins only then. If `ttl` is `None`, the lease never ends.
    fn end_of_lease(&self, attempt: &AttemptHistory<'_>, sent_at: u64, ttl: Option<u64>) -> u64 {
        let served = self.extended_by_stalls(attempt.proc, sent_at, nanos(self.terms.report_limit));
        ttl.map_or(u64::MAX, |ttl| served.saturating_add(self.terms.longest(ttl)))
    }

    /// Returns `due`, or a later time if a disturbance that ended after the call of the acquire began before `due`.
    /// Such a disturbance may have delayed a request until its end, and the lease of this request begins only then.
    fn after_storms(&self, attempt: &AttemptHistory<'_>, mut due: u64, ttl: Option<u64>) -> u64 {
        let first = self.storms.partition_point(|storm| storm.1 <= attempt.invoked);
        for &(begin, end) in &self.storms[first..] {
            if begin >= due {
                break;
            }
            due = due.max(self.end_of_lease(attempt, end, ttl));
        }
        due
    }
}
