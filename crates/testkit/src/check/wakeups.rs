//! I7: no waiter waits while the lock would admit all waiters.

use std::collections::{BTreeSet, HashMap};

use leasehold_core::Mode;

use super::{
    Figure, Invariant, Verdict,
    attempt_history::{AttemptHistory, Failure, Outcome},
    finding::Finding,
    history_index::{HistoryIndex, merged},
    hold_counts::HoldCounts,
    report::millis,
    stalls::{self, length_within},
    terms::nanos,
};

pub(super) fn check(index: &HistoryIndex<'_>) -> Verdict {
    let mut finding = Finding::new(index, Invariant::WakeUps);
    let mut waits_for_free_lock = Vec::new();
    for attempts in index.by_lock() {
        let stalls = stalls_of(index, &attempts);
        let (finding, waits_for_free_lock) = (&mut finding, &mut waits_for_free_lock);
        Sweep {
            index,
            attempts: &attempts,
            stalls,
            finding,
            waits_for_free_lock,
            state: LockState::default(),
        }
        .run();
    }
    waits_for_free_lock.sort_unstable();
    if let (Some(max), Some(p99)) = (
        waits_for_free_lock.last(),
        waits_for_free_lock.get(waits_for_free_lock.len().saturating_sub(1) * 99 / 100),
    ) {
        finding.figure("longest", Figure::Longest(*max));
        finding.figure("p99", Figure::Longest(*p99));
    }
    finding.done()
}

/// The begin or the end of a span. Of two marks at the same instant, an end sorts before a begin: when an acquire
/// returns, its wait ends before its hold begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    at: u64,
    begins: bool,
    span: Span,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Span {
    /// The attempt may hold the lock. The end of this hold notifies the waiters.
    Holds(usize),
    /// The attempt may hold the lock. The end of this hold notifies no waiter.
    Lapses(usize),
    /// The attempt waits for the lock.
    Waits(usize),
    /// The system is disturbed, or a process that waits for the lock is paused. Meanwhile no waiter is checked.
    Storm,
    /// Notifications are cut.
    Cut,
}

/// The state of the lock between two marks.
#[derive(Default)]
struct LockState {
    hold_counts: HoldCounts,
    /// The attempts that wait.
    waiting: BTreeSet<usize>,
    /// The number of waiting attempts by mode.
    wanted: HashMap<Mode, usize>,
    /// How many spans of the kind [`Span::Storm`] have begun and not ended. The next field counts those of the kind
    /// [`Span::Cut`].
    storms: usize,
    cuts: usize,
    /// The current period in which the lock would admit all waiters. `None`: at present the lock would not admit them.
    free: Option<FreeTime>,
    /// When the newest hold of any mode began, and when the newest exclusive hold began.
    last_begins: (u64, u64),
    /// The time by which the waiters have noticed the end of the newest hold that was reported lost. On the server,
    /// such a hold may have lasted until the end of its lease.
    noticed_by: u64,
}

/// A time in which the lock would admit all waiters.
#[derive(Clone, Copy)]
struct FreeTime {
    since: u64,
    /// The attempt whose hold ended and made the lock free.
    after: Option<usize>,
    /// Whether no notification of the free lock was sent, so that the waiters have to find out by polling.
    without_notification: bool,
}

impl LockState {
    /// Whether the lock would admit all waiters, and the system is not disturbed.
    fn is_free(&self) -> bool {
        let admitted = || self.wanted.keys().all(|mode| self.hold_counts.admits(*mode));
        self.storms == 0 && !self.waiting.is_empty() && admitted()
    }

    /// Applies a begin or an end. `mode` gives the mode of an attempt.
    fn apply(&mut self, mark: Mark, mode: impl Fn(usize) -> Mode) {
        let count = |count: &mut usize| if mark.begins { *count += 1 } else { *count -= 1 };
        match mark.span {
            Span::Holds(attempt) | Span::Lapses(attempt) if mark.begins => {
                self.hold_counts.add(mode(attempt))
            }
            Span::Holds(attempt) | Span::Lapses(attempt) => self.hold_counts.remove(mode(attempt)),
            Span::Storm => count(&mut self.storms),
            Span::Cut => count(&mut self.cuts),
            Span::Waits(attempt) => {
                if mark.begins {
                    self.waiting.insert(attempt)
                } else {
                    self.waiting.remove(&attempt)
                };
                let wanted = self.wanted.entry(mode(attempt)).or_default();
                count(wanted);
                if *wanted == 0 {
                    self.wanted.remove(&mode(attempt));
                }
            }
        }
    }
}

/// A pass over the marks of one lock.
struct Sweep<'s, 'b, 'h> {
    index: &'b HistoryIndex<'h>,
    attempts: &'s [&'b AttemptHistory<'h>],
    /// When the machine gave no time to an attempt on this lock, or to something that all processes share.
    stalls: Vec<stalls::Span>,
    finding: &'s mut Finding<'b, 'h>,
    /// How long each attempt waited for a free lock.
    waits_for_free_lock: &'s mut Vec<u64>,
    state: LockState,
}

impl Sweep<'_, '_, '_> {
    /// Goes through all marks.
    fn run(&mut self) {
        let attempts = self.attempts;
        for mark in marks(self.index, attempts) {
            if let (Span::Waits(attempt), false) = (mark.span, mark.begins) {
                self.finding.checked();
                self.check_wait(attempt, mark.at, true);
            }
            self.state.apply(mark, |attempt| attempts[attempt].mode);
            self.update_noticed_by(mark);
            match (self.state.is_free(), self.state.free) {
                (true, None) => {
                    let (after, notifies) = match mark.span {
                        Span::Holds(attempt) => (Some(attempt), true),
                        Span::Lapses(attempt) => (Some(attempt), false),
                        Span::Storm => (None, false),
                        Span::Waits(_) | Span::Cut => (None, true),
                    };
                    let without_notification = !notifies || self.state.cuts > 0;
                    self.state.free = Some(FreeTime { since: mark.at, after, without_notification });
                }
                (true, Some(free)) => {
                    self.state.free = Some(FreeTime {
                        without_notification: free.without_notification || self.state.cuts > 0,
                        ..free
                    });
                }
                (false, Some(_)) => {
                    if let Some(&oldest) = self.state.waiting.first() {
                        self.check_wait(oldest, mark.at, false);
                    }
                    self.state.free = None;
                }
                (false, None) => {}
            }
        }
    }

    /// Updates the time by which the waiters know of the end of a lost hold. When one waiter is granted the lock, all
    /// waiters that can hold the lock together with it are granted too. So from then on all waiters know of the end.
    fn update_noticed_by(&mut self, mark: Mark) {
        let (Span::Holds(number) | Span::Lapses(number)) = mark.span else { return };
        let attempt = self.attempts[number];
        if mark.begins {
            // It is not known when a part of a larger request was granted the lock.
            if attempt.grant.is_none() || attempt.may_hold_unseen() {
                return;
            }
            self.state.noticed_by = self.state.noticed_by.min(mark.at);
            self.state.last_begins.0 = mark.at;
            if attempt.mode == Mode::Exclusive {
                self.state.last_begins.1 = mark.at;
            }
        } else if let Some(lost) = attempt.lost_without_release() {
            let after = if attempt.mode == Mode::Exclusive {
                self.state.last_begins.0
            } else {
                self.state.last_begins.1
            };
            // The checker assumes that the lost hold ended at `mark.at`. If a hold that conflicts with the lost hold
            // has begun since the loss was reported, the lost hold ended earlier.
            if after <= lost {
                self.state.noticed_by = mark.at.saturating_add(nanos(self.index.terms.lapse));
            }
        }
    }

    /// Checks how long an attempt has waited while the lock was free, up to `at`. If `leaves` is true, the attempt
    /// stops waiting at `at`, and the length of its wait is recorded.
    fn check_wait(&mut self, attempt: usize, at: u64, leaves: bool) {
        let Some(free) = self.state.free else { return };
        let waiter = self.attempts[attempt];
        let since = free.since.max(waiter.invoked);
        let wait = at - since - length_within(&self.stalls, since, at);
        if leaves {
            self.waits_for_free_lock.push(wait);
        }
        let terms = self.index.terms;
        let allowed =
            if free.without_notification { terms.wake.saturating_add(terms.poll) } else { terms.wake };
        let unknown = self.state.noticed_by.saturating_sub(since);
        if wait > nanos(allowed).max(unknown.saturating_add(nanos(terms.wake))) {
            let shown: Vec<_> =
                free.after.map(|attempt| self.attempts[attempt]).into_iter().chain([waiter]).collect();
            self.finding.violated(&shown, &[], || {
                format!("the lock was free for {} while {waiter} waited", millis(wait))
            });
        }
    }
}

/// The stalls that count for all waiters of a lock. A stall of one process counts while the process asks for the lock,
/// because its claim may be at the head of the queue. A stall of a shared part always counts.
fn stalls_of(index: &HistoryIndex<'_>, attempts: &[&AttemptHistory<'_>]) -> Vec<stalls::Span> {
    let own = attempts
        .iter()
        .flat_map(|attempt| index.stalls.own(attempt.proc, attempt.invoked, asks_until(index, attempt)));
    merged(own.chain(index.stalls.shared().iter().copied()).collect())
}

/// When an attempt stops asking for the lock.
fn asks_until(index: &HistoryIndex<'_>, attempt: &AttemptHistory<'_>) -> u64 {
    attempt.returned().into_iter().chain(attempt.killed_at).min().unwrap_or(index.end)
}

/// The begins and ends of the spans of one lock, in order.
fn marks(index: &HistoryIndex<'_>, attempts: &[&AttemptHistory<'_>]) -> Vec<Mark> {
    let mut marks = Vec::new();
    let mut add_span = |from, until, kind| {
        if from < until {
            marks.push(Mark { at: from, begins: true, span: kind });
            marks.push(Mark { at: until, begins: false, span: kind });
        }
    };
    for (number, attempt) in attempts.iter().enumerate() {
        if let Some((from, until, notifies)) = held_span(index, attempt) {
            add_span(from, until, if notifies { Span::Holds(number) } else { Span::Lapses(number) });
        }
        let until = asks_until(index, attempt);
        // What a part of a larger request waits for is not known.
        if !attempt.is_try() && !attempt.is_part() {
            add_span(attempt.invoked, until, Span::Waits(number));
        }
        for (from, until) in index.stopped(attempt.proc, attempt.invoked, until) {
            add_span(from, until, Span::Storm);
        }
    }
    for &(from, until) in &index.storms {
        add_span(from, until, Span::Storm);
    }
    for &(from, until) in &index.cuts {
        add_span(from, until, Span::Cut);
    }
    marks.sort_unstable();
    marks
}

/// When an attempt may hold the lock on the server, and whether the end of this hold notifies the waiters.
fn held_span(index: &HistoryIndex<'_>, attempt: &AttemptHistory<'_>) -> Option<(u64, u64, bool)> {
    let until = index.latest_end(attempt);
    let has_min_hold = attempt.release.is_some_and(|release| release.min_hold.is_some());
    match (attempt.grant, attempt.failure) {
        (Some(grant), _) => {
            let notified =
                attempt.answer.is_some_and(|(_, outcome)| outcome != Outcome::Unknown) && !has_min_hold;
            let from = if attempt.may_hold_unseen() { attempt.invoked } else { grant.at };
            Some((from, until.max(grant.at), notified))
        }
        (None, Some((_, Failure::Taken))) if attempt.leaves_nothing_if_taken() => None,
        (None, _) if attempt.may_hold_unseen() => {
            Some((attempt.invoked, until.max(attempt.invoked), attempt.killed_at.is_none()))
        }
        (None, failure) => {
            // An attempt without a grant that still waits counts as a waiter and not as a holder. If the server has
            // granted it the lock, it is a waiter that was not woken.
            let waited = failure.map(|(at, _)| at).or(attempt.killed_at)?;
            let from = if attempt.is_try() { attempt.invoked } else { waited };
            Some((from, until.max(from), attempt.killed_at.is_none()))
        }
    }
}
