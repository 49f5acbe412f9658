//! The verb `claim`: the fast path to a free name, and the path through the table.

use std::{sync::Arc, time::Duration};

use super::{
    claims::{ClaimCell, ClaimEntry, ClaimState, lock_mutex},
    dir::idle::IdleFile,
    dir::open::Access,
    engine::FileEngine,
    kernel::locks::{LATCH_TRIES, LATCH_TRIES_TO_SHARE, LockFile, Mark, NamePaths},
    table::layout::HEADER_SIZE,
    table::record::{NO_WAKE_PIPE, Record, RecordState},
    table::wait_order::{Asker, Judgement, Verdict, is_in_min_hold},
    table::{Table, record_zero},
    wake::listener::WATCHING_POSITIONS,
};
use crate::{Answer, Claim, EngineError, Fault, Grant, Hint, How, Instant, Loss, Mode};

/// How often a lock file may be replaced between opening and locking before the directory counts as replaced.
const MAX_OPENS: usize = 16;

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
type Created = (Option<Box<ClaimEntry>>, Answer);

impl FileEngine {
    /// The verb `claim`: takes the name, or enqueues the claim, or returns its current state.
    pub(super) fn claim_now(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        let cell = match how {
            How::Create => self.claims.get_or_create(claim.id),
            How::Ask => self.claims.find(claim.id),
        };
        let Some(cell) = cell else { return Ok(Answer::Gone) };
        let mut cell = lock_mutex(&cell);
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
                // The entry of a lost hold stays until its release: the code under that hold may still run.
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
        let (paths, mut idle_file) = match self.idle_files.take(&claim.name) {
            Some(IdleFile { paths, lock_file }) => (paths, Some(lock_file)),
            None => (Arc::new(NamePaths::new(&self.dir, &claim.name)), None),
        };
        for _ in 0..MAX_OPENS {
            let opened = match idle_file.take() {
                Some(lock_file) => Ok(Some(lock_file)),
                None => LockFile::open(&self.dir, &paths, Access::CreateIfMissing),
            };
            let lock_file = match opened {
                Ok(Some(lock_file)) => lock_file,
                Ok(None) => continue,
                // The open may have failed because of the descriptors in the cache of idle lock files.
                Err(_) if self.idle_files.close_all() => continue,
                Err(error) => return Err(error),
            };
            match self.try_on_file(claim, &paths, lock_file) {
                Ok(Some(created)) => return Ok(created),
                Ok(None) => {}
                Err(error) => return self.result_of_failed_create(&paths, error),
            }
        }
        Err(EngineError::new(
            Fault::Misconfigured,
            format!(
                "{} is not the file that was just locked: the directory was replaced; restart the program",
                paths.shown_path()
            ),
        ))
    }

    /// The result of a first claim that failed with `error`: this error, or *taken* where another program has locked
    /// the whole lock file. In that case no claim can set its mark, and that program holds the name.
    fn result_of_failed_create(&self, paths: &NamePaths, error: EngineError) -> Result<Created, EngineError> {
        match LockFile::open(&self.dir, paths, Access::Existing)? {
            Some(lock_file) if lock_file.is_locked_by_another_program()? => Ok((None, taken_answer())),
            _ => Err(error),
        }
    }

    /// Tries on one open lock file; `None` when the path leads to another file by now.
    fn try_on_file(
        &self,
        claim: &Claim,
        paths: &Arc<NamePaths>,
        lock_file: LockFile,
    ) -> Result<Option<Created>, EngineError> {
        let mut has_flock = false;
        if claim.mode == Mode::Exclusive {
            has_flock = lock_file.try_flock(claim.mode)?;
            if (has_flock || !claim.may_queue) && !lock_file.is_at_path(paths)? {
                return Ok(None);
            }
            if has_flock {
                if let Some((claim_state, grant)) = self.grant_by_fast_path(claim, paths, &lock_file)? {
                    return Ok(Some((
                        Some(new_entry(claim, paths, lock_file, claim_state)),
                        Answer::Held(grant),
                    )));
                }
            } else if !claim.may_queue && !self.is_table_in_use(paths)? {
                return Ok(Some((None, taken_answer())));
            }
        }
        self.claim_through_table(claim, paths, lock_file, has_flock)
    }

    /// The fast path: this claim has the exclusive flock and the table is empty. `None`: the table is in use.
    fn grant_by_fast_path(
        &self,
        claim: &Claim,
        paths: &NamePaths,
        lock_file: &LockFile,
    ) -> Result<Option<(ClaimState, Grant)>, EngineError> {
        let Some(state_file) = self.state_files.get(&self.dir, paths, Access::CreateIfMissing)? else {
            return Ok(None);
        };
        let Some((mut header, bytes)) = state_file.header(&paths.name)? else { return Ok(None) };
        let now = self.env.clock.now();
        let record_zero = record_zero(&header, &bytes, self.boot_id);
        if header.table.in_use
            || record_zero.as_ref().is_some_and(|record_zero| is_in_min_hold(&record_zero.record, now))
        {
            return Ok(None);
        }
        self.grant_exclusive(claim, lock_file, &state_file, &mut header, record_zero.as_ref(), now).map(Some)
    }

    /// Whether the table is in use. If it is, a claim that is not granted goes through the table, to report the reason.
    fn is_table_in_use(&self, paths: &NamePaths) -> Result<bool, EngineError> {
        let Some(state_file) = self.state_files.get(&self.dir, paths, Access::CreateIfMissing)? else {
            return Ok(false);
        };
        Ok(state_file
            .header(&paths.name)?
            .is_some_and(|(header, _): (_, [u8; HEADER_SIZE])| header.table.in_use))
    }

    /// Claims through the table: grants or enqueues the claim, or reports why it does neither. `has_flock`: this claim
    /// has the exclusive flock already. `None` when the path leads to another file by now.
    fn claim_through_table(
        &self,
        claim: &Claim,
        paths: &Arc<NamePaths>,
        lock_file: LockFile,
        has_flock: bool,
    ) -> Result<Option<Created>, EngineError> {
        let tries = match (claim.may_queue, claim.mode) {
            (true, _) | (false, Mode::Exclusive) => LATCH_TRIES,
            (false, Mode::Shared | Mode::Permits { .. }) => LATCH_TRIES_TO_SHARE,
        };
        let latch = match lock_file.latch_within(tries) {
            Ok(latch) => latch,
            Err(latch_error) => {
                self.release_flock(paths, &lock_file, has_flock);
                // The table is in use, or is about to be: an exclusive try is too late, whatever the table holds. A
                // claim in another mode may still fit beside the current holders.
                let is_taken =
                    !claim.may_queue && claim.mode == Mode::Exclusive && latch_error.fault == Fault::Retry;
                return if is_taken { Ok(Some((None, taken_answer()))) } else { Err(latch_error) };
            }
        };
        if !lock_file.is_at_path(paths)? {
            return Ok(None);
        }
        let state_file = self
            .state_files
            .get(&self.dir, paths, Access::CreateIfMissing)?
            .ok_or_else(state_file_removed_error)?;
        let mut table = Table::load(self, paths, &lock_file, &state_file, latch)?;
        let asker = Asker { mode: claim.mode, ticket: None };
        let (mut judgement, granted) = self.judge_and_grant(&mut table, claim, paths, asker, has_flock)?;
        if let Some((claim_state, grant)) = granted {
            drop(table);
            return Ok(Some((Some(new_entry(claim, paths, lock_file, claim_state)), Answer::Held(grant))));
        }
        if let Verdict::Clash(other) = judgement.verdict {
            return Err(clash_error(claim.mode, other));
        }
        if !claim.may_queue {
            table.reset_if_empty()?;
            return Ok(Some((None, Answer::Taken(self.hint(&judgement)))));
        }
        let (slot, ticket) = self.enqueue(&mut table, claim)?;
        let mut claim_state = None;
        if judgement.verdict == Verdict::Behind && judgement.ahead as usize >= WATCHING_POSITIONS {
            // This claim needs no watch: at every release, the live waiters ahead of it are signalled.
            self.listener.register(claim, table.lock_file, slot, judgement.ahead as usize);
        } else {
            // The claim is in the queue now. Judge it again: a release before its record was written signalled no one.
            table.refresh(self, paths)?;
            (judgement, claim_state) = self.try_to_grant(&mut table, claim, paths, slot, ticket)?;
        }
        drop(table);
        let (claim_state, answer) = match claim_state {
            Some((claim_state, grant)) => (claim_state, Answer::Held(grant)),
            None => (ClaimState::Waiting { slot, ticket }, Answer::Waiting(self.hint(&judgement))),
        };
        Ok(Some((Some(new_entry(claim, paths, lock_file, claim_state)), answer)))
    }

    /// Gives the claim a ticket and a record in the queue.
    fn enqueue(&self, table: &mut Table<'_>, claim: &Claim) -> Result<(u32, u64), EngineError> {
        let wake_pipe = self.listener.wake_pipe(&self.dir);
        let (slot, ticket) = table.assign_slot()?;
        table.lock_file.set_mark(Mark::Ticket(ticket))?;
        let record = Record {
            ticket,
            wake_pipe,
            ..self.new_record(claim, RecordState::Waiting, self.env.clock.now())
        };
        table.write_record(slot, record)?;
        Ok((slot, ticket))
    }

    /// The state of a claim that waits or holds; tries to grant to a waiting one.
    fn ask(&self, entry: &mut ClaimEntry) -> Result<Answer, EngineError> {
        let (slot, ticket) = match entry.claim_state {
            ClaimState::Waiting { slot, ticket } => (slot, ticket),
            ClaimState::Holding { token, tokens, previous, .. } => {
                let grant = Grant { token, tokens, ttl: None, previous };
                let replaced = self.loss_of(entry)? == Some(Loss::Replaced);
                return Ok(if replaced { Answer::Gone } else { Answer::Held(grant) });
            }
        };
        // Near the head of the queue, where a hand-over may be under way, the table is read once only.
        if !self.listener.is_near(entry.claim.id)
            && let Some(ahead) = self.waiters_ahead_if_far_back(entry, ticket)?
        {
            return Ok(Answer::Waiting(Hint {
                ask_in: Some(self.poll_interval(ahead)),
                ahead: Some(ahead),
                obstacle: None,
            }));
        }
        let latch = entry.lock_file.latch()?;
        if !entry.lock_file.is_at_path(&entry.paths)? {
            return Ok(Answer::Gone);
        }
        let Some(state_file) = self.state_files.get(&self.dir, &entry.paths, Access::Existing)? else {
            return Ok(Answer::Gone);
        };
        let mut table = Table::load(self, &entry.paths, &entry.lock_file, &state_file, latch)?;
        let stored = table.records.iter_mut().find(|stored| stored.slot == slot);
        let Some(stored) = stored.filter(|stored| stored.record.id == entry.claim.id) else {
            return Ok(Answer::Gone);
        };
        if stored.record.signalled_at.take().is_some() {
            super::wake::wake_pipe::clear_signal(&state_file, slot)?;
        }
        let (judgement, granted) = self.try_to_grant(&mut table, &entry.claim, &entry.paths, slot, ticket)?;
        Ok(match granted {
            Some((claim_state, grant)) => {
                entry.claim_state = claim_state;
                Answer::Held(grant)
            }
            None => Answer::Waiting(self.hint(&judgement)),
        })
    }

    /// Tries to grant to a waiting claim, and signals the waiters whose position or chance changes by the outcome.
    fn try_to_grant(
        &self,
        table: &mut Table<'_>,
        claim: &Claim,
        paths: &NamePaths,
        slot: u32,
        ticket: u64,
    ) -> Result<(Judgement, Option<(ClaimState, Grant)>), EngineError> {
        // Registered before the attempt, so that a release after the attempt is noticed.
        let waiters_ahead = table
            .records
            .iter()
            .filter(|stored| stored.record.state == RecordState::Waiting && stored.record.ticket < ticket);
        self.listener.register(claim, table.lock_file, slot, waiters_ahead.count());
        let asker = Asker { mode: claim.mode, ticket: Some(ticket) };
        let has_flock = false;
        let (judgement, granted) = self.judge_and_grant(table, claim, paths, asker, has_flock)?;
        if granted.is_some() {
            self.listener.forget(claim.id);
            // After an exclusive grant only the new second waiter has to learn its new position, to watch the file.
            let first = usize::from(claim.mode == Mode::Exclusive);
            self.signal(table.lock_file, table.state_file, &table.records, first..2);
        } else if judgement.verdict == Verdict::Behind && judgement.ahead == 1 {
            // Perhaps nothing has signalled the head of the queue: the holder may have been killed, or the watch may
            // have failed.
            self.signal(table.lock_file, table.state_file, &table.records, 0..1);
        }
        Ok((judgement, granted))
    }

    /// Judges by the table, takes the flock if the table allows that, judges again, now by a state that cannot change
    /// any more, and grants if nothing blocks the claim. `has_flock`: this claim has its flock already.
    fn judge_and_grant(
        &self,
        table: &mut Table<'_>,
        claim: &Claim,
        paths: &NamePaths,
        asker: Asker,
        mut has_flock: bool,
    ) -> Result<(Judgement, Option<(ClaimState, Grant)>), EngineError> {
        let mut judgement = table.judge(asker, self.env.clock.now())?;
        if !has_flock && judgement.verdict == Verdict::Free {
            has_flock =
                flock_with_retries(claim.mode, claim.may_queue, || table.lock_file.try_flock(claim.mode))?;
            if has_flock {
                table.refresh(self, paths)?;
                judgement = table.judge(asker, self.env.clock.now())?;
            } else {
                judgement.verdict = Verdict::Held;
            }
        }
        if has_flock && judgement.verdict == Verdict::Free {
            return match self.grant(table, claim, asker.ticket) {
                Ok(granted) => Ok((judgement, Some(granted))),
                Err(error) => {
                    table.lock_file.unflock();
                    self.signal(table.lock_file, table.state_file, &table.records, 0..2);
                    Err(error)
                }
            };
        }
        if has_flock {
            // Another claim may have tried in vain while this one had the flock.
            table.lock_file.unflock();
            self.signal(table.lock_file, table.state_file, &table.records, 0..1);
        }
        Ok((judgement, None))
    }

    /// Releases the flock of a claim that could not be granted, without the latch.
    fn release_flock(&self, paths: &NamePaths, lock_file: &LockFile, has_flock: bool) {
        if has_flock {
            lock_file.unflock();
            if let Ok(Some(state_file)) = self.state_files.get(&self.dir, paths, Access::Existing) {
                self.signal_waiters(lock_file, &state_file, 0..1);
            }
        }
    }

    /// The hint to core for a claim that was not granted.
    fn hint(&self, judgement: &Judgement) -> Hint {
        let ask_in = match judgement.verdict {
            Verdict::MinHold(until) => until.since(self.env.clock.now()),
            _ => self.poll_interval(judgement.ahead),
        };
        Hint { ask_in: Some(ask_in), ahead: Some(judgement.ahead), obstacle: None }
    }

    /// The poll interval of a claim with `ahead` claims ahead.
    fn poll_interval(&self, ahead: u32) -> Duration {
        let (per_position, longest) = match self.listener.has_wake_pipe() {
            true => (INTERVAL_PER_POSITION, FAR_INTERVAL),
            false => (NO_PIPE_INTERVAL_PER_POSITION, NO_PIPE_FAR_INTERVAL),
        };
        (per_position * ahead).clamp(NEAR_INTERVAL, longest)
    }

    /// A record for the claim, without ticket and token.
    pub(super) fn new_record(&self, claim: &Claim, record_state: RecordState, since: Instant) -> Record {
        Record {
            state: record_state,
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
            signalled_at: None,
            broken_token: 0,
        }
    }
}

/// Takes the flock for a claim that nothing in the table blocks; returns whether the claim has the flock now. A try in
/// shared mode or for permits, which is not repeated by core, retries here, because an exclusive claim may have the
/// flock for a moment: an exclusive claim takes the flock before it reads the table, and releases it when it cannot be
/// granted.
fn flock_with_retries(
    mode: Mode,
    may_queue: bool,
    mut try_flock: impl FnMut() -> Result<bool, EngineError>,
) -> Result<bool, EngineError> {
    let is_last_chance = !may_queue && mode != Mode::Exclusive;
    for _ in 1..if is_last_chance { LATCH_TRIES_TO_SHARE } else { 1 } {
        if try_flock()? {
            return Ok(true);
        }
        std::thread::yield_now();
    }
    try_flock()
}

/// The answer for a name that another claim, or another program, has taken.
fn taken_answer() -> Answer {
    Answer::Taken(Hint { ask_in: Some(NEAR_INTERVAL), ..Hint::default() })
}

/// The entry of a claim that waits or holds from now on.
fn new_entry(
    claim: &Claim,
    paths: &Arc<NamePaths>,
    lock_file: LockFile,
    claim_state: ClaimState,
) -> Box<ClaimEntry> {
    Box::new(ClaimEntry { claim: claim.clone(), paths: Arc::clone(paths), lock_file, claim_state })
}

/// The error for a claim whose mode is of another kind than the mode in use.
fn clash_error(wanted: Mode, other: Mode) -> EngineError {
    let kind_of_lock = |mode: Mode| match mode.limit() {
        None => "a lock (exclusive or shared)".to_owned(),
        Some(limit) => format!("a semaphore of {limit} permits"),
    };
    EngineError::new(
        Fault::Misconfigured,
        format!(
            "it is in use as {}, and was requested as {}: use another name for each kind of lock",
            kind_of_lock(other),
            kind_of_lock(wanted)
        ),
    )
}

fn state_file_removed_error() -> EngineError {
    EngineError::new(Fault::Retry, "the state file was removed while it was opened")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a claim got a flock that is free from try `free_at` on, and how often it tried.
    fn flock_free_at(mode: Mode, may_queue: bool, free_at: usize) -> (bool, usize) {
        let mut tries = 0;
        let taken = flock_with_retries(mode, may_queue, || {
            tries += 1;
            Ok(tries >= free_at)
        });
        (taken.unwrap(), tries)
    }

    /// I13: "taken" is answered only if the name is taken, and not because an exclusive claim has the flock for a
    /// moment.
    #[test]
    fn a_shared_try_outlasts_a_brief_exclusive_flock() {
        for mode in [Mode::Shared, Mode::Permits { count: 1, limit: 2 }] {
            assert_eq!(flock_free_at(mode, false, 40), (true, 40));
            assert_eq!(
                flock_free_at(mode, false, usize::MAX),
                (false, LATCH_TRIES_TO_SHARE),
                "it comes to an end"
            );
            assert_eq!(flock_free_at(mode, true, 40), (false, 1), "it is asked again");
        }
        assert_eq!(flock_free_at(Mode::Exclusive, false, 40), (false, 1), "any holder blocks it");
    }
}
