//! Checks I3 and I13 a second way, by trying every order. It is slow, and written only from the text of
//! `docs/rules.md`.

use std::collections::BTreeMap;

use leasehold_core::Mode;
use leasehold_testkit::{
    check::{Invariant, Outcome, Terms, check},
    history::{Event, History, RecordedMode, What},
};

use super::{rng::Rng, scenario::number};

const MS: u64 = 1_000_000;
/// The lease of every hold, and how long the remains of an attempt without a grant may stay.
const TTL: u64 = 5 * MS;
const STAYS: u64 = 4 * MS;
/// The largest number of operations whose orders are tried.
const MOST: usize = 7;

/// One attempt of a small history.
#[derive(Clone, Debug)]
struct SmallAttempt {
    mode: Mode,
    is_try: bool,
    called: u64,
    returned: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Taken,
    Unknown,
    /// A grant with its token. Its request left when the acquire was called.
    Granted(u64, ReleaseKind),
}

/// When and how a hold was released. `FreedAfter` has a minimum hold time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ReleaseKind {
    Never,
    Freed(u64, u64),
    FreedAfter(u64, u64, u64),
    NotHeld(u64, u64),
    Unknown(u64, u64),
}

fn attempts(rng: &mut Rng) -> Vec<SmallAttempt> {
    let modes: &[Mode] = match rng.between(0, 3) {
        0 => &[Mode::Exclusive],
        1 => &[Mode::Exclusive, Mode::Shared],
        _ => &[Mode::Permits { count: 1, limit: 3 }, Mode::Permits { count: 2, limit: 3 }],
    };
    let ordered = rng.percent(70);
    (1..=rng.between(2, 5))
        .map(|number| {
            let called = rng.between(0, 20) * MS;
            let returned = called + rng.between(1, 8) * MS;
            // In most histories the tokens follow the calls, so that enough histories are legal.
            let token = if ordered { called / MS * 10 + number } else { rng.between(1, 6) };
            let leaves = returned + rng.between(0, 12) * MS;
            let answered = leaves + rng.between(0, 5) * MS;
            let left = match rng.between(0, 8) {
                0 => ReleaseKind::Never,
                1 => ReleaseKind::NotHeld(leaves, answered),
                2 => ReleaseKind::Unknown(leaves, answered),
                3 => ReleaseKind::FreedAfter(leaves, answered, rng.between(1, 8) * MS),
                _ => ReleaseKind::Freed(leaves, answered),
            };
            let end = match rng.between(0, 10) {
                0 => End::Unknown,
                1..4 => End::Taken,
                _ => End::Granted(token, left),
            };
            SmallAttempt { mode: rng.one_of(modes), is_try: rng.percent(90), called, returned, end }
        })
        .collect()
}

fn history(attempts: &[SmallAttempt]) -> History {
    let mut events = Vec::new();
    for (attempt, id) in attempts.iter().zip(1..) {
        let mut push = |t, what| {
            let lock = "l".to_owned();
            events.push(Event { run: 1, proc: 1, seq: 0, t, task: 0, lock, attempt: id, what });
        };
        let limit = attempt.is_try.then_some(0);
        push(
            attempt.called,
            What::AcqInv { mode: RecordedMode(attempt.mode), limit, within: None, retries: false },
        );
        match attempt.end {
            End::Taken => push(attempt.returned, What::AcqTaken),
            End::Unknown => push(attempt.returned, What::AcqUnknown { err: String::new() }),
            End::Granted(token, left) => {
                let ok = What::AcqOk {
                    token,
                    lineage: "0".into(),
                    deadline: Some(attempt.called + TTL),
                    ttl: Some(TTL),
                    asked: Some(attempt.called),
                    watched: false,
                    fixed: false,
                };
                push(attempt.returned, ok);
                let mut leave = |at, answered, min_hold, what| {
                    push(at, What::RelInv { min_hold, sure: None });
                    push(answered, what);
                };
                match left {
                    ReleaseKind::Never => {}
                    ReleaseKind::Freed(at, answered) => leave(at, answered, None, What::RelOk),
                    ReleaseKind::FreedAfter(at, answered, min_hold) => {
                        leave(at, answered, Some(min_hold), What::RelOk)
                    }
                    ReleaseKind::NotHeld(at, answered) => leave(at, answered, None, What::RelNotheld),
                    ReleaseKind::Unknown(at, answered) => {
                        leave(at, answered, None, What::RelUnknown { err: String::new() });
                    }
                }
            }
        }
    }
    History::from_events(number(events))
}

fn terms() -> Terms {
    let mut terms = Terms::default();
    terms.drift = 0.0;
    terms.precision = std::time::Duration::ZERO;
    terms.report_limit = std::time::Duration::ZERO;
    terms.cancelled = std::time::Duration::from_nanos(STAYS);
    terms
}

/// The lock as the rules describe it.
#[derive(Clone, Debug, PartialEq)]
enum Lock {
    Free,
    Exclusive(usize),
    Shared(Vec<usize>),
    Permits(BTreeMap<usize, u32>, u32),
}

impl Lock {
    fn grant(&self, to: usize, mode: Mode) -> Option<Self> {
        match (self.clone(), mode) {
            (Self::Free, Mode::Exclusive) => Some(Self::Exclusive(to)),
            (Self::Free, Mode::Shared) => Some(Self::Shared(vec![to])),
            (Self::Shared(mut set), Mode::Shared) => {
                set.push(to);
                Some(Self::Shared(set))
            }
            (Self::Free, Mode::Permits { count, limit }) => Some(Self::Permits([(to, count)].into(), limit)),
            (Self::Permits(mut held, limit), Mode::Permits { count, .. }) => {
                let free = held.values().sum::<u32>() + count <= limit;
                held.insert(to, count);
                free.then_some(Self::Permits(held, limit))
            }
            _ => None,
        }
    }

    /// The lock without this holder. `None`: it holds nothing.
    fn free(&self, of: usize) -> Option<Self> {
        match self.clone() {
            Self::Exclusive(holder) if holder == of => Some(Self::Free),
            Self::Shared(mut set) if set.contains(&of) => {
                set.retain(|holder| *holder != of);
                Some(if set.is_empty() { Self::Free } else { Self::Shared(set) })
            }
            Self::Permits(mut held, limit) if held.contains_key(&of) => {
                held.remove(&of);
                Some(if held.is_empty() { Self::Free } else { Self::Permits(held, limit) })
            }
            _ => None,
        }
    }
}

/// An operation that takes effect once between two times, or never if `back` is `u64::MAX`.
#[derive(Clone, Copy, Debug)]
struct Operation {
    index: usize,
    call: u64,
    back: u64,
    what: Act,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Grant,
    /// The claim must hold.
    Release,
    /// The claim must not hold afterwards.
    End,
    Refuse,
}

fn operations(attempts: &[SmallAttempt], refusals: bool) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (index, attempt) in attempts.iter().enumerate() {
        let mut act = |what, call, back| operations.push(Operation { index, call, back, what });
        let lapses = attempt.called + TTL;
        match attempt.end {
            End::Taken if refusals && !in_queue(attempts, index) => {
                act(Act::Refuse, attempt.called, attempt.returned);
            }
            End::Taken => {}
            End::Unknown => {
                // It may be granted or not, but not after it was cleaned up.
                act(Act::Grant, attempt.called, u64::MAX);
                act(Act::End, attempt.called, attempt.returned + STAYS);
            }
            End::Granted(_, left) => {
                act(Act::Grant, attempt.called, attempt.returned);
                match left {
                    ReleaseKind::Never => act(Act::End, lapses, u64::MAX),
                    ReleaseKind::Freed(at, answered) => act(Act::Release, at, answered),
                    ReleaseKind::FreedAfter(at, answered, min_hold) => {
                        act(Act::End, at + min_hold, answered + min_hold)
                    }
                    ReleaseKind::NotHeld(at, answered) => act(Act::End, lapses.min(at), answered),
                    ReleaseKind::Unknown(at, _) => act(Act::End, lapses.min(at), (at + TTL).max(lapses)),
                }
            }
        }
    }
    operations
}

/// Whether another attempt is or may be queued while this one is refused.
fn in_queue(attempts: &[SmallAttempt], refused: usize) -> bool {
    let me = &attempts[refused];
    attempts.iter().enumerate().any(|(index, other)| {
        let until = match other.end {
            End::Granted(..) if other.is_try => return false,
            End::Taken if other.is_try => return false,
            End::Granted(..) => other.returned,
            End::Taken | End::Unknown => other.returned + STAYS,
        };
        index != refused && other.called <= me.returned && until >= me.called
    })
}

/// Whether some order of the remaining operations explains them all.
fn explained(attempts: &[SmallAttempt], left: &[Operation], lock: &Lock, granted: &[usize]) -> bool {
    if left.iter().all(|operation| operation.back == u64::MAX) {
        return true;
    }
    let earliest = left.iter().map(|operation| operation.back).min().unwrap();
    (0..left.len()).filter(|&next| left[next].call <= earliest).any(|next| {
        let Operation { index, what, .. } = left[next];
        let has_begun = granted.contains(&index);
        let is_over = !left.iter().any(|other| other.index == index && other.what != Act::Grant);
        let mut granted = granted.to_vec();
        let after = match what {
            Act::Grant if is_over => None,
            Act::Grant => {
                granted.push(index);
                lock.grant(index, attempts[index].mode).filter(|_| in_order(attempts, &granted))
            }
            Act::Release => lock.free(index),
            Act::End if has_begun || attempts[index].end == End::Unknown => {
                Some(lock.free(index).unwrap_or(lock.clone()))
            }
            Act::End => None,
            Act::Refuse => lock.grant(index, attempts[index].mode).is_none().then(|| lock.clone()),
        };
        let rest = [&left[..next], &left[next + 1..]].concat();
        after.is_some_and(|after| explained(attempts, &rest, &after, &granted))
    })
}

/// Whether the token of the last grant is larger than those before it.
fn in_order(attempts: &[SmallAttempt], granted: &[usize]) -> bool {
    let key = |index: &usize| match attempts[*index] {
        SmallAttempt {
            mode: mode @ (Mode::Exclusive | Mode::Shared), end: End::Granted(token, _), ..
        } => Some((mode, token)),
        _ => None,
    };
    let Some((mode, token)) = granted.last().and_then(key) else { return true };
    granted[..granted.len() - 1]
        .iter()
        .filter_map(key)
        .all(|(other, earlier)| earlier < token || (mode, other) == (Mode::Shared, Mode::Shared))
}

#[test]
fn the_checker_agrees_with_brute_force() {
    let mut seen: BTreeMap<(bool, bool), usize> = BTreeMap::new();
    for seed in 0..4_000 {
        let attempts = attempts(&mut Rng::new(seed));
        let possible = |refusals| {
            let operations = operations(&attempts, refusals);
            (operations.len() <= MOST).then(|| explained(&attempts, &operations, &Lock::Free, &[]))
        };
        let (Some(holds), Some(both)) = (possible(false), possible(true)) else { continue };
        let report = check(&history(&attempts), &terms());
        let outcome = |invariant| report.verdict(invariant).unwrap().outcome != Outcome::Violated;
        let found = (outcome(Invariant::OneOrder), outcome(Invariant::OneOrder) && outcome(Invariant::Taken));
        assert_eq!(found, (holds, both), "seed {seed}: {attempts:#?}\n{report}");
        *seen.entry(found).or_default() += 1;
    }
    for kind in [(true, true), (true, false), (false, false)] {
        assert!(seen.get(&kind).is_some_and(|count| *count >= 200), "{seen:?}");
    }
}
