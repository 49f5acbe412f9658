//! Follows who leads an election.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    Error, ErrorKind, Fault, Locks, Memo, MemoFollower, MemoKind, Name, Request, Token, memo::check_kind,
    memo_follower::LONGEST_PAUSE,
};

/// An observer that could read nothing for so many of the longest pauses between two reads is unsure at the earliest:
/// one slow read does not make it so.
const LEAST_PAUSES: u32 = 3;

/// Who leads, as far as an observer knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Leadership {
    /// This leader held the name when it was last read.
    Held(Leader),
    /// No leader is known: nobody leads, or a new leader has not published yet.
    Vacant,
    /// The engine could not be read for the lease time of the election, so the last leader may have been replaced; or
    /// the engine shows a leader of an earlier term than it has shown before.
    Unsure,
}

/// A leader: what it published, and its term. Both are from one write of this leader.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What the leader published; `None` if it has no value.
    pub value: Option<String>,
    /// Its term. Within one [`lineage`](Token::lineage) later leaders have larger terms.
    pub term: Token,
}

impl Leader {
    /// The leader that a memo shows; `None` if the claim that wrote the memo does not hold the name any more.
    pub(super) fn of_memo(locks: &Locks, name: &Name, memo: Memo) -> Result<Option<Self>, Error> {
        let engine = locks.shared().profile.engine;
        check_kind(&memo, &MemoKind::ELECTION, name, engine)?;
        if !memo.is_held {
            return Ok(None);
        }
        let Ok(value) = String::from_utf8(memo.bytes) else {
            let message = "the value of its leader is no text in UTF-8: it was not published by an election";
            let error = crate::EngineError::new(Fault::Misconfigured, message);
            return Err(Error::from_engine(error, name, engine));
        };
        Ok(Some(Self { value: (!value.is_empty()).then_some(value), term: memo.token }))
    }
}

/// Follows who leads an election, without being a candidate. From [`Election::observe`](crate::Election::observe).
///
/// Engines that push changes of memos wake a watch at once. On other engines it reads at intervals of up to 2 s.
pub struct LeaderWatch {
    locks: Locks,
    follower: MemoFollower,
    unsure_after: Duration,
    /// The newest term that was read.
    newest: Option<Token>,
    /// What was returned last.
    last: Option<Leadership>,
}

impl LeaderWatch {
    pub(super) fn new(locks: &Locks, request: &Request) -> Result<Self, Error> {
        let follower = locks.follow_memo(request.valid_name()?.as_str())?;
        let unsure_after = request.lease_time().max(LONGEST_PAUSE * LEAST_PAUSES);
        Ok(Self { locks: locks.clone(), follower, unsure_after, newest: None, last: None })
    }

    /// Who leads, as soon as that differs from what this watch returned last. The first call returns the present state.
    /// Only the newest state is returned: a leader, or a vacancy, that was over before it was read is skipped.
    ///
    /// Within one lineage of tokens the terms only grow. While the engine cannot be read, this waits, and after the
    /// lease time of the election (at least 6 s) returns [`Leadership::Unsure`]; it goes on by itself when the engine
    /// answers again.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if a memo of another kind is stored under the name;
    /// [`is_closed`](Error::is_closed) after `Locks::close`; else the engine's error, except for outages. After an
    /// error the watch is still usable: the next call waits for the interval and reads again.
    pub async fn changed(&mut self) -> Result<Leadership, Error> {
        loop {
            let Some(seen) = self.look().await? else { continue };
            if seen == Leadership::Unsure {
                // The next answer is news, also if it is the answer from before.
                self.follower.forget();
            }
            if self.last.as_ref() != Some(&seen) {
                self.last = Some(seen.clone());
                return Ok(seen);
            }
        }
    }

    /// [`changed`](Self::changed) for code without an executor: blocks the thread.
    ///
    /// # Errors
    /// As [`changed`](Self::changed).
    #[track_caller]
    pub fn changed_blocking(&mut self) -> Result<Leadership, Error> {
        let shared = Arc::clone(self.locks.shared());
        shared.block_on(self.changed())?
    }

    /// Waits for the next change of the memo, or until nothing was read for too long. `None`: the engine did not
    /// answer.
    async fn look(&mut self) -> Result<Option<Leadership>, Error> {
        let memo = if self.last == Some(Leadership::Unsure) {
            self.follower.changed().await
        } else {
            let unsure_at = self.follower.answered_at().after(self.unsure_after);
            let alarm = self.locks.shared().alarm(unsure_at);
            tokio::select! {
                biased;
                memo = self.follower.changed() => memo,
                _ = alarm => {
                    // It may have been read since, without a change.
                    let is_over = self.locks.shared().now() >= self.follower.answered_at().after(self.unsure_after);
                    return Ok(is_over.then_some(Leadership::Unsure));
                }
            }
        };
        match memo {
            Ok(memo) => self.judge(memo).map(Some),
            Err(error) if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Unknown) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What a memo says of the leader.
    fn judge(&mut self, memo: Option<Memo>) -> Result<Leadership, Error> {
        let leader = match memo {
            Some(memo) => Leader::of_memo(&self.locks, self.follower.name(), memo)?,
            None => None,
        };
        let Some(leader) = leader else { return Ok(Leadership::Vacant) };
        // R29. Tokens of two lineages cannot be compared: the engine was replaced, and begins anew.
        if self.newest.is_some_and(|newest| leader.term < newest) {
            return Ok(Leadership::Unsure);
        }
        self.newest = Some(leader.term);
        Ok(Leadership::Held(leader))
    }
}

impl fmt::Debug for LeaderWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderWatch")
            .field("name", &self.follower.name().as_str())
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}
