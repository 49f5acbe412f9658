//! I3 and I13 once more, by trying every order: slow, and written from the words of `docs/rules.md` alone.

use std::collections::BTreeMap;

use leasehold_core::Mode;
use leasehold_testkit::{
    check::{Invariant, Outcome, Terms, check},
    history::{Event, History, HowHeld, What},
};

use super::{rng::Rng, tale::number};

const MS: u64 = 1_000_000;
/// The lease of every hold, and how long what ended without a grant may stay.
const TTL: u64 = 5 * MS;
const STAYS: u64 = 4 * MS;
/// How many operations are put into every order.
const MOST: usize = 7;

/// One attempt of a small history.
#[derive(Clone, Debug)]
struct Story {
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
    /// A grant with its token; its request left when the acquire was called.
    Granted(u64, Left),
}

/// When and how a hold was released; kept: for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Never,
    Freed(u64, u64),
    Kept(u64, u64, u64),
    NotHeld(u64, u64),
    Unknown(u64, u64),
}

fn stories(rng: &mut Rng) -> Vec<Story> {
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
            // Half of the time tokens follow the calls, so that enough histories are legal.
            let token = if ordered { called / MS * 10 + number } else { rng.between(1, 6) };
            let leaves = returned + rng.between(0, 12) * MS;
            let answered = leaves + rng.between(0, 5) * MS;
            let left = match rng.between(0, 8) {
                0 => Left::Never,
                1 => Left::NotHeld(leaves, answered),
                2 => Left::Unknown(leaves, answered),
                3 => Left::Kept(leaves, answered, rng.between(1, 8) * MS),
                _ => Left::Freed(leaves, answered),
            };
            let end = match rng.between(0, 10) {
                0 => End::Unknown,
                1..4 => End::Taken,
                _ => End::Granted(token, left),
            };
            Story { mode: rng.one_of(modes), is_try: rng.percent(90), called, returned, end }
        })
        .collect()
}

fn history(stories: &[Story]) -> History {
    let mut events = Vec::new();
    for (story, id) in stories.iter().zip(1..) {
        let mut tell = |t, what| {
            let lock = "l".to_owned();
            events.push(Event { run: 1, proc: 1, seq: 0, t, task: 0, lock, attempt: id, what });
        };
        let limit = story.is_try.then_some(0);
        tell(story.called, What::AcqInv { mode: HowHeld(story.mode), limit, within: None, retries: false });
        match story.end {
            End::Taken => tell(story.returned, What::AcqTaken),
            End::Unknown => tell(story.returned, What::AcqUnknown { err: String::new() }),
            End::Granted(token, left) => {
                let ok = What::AcqOk {
                    token,
                    lineage: "0".into(),
                    deadline: Some(story.called + TTL),
                    ttl: Some(TTL),
                    asked: Some(story.called),
                    watched: false,
                    fixed: false,
                };
                tell(story.returned, ok);
                let mut leave = |at, answered, keep, what| {
                    tell(at, What::RelInv { keep, sure: None });
                    tell(answered, what);
                };
                match left {
                    Left::Never => {}
                    Left::Freed(at, answered) => leave(at, answered, None, What::RelOk),
                    Left::Kept(at, answered, keep) => leave(at, answered, Some(keep), What::RelOk),
                    Left::NotHeld(at, answered) => leave(at, answered, None, What::RelNotheld),
                    Left::Unknown(at, answered) => {
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
    terms.told = std::time::Duration::ZERO;
    terms.cancelled = std::time::Duration::from_nanos(STAYS);
    terms
}

/// The lock as its rules describe it.
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

    /// Without this holder; `None`: it holds nothing.
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

/// Something that takes effect once between two moments, or need not (`u64::MAX`).
#[derive(Clone, Copy, Debug)]
struct Operation {
    who: usize,
    call: u64,
    back: u64,
    what: Act,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    Grant,
    /// It must hold.
    Release,
    /// It must not hold afterwards.
    End,
    Refuse,
}

fn operations(stories: &[Story], refusals: bool) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (who, story) in stories.iter().enumerate() {
        let mut act = |what, call, back| operations.push(Operation { who, call, back, what });
        let lapses = story.called + TTL;
        match story.end {
            End::Taken if refusals && !in_line(stories, who) => {
                act(Act::Refuse, story.called, story.returned);
            }
            End::Taken => {}
            End::Unknown => {
                // It may be granted or not, but not after it was cleaned up.
                act(Act::Grant, story.called, u64::MAX);
                act(Act::End, story.called, story.returned + STAYS);
            }
            End::Granted(_, left) => {
                act(Act::Grant, story.called, story.returned);
                match left {
                    Left::Never => act(Act::End, lapses, u64::MAX),
                    Left::Freed(at, answered) => act(Act::Release, at, answered),
                    Left::Kept(at, answered, keep) => act(Act::End, at + keep, answered + keep),
                    Left::NotHeld(at, answered) => act(Act::End, lapses.min(at), answered),
                    Left::Unknown(at, _) => act(Act::End, lapses.min(at), (at + TTL).max(lapses)),
                }
            }
        }
    }
    operations
}

/// Whether somebody else stands in line, or may, while this one is refused.
fn in_line(stories: &[Story], refused: usize) -> bool {
    let me = &stories[refused];
    stories.iter().enumerate().any(|(who, other)| {
        let until = match other.end {
            End::Granted(..) if other.is_try => return false,
            End::Taken if other.is_try => return false,
            End::Granted(..) => other.returned,
            End::Taken | End::Unknown => other.returned + STAYS,
        };
        who != refused && other.called <= me.returned && until >= me.called
    })
}

/// Whether some order of the operations that are left explains them all.
fn explained(stories: &[Story], left: &[Operation], lock: &Lock, granted: &[usize]) -> bool {
    if left.iter().all(|operation| operation.back == u64::MAX) {
        return true;
    }
    let earliest = left.iter().map(|operation| operation.back).min().unwrap();
    (0..left.len()).filter(|&next| left[next].call <= earliest).any(|next| {
        let Operation { who, what, .. } = left[next];
        let has_begun = granted.contains(&who);
        let is_over = !left.iter().any(|other| other.who == who && other.what != Act::Grant);
        let mut granted = granted.to_vec();
        let after = match what {
            Act::Grant if is_over => None,
            Act::Grant => {
                granted.push(who);
                lock.grant(who, stories[who].mode).filter(|_| in_order(stories, &granted))
            }
            Act::Release => lock.free(who),
            Act::End if has_begun || stories[who].end == End::Unknown => {
                Some(lock.free(who).unwrap_or(lock.clone()))
            }
            Act::End => None,
            Act::Refuse => lock.grant(who, stories[who].mode).is_none().then(|| lock.clone()),
        };
        let rest = [&left[..next], &left[next + 1..]].concat();
        after.is_some_and(|after| explained(stories, &rest, &after, &granted))
    })
}

/// Whether the token of the last grant is above those before it.
fn in_order(stories: &[Story], granted: &[usize]) -> bool {
    let place = |who: &usize| match stories[*who] {
        Story { mode: mode @ (Mode::Exclusive | Mode::Shared), end: End::Granted(token, _), .. } => {
            Some((mode, token))
        }
        _ => None,
    };
    let Some((mode, token)) = granted.last().and_then(place) else { return true };
    granted[..granted.len() - 1]
        .iter()
        .filter_map(place)
        .all(|(other, earlier)| earlier < token || (mode, other) == (Mode::Shared, Mode::Shared))
}

#[test]
fn every_order_of_small_histories() {
    let mut seen: BTreeMap<(bool, bool), usize> = BTreeMap::new();
    for seed in 0..4_000 {
        let stories = stories(&mut Rng::new(seed));
        let possible = |refusals| {
            let operations = operations(&stories, refusals);
            (operations.len() <= MOST).then(|| explained(&stories, &operations, &Lock::Free, &[]))
        };
        let (Some(holds), Some(both)) = (possible(false), possible(true)) else { continue };
        let report = check(&history(&stories), &terms());
        let outcome = |invariant| report.verdict(invariant).unwrap().outcome != Outcome::Violated;
        let found = (outcome(Invariant::OneOrder), outcome(Invariant::OneOrder) && outcome(Invariant::Taken));
        assert_eq!(found, (holds, both), "seed {seed}: {stories:#?}\n{report}");
        *seen.entry(found).or_default() += 1;
    }
    for kind in [(true, true), (true, false), (false, false)] {
        assert!(seen.get(&kind).is_some_and(|count| *count >= 200), "{seen:?}");
    }
}
