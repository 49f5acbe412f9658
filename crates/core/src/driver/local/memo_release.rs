//! A guard is released together with the write of its memo.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    release::{GuardRelease, ReleaseOutcome, engine_release},
    state::PreparedClaim,
};
use crate::{
    ClaimId, Error, HoldAfter, Instant, Name, NewMemo, Previous, Release, Token,
    driver::keeper::{Cleanup, KeeperJob, MemoOutcome, MemoSender, poll_once, run_cleanups},
    driver::shared::Shared,
    driver::validity::Validity,
};

impl Shared {
    /// Notes that a memo is written under this hold, and returns the token by which the engine recognises the hold;
    /// `None` if this process has no such hold any more.
    pub(crate) fn begin_memo_write(&self, name: &Name, id: ClaimId) -> Option<Token> {
        let mut shard = self.table.shard(name);
        let hold = shard.get_mut(name)?.hold(id)?;
        hold.writes_memos = true;
        Some(hold.first_token)
    }

    /// Writes the memo and releases the guard. If the guard is the last one of its hold, both are one atomic step on
    /// the engine, and the hold is not handed over inside the process. Otherwise the memo is written first.
    pub(crate) fn release_guard_with_memo(
        self: &Arc<Self>,
        guard_release: &GuardRelease<'_>,
        memo: NewMemo,
    ) -> ReleaseOutcome {
        let GuardRelease { name, id, validity, now, .. } = *guard_release;
        let (Some(token), None) = (self.begin_memo_write(name, id), validity.loss(now)) else {
            let loss = validity.loss(now);
            let _ = self.release_guard(guard_release);
            return ReleaseOutcome::Done(MemoOutcome::Overtaken.into_result(name, self.profile.engine, loss));
        };
        let sender = |after| MemoSender::new(self, (name, id), (validity, token), memo.clone(), after);
        match self.take_last_guard(guard_release) {
            Some(release) => self.write_with_release(sender(HoldAfter::Release), release),
            None => self.write_before_release(sender(HoldAfter::Keep), guard_release),
        }
    }

    /// Ends the use of a hold by its last guard, so that the hold can be released on the engine. `None`, and nothing
    /// has changed, if the guard is not the last one, if the name is to stay taken for a minimum hold time, or if a
    /// guard of the hold was abandoned: the write of a memo ends a hold as a clean release does.
    fn take_last_guard(self: &Arc<Self>, guard_release: &GuardRelease<'_>) -> Option<LastRelease> {
        let GuardRelease { name, id, validity, ending, now } = *guard_release;
        let mut shard = self.table.shard(name);
        let hold = shard.get_mut(name)?.hold(id)?;
        let is_other = |other: &Arc<Validity>| !Arc::ptr_eq(other, validity) && !other.is_loss_reported();
        let is_clean = hold.ended.worse_of(ending.ended) == Previous::Clean;
        if !is_clean || hold.min_hold_until.is_some() || hold.guards.iter().any(is_other) {
            return None;
        }
        hold.guards.clear();
        hold.is_ending = true;
        hold.lease.stop_renewal();
        if let Some(timer) = hold.timer.take() {
            self.timers.remove(timer);
        }
        let (deadline, ttl) = (hold.lease.valid_until(), hold.lease.longest_time(now).max(hold.terms.ttl));
        Some(LastRelease { release: engine_release(name, hold, now), deadline, ttl })
    }

    /// Sends the write that ends the hold. If it does not end the hold, an ordinary release follows.
    fn write_with_release(self: &Arc<Self>, mut sender: MemoSender, last: LastRelease) -> ReleaseOutcome {
        let LastRelease { release, deadline, ttl } = last;
        let (name, id) = (release.name.clone(), release.id);
        if self.profile.inline
            && let Some(outcome) = first_attempt(&mut sender)
        {
            if matches!(outcome, MemoOutcome::Done) {
                let prepared = self.forget_hold(&name, id);
                self.start_claim(prepared);
            } else {
                let _ = self.release_inline(release, deadline, ttl, None, true);
            }
            return ReleaseOutcome::Done(outcome.into_result(&name, self.profile.engine, None));
        }
        let prepared = self.forget_hold(&name, id);
        // The cleanup counts as pending from now on.
        let (shared, cleanup) = (Arc::clone(self), Cleanup::new(self, release, ttl));
        let (reply, answer) = oneshot::channel();
        self.queue_job(KeeperJob::Spawn(Box::pin(async move {
            let outcome = sender.run(|| true).await;
            let is_released = matches!(outcome, MemoOutcome::Done);
            let _ = reply.send(outcome.into_result(&name, shared.profile.engine, None));
            if !is_released {
                run_cleanups(shared, vec![cleanup]).await;
            }
        })));
        self.start_claim(prepared);
        ReleaseOutcome::Sent(answer)
    }

    /// Writes the memo, and then releases the guard as usual.
    fn write_before_release(
        self: &Arc<Self>,
        mut sender: MemoSender,
        guard_release: &GuardRelease<'_>,
    ) -> ReleaseOutcome {
        let GuardRelease { name, id, ending, .. } = *guard_release;
        if self.profile.inline
            && let Some(outcome) = first_attempt(&mut sender)
        {
            let written = outcome.into_result(name, self.profile.engine, None);
            return with_memo_result(written, self.release_guard(guard_release));
        }
        let (shared, pending) = (Arc::clone(self), self.pending.add());
        let (name, validity) = (name.clone(), Arc::clone(guard_release.validity));
        let (reply, answer) = oneshot::channel();
        self.queue_job(KeeperJob::Spawn(Box::pin(async move {
            let _pending = pending;
            let written = sender.run(|| true).await.into_result(&name, shared.profile.engine, None);
            let (name, validity, now) = (&name, &validity, shared.now());
            let released = shared.release_guard(&GuardRelease { name, id, validity, ending, now });
            let result = match with_memo_result(written, released) {
                ReleaseOutcome::Done(result) => result,
                ReleaseOutcome::Sent(answer) => {
                    answer.await.unwrap_or_else(|_| Err(super::unanswered_release(name)))
                }
            };
            let _ = reply.send(result);
        })));
        ReleaseOutcome::Sent(answer)
    }

    /// Removes a hold from the local state, and prepares the claim of the next request for its name.
    fn forget_hold(self: &Arc<Self>, name: &Name, id: ClaimId) -> Option<PreparedClaim> {
        let mut shard = self.table.shard(name);
        let state = shard.get_mut(name)?;
        state.holds.retain(|hold| hold.id != id);
        let prepared = self.prepare_next_claim(name, state);
        if state.is_idle() {
            shard.remove(name);
        }
        prepared
    }
}

/// The release of a hold that has no guard any more.
struct LastRelease {
    release: Release,
    /// Until when the hold is valid.
    deadline: Instant,
    /// How long it may last on the engine.
    ttl: Duration,
}

/// Sends the write on this thread; `None` if its outcome is not certain yet.
fn first_attempt(sender: &mut MemoSender) -> Option<MemoOutcome> {
    let mut attempt = std::pin::pin!(sender.attempt());
    poll_once(attempt.as_mut()).flatten()
}

/// The outcome of a release after the write of a memo: an error of the write counts first.
fn with_memo_result(written: Result<(), Error>, released: ReleaseOutcome) -> ReleaseOutcome {
    match written {
        Ok(()) => released,
        Err(error) => ReleaseOutcome::Done(Err(error)),
    }
}
