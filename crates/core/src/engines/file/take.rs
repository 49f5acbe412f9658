//! The verb `claim`: the fast path to a free name, and the path through the table.

use std::{sync::Arc, time::Duration};

use super::{
    claims::{ClaimCell, ClaimState, Entry, lock},
    dir::idle::Spare,
    dir::open::Missing,
    engine::FileEngine,
    kernel::locks::{Key, LATCH_TRIES, LATCH_TRIES_BESIDE, LockFile, Mark},
    table::layout::HEAD,
    table::record::{NO_WAKE_PIPE, Record, RecordState},
    table::wait_order::{Asker, Judgement, Verdict, is_in_min_hold},
    table::{Table, record_zero},
    wake::listener::WATCHED,
};
use crate::{Answer, Claim, EngineError, Fault, Grant, Hint, How, Instant, Loss, Mode};

/// How often a lock file may be replaced between opening and locking before the directory counts as replaced.
const TRIES: usize = 16;

/// The poll interval of a waiting claim near the head of the queue. Polls are a fallback for lost signals.
const NEAR_INTERVAL: Duration = Duration::from_millis(250);
/// The poll interval grows by this for each claim ahead, so that a thousand waiting processes do not keep the machine
/// busy.
const INTERVAL_PER_POSITION: Duration = Duration::from_millis(250);
/// The longest poll interval.
pub(super) const FAR_INTERVAL: Duration = Duration::from_secs(30);
/// The growth for each claim ahead, and the longest interval, of a claim without a wake pipe.
const NO_PIPE_INTERVAL_PER_POSITION: Duration = Duration::from_millis(20);
const NO_PIPE_FAR_INTERVAL: Duration = Duration::from_secs(5);

/// The result of the first `claim` of an id: its entry, if it waits or holds, and the answer.
type Created = (Option<Box<Entry>>, Answer);

impl FileEngine {
    /// Takes the name, or enqueues the claim, or returns its current state.
    pub(super) fn take(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let found_cell = match how {
            How::Create => self.claims.enter(claim.id),
            How::Ask => self.claims.find(claim.id),
        };
        let Some(cell) = found_cell else { return Ok(Answer::Gone) };
        let mut cell = lock(&cell);
        let answer = match (&mut *cell, how) {
            (ClaimCell::Gone, _) => return Ok(Answer::Gone),
            (ClaimCell::Fresh, How::Ask) => {
                return Err(EngineError::new(
                    Fault::Retry,
                    "the first claim of this id is still in progress",
                ));
            }
            (ClaimCell::Fresh, How::Create) => self.create(claim).map(|(entry, answer)| {
                *cell = entry.map_or(ClaimCell::Gone, ClaimCell::Live);
                answer
            }),
            (ClaimCell::Live(entry), _) => {
                let answer = self.ask(entry);
                // A lost hold stays until its release: the code under it may still run.
                if matches!((&answer, entry.claim_state), (Ok(Answer::Gone), ClaimState::Waiting { .. })) {
                    *cell = ClaimCell::Gone;
                }
                answer
            }
        };
        if answer.is_err() && matches!(*cell, ClaimCell::Fresh) {
            *cell = ClaimCell::Gone;
        }
        if matches!(*cell, ClaimCell::Gone) {
            self.listener.forget(claim.id);
            self.claims.forget(claim.id);
        }
        answer
    }

    /// The first `claim` of an id: opens the lock file and tries.
    fn create(&self, claim: &Claim) -> Result<Created, EngineError> {
        let (key, mut spare) = match self.idle.take(&claim.name) {
            Some(Spare { key, lock }) => (key, Some(lock)),
            None => (Arc::new(Key::new(&self.dir, &claim.name)), None),
        };
        for _ in 0..TRIES {
            let opened = match spare.take() {
                Some(lock) => Ok(Some(lock)),
                None => LockFile::open(&self.dir, &key, Missing::Create),
            };
            let lock = match opened {
                Ok(Some(lock)) => lock,
                Ok(None) => continue,
                // The open may have failed because of the descriptors in the cache of idle lock files.
                Err(_) if self.idle.close() => continue,
                Err(error) => return Err(error),
            };
            match self.try_file(claim, &key, lock) {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => {}
                Err(error) => return self.held_or(&key, error),
            }
        }
        Err(EngineError::new(
            Fault::Misconfigured,
            format!(
                "{} is not the file that was just locked: the directory was replaced; restart the program",
                key.shown()
            ),
        ))
    }

    /// The result of a first claim that failed: the error, or *taken* where another program has locked the whole
    /// file. In that case no claim can set its mark, and that program holds the name.
    fn held_or(&self, key: &Key, error: EngineError) -> Result<Created, EngineError> {
        match LockFile::open(&self.dir, key, Missing::Leave)? {
            Some(lock) if lock.is_locked_by_another_program()? => Ok((None, taken_answer())),
            _ => Err(error),
        }
    }

    /// Tries on one open lock file; `None` when the path leads to another file by now.
    fn try_file(
        &self,
        claim: &Claim,
        key: &Arc<Key>,
        lock: LockFile,
    ) -> Result<Option<Created>, EngineError> {
        let mut has_flock = false;
        if claim.mode == Mode::Exclusive {
            has_flock = lock.try_flock(claim.mode)?;
            if (has_flock || !claim.may_queue) && !lock.is_current(key)? {
                return Ok(None);
            }
            if has_flock {
                if let Some((claim_state, grant)) = self.seize_free(claim, key, &lock)? {
                    return Ok(Some((Some(entry(claim, key, lock, claim_state)), Answer::Held(grant))));
                }
            } else if !claim.may_queue && !self.has_table(key)? {
                return Ok(Some((None, taken_answer())));
            }
        }
        self.join(claim, key, lock, has_flock)
    }

    /// The fast path: this claim has the exclusive flock and the table is empty. `None`: the table is in use.
    fn seize_free(
        &self,
        claim: &Claim,
        key: &Key,
        lock: &LockFile,
    ) -> Result<Option<(ClaimState, Grant)>, EngineError> {
        let Some(state) = self.states.get(&self.dir, key, Missing::Create)? else { return Ok(None) };
        let Some((mut head, bytes)) = state.head(&key.name)? else { return Ok(None) };
        let now = self.env.clock.now();
        let record_zero = record_zero(&head, &bytes, self.boot);
        if head.table.in_use
            || record_zero.as_ref().is_some_and(|record_zero| is_in_min_hold(&record_zero.record, now))
        {
            return Ok(None);
        }
        self.seize(claim, lock, &state, &mut head, record_zero.as_ref(), now).map(Some)
    }

    /// Whether the table is in use: then a failed claim must report why.
    fn has_table(&self, key: &Key) -> Result<bool, EngineError> {
        let Some(state) = self.states.get(&self.dir, key, Missing::Create)? else { return Ok(false) };
        Ok(state.head(&key.name)?.is_some_and(|(head, _): (_, [u8; HEAD])| head.table.in_use))
    }

    /// The path through the table. `has_flock`: this claim has the exclusive flock already.
    fn join(
        &self,
        claim: &Claim,
        key: &Arc<Key>,
        lock: LockFile,
        has_flock: bool,
    ) -> Result<Option<Created>, EngineError> {
        let tries = match (claim.may_queue, claim.mode) {
            (true, _) | (false, Mode::Exclusive) => LATCH_TRIES,
            (false, Mode::Shared | Mode::Permits { .. }) => LATCH_TRIES_BESIDE,
        };
        let latch = match lock.latch_within(tries) {
            Ok(latch) => latch,
            Err(busy) => {
                self.undo_flock(key, &lock, has_flock);
                // The table is in use, or is about to be: an exclusive try is too late, whatever the table holds. A
                // claim in another mode may still fit beside the current holders.
                let is_taken =
                    !claim.may_queue && claim.mode == Mode::Exclusive && busy.fault == Fault::Retry;
                return if is_taken { Ok(Some((None, taken_answer()))) } else { Err(busy) };
            }
        };
        if !lock.is_current(key)? {
            return Ok(None);
        }
        let state = self.states.get(&self.dir, key, Missing::Create)?.ok_or_else(vanished)?;
        let mut table = Table::load(self, key, &lock, &state, latch)?;
        let asker = Asker { mode: claim.mode, ticket: None };
        let (mut judgement, granted) = self.try_now(&mut table, claim, key, asker, has_flock)?;
        if let Some((claim_state, grant)) = granted {
            drop(table);
            return Ok(Some((Some(entry(claim, key, lock, claim_state)), Answer::Held(grant))));
        }
        if let Verdict::Clash(other) = judgement.verdict {
            return Err(clash(claim.mode, other));
        }
        if !claim.may_queue {
            table.mark_if_empty()?;
            return Ok(Some((None, Answer::Taken(self.hint(&judgement)))));
        }
        let (slot, ticket) = self.enqueue(&mut table, claim)?;
        let mut claim_state = None;
        if judgement.verdict == Verdict::Behind && judgement.ahead as usize >= WATCHED {
            // The claims ahead that are alive are signalled at every release; this one needs no watch.
            self.listener.register(claim, table.lock, slot, judgement.ahead as usize);
        } else {
            // Enqueued; now ask again, because a release before the record was written signalled no one.
            table.refresh(self, key)?;
            (judgement, claim_state) = self.advance(&mut table, claim, key, slot, ticket)?;
        }
        drop(table);
        let (claim_state, answer) = match claim_state {
            Some((claim_state, grant)) => (claim_state, Answer::Held(grant)),
            None => (ClaimState::Waiting { slot, ticket }, Answer::Waiting(self.hint(&judgement))),
        };
        Ok(Some((Some(entry(claim, key, lock, claim_state)), answer)))
    }

    /// Gives the claim a ticket and a record in the queue.
    fn enqueue(&self, table: &mut Table<'_>, claim: &Claim) -> Result<(u32, u64), EngineError> {
        let wake_pipe = self.listener.wake_pipe(&self.dir);
        let (slot, ticket) = table.free_slot()?;
        table.lock.mark(Mark::Ticket(ticket))?;
        let record =
            Record { ticket, wake_pipe, ..self.record(claim, RecordState::Waiting, self.env.clock.now()) };
        table.put(slot, record)?;
        Ok((slot, ticket))
    }

    /// The state of a claim that waits or holds; tries to grant to a waiting one.
    fn ask(&self, entry: &mut Entry) -> Result<Answer, EngineError> {
        let (slot, ticket) = match entry.claim_state {
            ClaimState::Waiting { slot, ticket } => (slot, ticket),
            ClaimState::Holding { token, tokens, previous, .. } => {
                let grant = Grant { token, tokens, ttl: None, previous };
                let replaced = self.lost(entry)? == Some(Loss::Replaced);
                return Ok(if replaced { Answer::Gone } else { Answer::Held(grant) });
            }
        };
        // Near the head of the queue, where a hand-over may be under way, the table is read once only.
        if !self.listener.is_near(entry.claim.id)
            && let Some(ahead) = self.far_behind(entry, ticket)?
        {
            return Ok(Answer::Waiting(Hint {
                ask_in: Some(self.interval(ahead)),
                ahead: Some(ahead),
                obstacle: None,
            }));
        }
        let latch = entry.lock.latch()?;
        if !entry.lock.is_current(&entry.key)? {
            return Ok(Answer::Gone);
        }
        let Some(state) = self.states.get(&self.dir, &entry.key, Missing::Leave)? else {
            return Ok(Answer::Gone);
        };
        let mut table = Table::load(self, &entry.key, &entry.lock, &state, latch)?;
        let own = table.records.iter_mut().find(|indexed| indexed.slot == slot);
        let Some(own) = own.filter(|own| own.record.id == entry.claim.id) else { return Ok(Answer::Gone) };
        if own.record.signalled.take().is_some() {
            super::wake::wake_pipe::clear_signal(&state, slot)?;
        }
        let (judgement, granted) = self.advance(&mut table, &entry.claim, &entry.key, slot, ticket)?;
        Ok(match granted {
            Some((claim_state, grant)) => {
                entry.claim_state = claim_state;
                Answer::Held(grant)
            }
            None => Answer::Waiting(self.hint(&judgement)),
        })
    }

    /// Tries to grant to a waiting claim, and signals the waiters that this concerns.
    fn advance(
        &self,
        table: &mut Table<'_>,
        claim: &Claim,
        key: &Key,
        slot: u32,
        ticket: u64,
    ) -> Result<(Judgement, Option<(ClaimState, Grant)>), EngineError> {
        // Before the attempt, so that a release after it is noticed.
        let ahead = table
            .records
            .iter()
            .filter(|indexed| indexed.record.state == RecordState::Waiting && indexed.record.ticket < ticket);
        self.listener.register(claim, table.lock, slot, ahead.count());
        let asker = Asker { mode: claim.mode, ticket: Some(ticket) };
        let has_flock = false;
        let (judgement, granted) = self.try_now(table, claim, key, asker, has_flock)?;
        if granted.is_some() {
            self.listener.forget(claim.id);
            // Behind an exclusive hold only the new second waiter must be given its new position, to watch the file.
            let skip = usize::from(claim.mode == Mode::Exclusive);
            self.signal(table.lock, table.state, &table.records, skip, 2 - skip);
        } else if judgement.verdict == Verdict::Behind && judgement.ahead == 1 {
            // The head of the queue may not have been signalled: the holder may have been killed, or the watch may
            // have failed.
            self.signal(table.lock, table.state, &table.records, 0, 1);
        }
        Ok((judgement, granted))
    }

    /// Judges by the table, takes the flock if the table allows that, and judges again, now by a state that cannot
    /// change any more.
    fn try_now(
        &self,
        table: &mut Table<'_>,
        claim: &Claim,
        key: &Key,
        asker: Asker,
        has_flock: bool,
    ) -> Result<(Judgement, Option<(ClaimState, Grant)>), EngineError> {
        let mut judgement = table.judge(asker, self.env.clock.now())?;
        let mut flocked = has_flock;
        if !has_flock && judgement.verdict == Verdict::Free {
            flocked = flock(claim.mode, claim.may_queue, || table.lock.try_flock(claim.mode))?;
            if flocked {
                table.refresh(self, key)?;
                judgement = table.judge(asker, self.env.clock.now())?;
            } else {
                judgement.verdict = Verdict::Held;
            }
        }
        if flocked && judgement.verdict == Verdict::Free {
            return match self.grant(table, claim, asker.ticket) {
                Ok(granted) => Ok((judgement, Some(granted))),
                Err(error) => {
                    table.lock.unflock();
                    self.signal(table.lock, table.state, &table.records, 0, 2);
                    Err(error)
                }
            };
        }
        if flocked {
            // Another claim may have tried while this one had the flock.
            table.lock.unflock();
            self.signal(table.lock, table.state, &table.records, 0, 1);
        }
        Ok((judgement, None))
    }

    /// Releases the flock of a claim that could not be granted, without the latch.
    fn undo_flock(&self, key: &Key, lock: &LockFile, has_flock: bool) {
        if has_flock {
            lock.unflock();
            if let Ok(Some(state)) = self.states.get(&self.dir, key, Missing::Leave) {
                self.signal_waiters(lock, &state, 0, 1);
            }
        }
    }

    /// What core is told of a claim that was not granted.
    fn hint(&self, judgement: &Judgement) -> Hint {
        let ask_in = match judgement.verdict {
            Verdict::MinHold(until) => until.since(self.env.clock.now()),
            _ => self.interval(judgement.ahead),
        };
        Hint { ask_in: Some(ask_in), ahead: Some(judgement.ahead), obstacle: None }
    }

    /// The poll interval of a claim with `ahead` claims ahead.
    fn interval(&self, ahead: u32) -> Duration {
        let (per_position, far) = match self.listener.has_wake_pipe() {
            true => (INTERVAL_PER_POSITION, FAR_INTERVAL),
            false => (NO_PIPE_INTERVAL_PER_POSITION, NO_PIPE_FAR_INTERVAL),
        };
        (per_position * ahead).clamp(NEAR_INTERVAL, far)
    }

    /// A record for the claim, without ticket and token.
    pub(super) fn record(&self, claim: &Claim, state: RecordState, since: Instant) -> Record {
        Record {
            state,
            id: claim.id,
            mode: claim.mode,
            ticket: 0,
            token: 0,
            tokens: 0,
            owner: claim.owner.clone(),
            process: self.process,
            stops_on_term: claim.stops_on_term,
            since,
            wake_pipe: NO_WAKE_PIPE,
            min_hold_until: Instant::from_nanos(0),
            signalled: None,
            broken: 0,
        }
    }
}

/// Takes the flock for a claim that has no obstacle in the table. A claim that can share the name and is not asked
/// again retries while an exclusive claim passes by: such a claim takes the flock before it reads the table, and
/// releases it when it cannot be granted.
fn flock(
    mode: Mode,
    may_queue: bool,
    mut take: impl FnMut() -> Result<bool, EngineError>,
) -> Result<bool, EngineError> {
    let is_last_chance = !may_queue && mode != Mode::Exclusive;
    for _ in 1..if is_last_chance { LATCH_TRIES_BESIDE } else { 1 } {
        if take()? {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    take()
}

/// The answer for a name that another claim, or another program, has taken.
fn taken_answer() -> Answer {
    Answer::Taken(Hint { ask_in: Some(NEAR_INTERVAL), ..Hint::default() })
}

fn entry(claim: &Claim, key: &Arc<Key>, lock: LockFile, claim_state: ClaimState) -> Box<Entry> {
    Box::new(Entry { claim: claim.clone(), key: Arc::clone(key), lock, claim_state })
}

fn clash(wanted: Mode, other: Mode) -> EngineError {
    let word = |mode: Mode| match mode.limit() {
        None => "a lock (exclusive or shared)".to_owned(),
        Some(limit) => format!("a semaphore of {limit} permits"),
    };
    EngineError::new(
        Fault::Misconfigured,
        format!(
            "it is in use as {}, and was requested as {}: use another name for each kind of lock",
            word(other),
            word(wanted)
        ),
    )
}

fn vanished() -> EngineError {
    EngineError::new(Fault::Retry, "the state file was removed while it was opened")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tries(mode: Mode, may_queue: bool, free_at: usize) -> (bool, usize) {
        let mut tries = 0;
        let taken = flock(mode, may_queue, || {
            tries += 1;
            Ok(tries >= free_at)
        });
        (taken.unwrap(), tries)
    }

    /// I13.
    #[test]
    fn a_shared_try_outlasts_a_brief_exclusive_flock() {
        for mode in [Mode::Shared, Mode::Permits { count: 1, limit: 2 }] {
            assert_eq!(tries(mode, false, 40), (true, 40));
            assert_eq!(tries(mode, false, usize::MAX), (false, LATCH_TRIES_BESIDE), "it comes to an end");
            assert_eq!(tries(mode, true, 40), (false, 1), "it is asked again");
        }
        assert_eq!(tries(Mode::Exclusive, false, 40), (false, 1), "any holder blocks it");
    }
}
