//! Waits that are far longer than the holds of their name.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use super::{
    blocks::blockers,
    claims::{Claims, Look, Party, Queue},
};

/// The shortest wait that is told: a person does not look sooner.
const SHORTEST: Duration = Duration::from_secs(60);
/// The shortest wait that is told while no hold of the name was seen to end, so that nothing is known of its holds.
const SHORTEST_UNKNOWN: Duration = Duration::from_secs(600);
/// A wait is long if it has lasted this many times as long as the holds that it has to wait for.
const TIMES: u32 = 10;
/// How many ended holds of a name are remembered.
const SAMPLES: usize = 16;
/// From how many ended holds on the typical hold is known.
const FEWEST_SAMPLES: usize = 3;
/// Of how many names ended holds are remembered: some MiB of memory.
const MAX_NAMES: usize = 10_000;

/// A claim that waits far longer than a hold of its name lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LongWait {
    /// The claim that has waited longest of its name.
    pub waiter: Party,
    /// How long it has waited.
    pub waiting: Duration,
    /// How many claims are ahead of it.
    pub ahead: usize,
    /// How long a hold of the name lasts: the median of those that were seen to end. `None`: not known yet.
    pub typical: Option<Duration>,
    /// Why it waits so long.
    pub cause: LongWaitCause,
}

/// Why a claim waits so long.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LongWaitCause {
    /// This hold has lasted for most of the wait.
    Hold(Party),
    /// So many claims that came later were granted the name before it.
    Overtaken(u32),
    /// The queue is longer than the holders work off.
    Queue,
}

impl LongWaitCause {
    /// The words of all causes.
    pub const WORDS: [&'static str; 3] = ["hold", "overtaken", "queue"];

    /// The cause as one word, which labels of metrics have.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        let [hold, overtaken, queue] = Self::WORDS;
        match self {
            Self::Hold(_) => hold,
            Self::Overtaken(_) => overtaken,
            Self::Queue => queue,
        }
    }
}

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub(super) struct LongWaits {
    names: HashMap<(String, String), History>,
}

/// What was seen of one name.
#[derive(Debug, Default)]
struct History {
    /// How long the last holds lasted.
    ended: VecDeque<Duration>,
    /// The holds of the last look, and since when each is known to last.
    holds: HashMap<Id, Instant>,
    waits: HashMap<String, Wait>,
}

/// A hold: its claim id and its token.
type Id = (String, Option<u64>);

/// A claim that waits.
#[derive(Clone, Debug)]
struct Wait {
    since: Instant,
    overtaken: u32,
}

impl LongWaits {
    pub(super) fn next(&mut self, looks: &[Look<'_>], now: Instant) -> Vec<LongWait> {
        let claims = Claims::of(looks);
        let mut found = Vec::new();
        let mut seen = HashMap::new();
        for queue in &claims.queues {
            let Some(first) = queue.holders.first().or(queue.waiters.first()) else { continue };
            let party = &claims.parties[*first];
            let key = (party.engine.clone(), party.name.clone());
            let mut history = self.names.remove(&key).unwrap_or_default();
            history.next(&claims, queue, now);
            found.extend(history.longest(&claims, queue, now));
            seen.insert(key, history);
        }
        for (key, mut history) in self.names.drain() {
            if looks.iter().any(|look| look.engine == key.0) {
                // The name is free now: its holds have ended.
                history.end_missing(&[], now);
            } else {
                // Nobody knows when they end.
                history.holds.clear();
            }
            history.waits.clear();
            if !history.ended.is_empty() && seen.len() < MAX_NAMES {
                seen.insert(key, history);
            }
        }
        self.names = seen;
        found
    }
}

impl History {
    fn next(&mut self, claims: &Claims, queue: &Queue, now: Instant) {
        let id = |claim: &usize| (claims.parties[*claim].id.clone(), claims.parties[*claim].token);
        let since = |claim: usize| claims.parties[claim].since.and_then(|since| now.checked_sub(since));
        let present: Vec<Id> = queue.holders.iter().map(id).collect();
        // A grant to a claim that was not there when another one already waited.
        let new_grants = queue.holders.iter().map(id).filter(|hold| !self.holds.contains_key(hold));
        let late = new_grants.filter(|(claim, _)| !self.waits.contains_key(claim)).count();
        self.end_missing(&present, now);
        for claim in &queue.holders {
            self.holds.entry(id(claim)).or_insert_with(|| since(*claim).unwrap_or(now));
        }
        let waits = queue.waiters.iter().map(|claim| {
            let id = &claims.parties[*claim].id;
            let new = || Wait { since: since(*claim).unwrap_or(now), overtaken: 0 };
            let mut wait = self.waits.get(id).cloned().map_or_else(new, |wait| Wait {
                overtaken: wait.overtaken.saturating_add(u32::try_from(late).unwrap_or(u32::MAX)),
                ..wait
            });
            // The engine may tell an earlier start than the first look did.
            wait.since = since(*claim).map_or(wait.since, |since| since.min(wait.since));
            (id.clone(), wait)
        });
        self.waits = waits.collect();
    }

    /// Records the holds that are not there any more.
    fn end_missing(&mut self, present: &[Id], now: Instant) {
        let ended = self.holds.extract_if(|hold, _| !present.contains(hold));
        self.ended.extend(ended.map(|(_, since)| now.saturating_duration_since(since)));
        let surplus = self.ended.len().saturating_sub(SAMPLES);
        self.ended.drain(..surplus);
    }

    /// The longest wait, if it is far too long.
    fn longest(&self, claims: &Claims, queue: &Queue, now: Instant) -> Option<LongWait> {
        let age = |place: &usize| {
            let wait = self.waits.get(&claims.parties[queue.waiters[*place]].id)?;
            Some((now.saturating_duration_since(wait.since), wait.overtaken))
        };
        let place = (0..queue.waiters.len()).max_by_key(|place| (age(place), std::cmp::Reverse(*place)))?;
        let (waiting, overtaken) = age(&place)?;
        let typical = self.typical();
        let turns = u32::try_from(place).unwrap_or(u32::MAX).saturating_add(1);
        let is_long = match typical {
            Some(typical) => {
                waiting >= SHORTEST && waiting >= typical.saturating_mul(TIMES.saturating_mul(turns))
            }
            None => waiting >= SHORTEST_UNKNOWN,
        };
        if !is_long {
            return None;
        }
        let holders = blockers(claims, queue, place, queue.holders.iter().copied());
        let since = |claim: usize| {
            let party = &claims.parties[claim];
            self.holds
                .get(&(party.id.clone(), party.token))
                .map(|since| now.saturating_duration_since(*since))
        };
        let oldest = holders.filter_map(|claim| Some((since(claim)?, claim))).max();
        let cause = match oldest {
            Some((held, claim)) if held >= waiting / 2 => {
                LongWaitCause::Hold(Party { since: Some(held), ..claims.parties[claim].clone() })
            }
            _ if overtaken > 0 && !queue.fifo => LongWaitCause::Overtaken(overtaken),
            // Nothing is known of holds that came and went.
            _ if typical.is_none() => return None,
            _ => LongWaitCause::Queue,
        };
        let waiter = Party { since: Some(waiting), ..claims.parties[queue.waiters[place]].clone() };
        Some(LongWait { waiter, waiting, ahead: place, typical, cause })
    }

    /// The median of the ended holds.
    fn typical(&self) -> Option<Duration> {
        let mut ended: Vec<_> = self.ended.iter().copied().collect();
        ended.sort_unstable();
        (ended.len() >= FEWEST_SAMPLES).then(|| ended[ended.len() / 2])
    }
}
