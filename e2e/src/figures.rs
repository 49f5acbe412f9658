//! The figures of a round, and their sums over rounds.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use leasehold_testkit::history::{AttemptId, Event, What};
use serde::{Deserialize, Serialize};

use crate::once::KEYS;

/// The figures of one round, or the sums of the figures of many rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The engine.
    pub engine: String,
    /// The seed of the round; for many rounds, the seed of the last round.
    pub seed: u64,
    /// The number of rounds.
    pub rounds: u64,
    /// For how many seconds faults were injected. The calms between storms do not count.
    pub seconds: f64,
    /// How many acquires and releases were called.
    pub operations: u64,
    /// The number of `check()` calls.
    pub checks: u64,
    /// Acquires that were granted.
    pub grants: u64,
    /// How many grants went to a claim that was waiting when the previous holder released.
    pub hand_overs: u64,
    /// Requests for several names that were granted.
    #[serde(default)]
    pub sets: u64,
    /// Leaders whose value was published.
    #[serde(default)]
    pub leaders: u64,
    /// How often an observer got the value and the term of a leader.
    #[serde(default)]
    pub sights: u64,
    /// Runs of work that is done one time whose result was stored, as far as the run was told.
    #[serde(default)]
    pub stored: u64,
    /// Repeats that returned a stored result.
    #[serde(default)]
    pub replays: u64,
    /// Why the engine has neither elections with values nor work that is done one time; empty if it has both.
    #[serde(default)]
    pub no_memos: String,
    /// How many acquires were dropped before they returned.
    pub cancelled: u64,
    /// Holds that were reported as lost.
    pub lost: u64,
    /// The longest wait that ended in a grant, in milliseconds.
    pub longest_wait: u64,
    /// The median time from a release to the next grant, in microseconds, if the granted claim was waiting at the
    /// release. Over many rounds, the largest median.
    pub hand_over_p50: u64,
    /// The 99th percentile of the times of [`hand_over_p50`](Self::hand_over_p50).
    pub hand_over_p99: u64,
    /// How many appends under the lock a fenced file acknowledged.
    pub appends: u64,
    /// How many of these appends are missing from the file at the end.
    pub appends_lost: u64,
    /// Overlaps of holds in rounds without a promise of exclusion.
    pub overlaps_not_promised: u64,
    /// Failed `check()`s of holds that were in doubt until a renewal.
    pub doubts: u64,
    /// For how many seconds the machine stalled something that all clients share. The part of a stall that falls into a
    /// wait does not count as a part of the wait.
    #[serde(default)]
    pub stalled: f64,
    /// The number of faults, by kind.
    pub faults: BTreeMap<String, u64>,
    /// The number of checks, by invariant.
    pub checked: BTreeMap<String, u64>,
    /// The number of violations, by invariant.
    pub violations: BTreeMap<String, u64>,
    /// The number of locks on which the checker gave up.
    pub undecided: u64,
}

impl Figures {
    /// The figures that follow from the events alone, without the checker.
    #[must_use]
    pub fn of(events: &[Event]) -> Self {
        let mut figures = Self { rounds: 1, ..Self::default() };
        // When each attempt was called, and when each lock was last released.
        let mut called: BTreeMap<AttemptId, u64> = BTreeMap::new();
        let mut released: BTreeMap<&str, u64> = BTreeMap::new();
        let mut hand_over_times = Vec::new();
        let mut stalled_until = 0;
        let mut parts = Parts::default();
        for event in events {
            parts.count(event, &mut figures);
            match &event.what {
                What::AcqInv { .. } => {
                    figures.operations += 1;
                    called.insert(event.attempt, event.t);
                }
                What::AcqOk { .. } => {
                    figures.grants += 1;
                    let since = called.get(&event.attempt).copied().unwrap_or(event.t);
                    figures.longest_wait = figures.longest_wait.max((event.t - since) / 1_000_000);
                    let waited = released.remove(event.lock.as_str());
                    let waited =
                        waited.filter(|released| since < *released && !parts.contains(event.attempt));
                    hand_over_times.extend(waited.map(|released| (event.t - released) / 1000));
                }
                What::RelInv { .. } => {
                    figures.operations += 1;
                    released.insert(&event.lock, event.t);
                }
                What::Check { .. } => figures.checks += 1,
                What::Cancel => figures.cancelled += 1,
                What::Lost { .. } => figures.lost += 1,
                What::Stall { until, victim: None, .. } => {
                    let from = event.t.max(stalled_until);
                    figures.stalled += until.saturating_sub(from) as f64 / 1e9;
                    stalled_until = stalled_until.max(*until);
                }
                _ => {}
            }
        }
        hand_over_times.sort_unstable();
        let quantile =
            |of_hundred| hand_over_times.get(hand_over_times.len() * of_hundred / 100).copied().unwrap_or(0);
        figures.hand_overs = hand_over_times.len() as u64;
        (figures.hand_over_p50, figures.hand_over_p99) = (quantile(50), quantile(99));
        figures
    }

    /// Adds the figures of another round.
    pub fn add(&mut self, other: &Self) {
        self.engine.clone_from(&other.engine);
        self.seed = other.seed;
        self.rounds += other.rounds;
        self.seconds += other.seconds;
        self.operations += other.operations;
        self.checks += other.checks;
        self.grants += other.grants;
        self.hand_overs += other.hand_overs;
        self.sets += other.sets;
        self.leaders += other.leaders;
        self.sights += other.sights;
        self.stored += other.stored;
        self.replays += other.replays;
        self.no_memos.clone_from(&other.no_memos);
        self.cancelled += other.cancelled;
        self.lost += other.lost;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.hand_over_p50 = self.hand_over_p50.max(other.hand_over_p50);
        self.hand_over_p99 = self.hand_over_p99.max(other.hand_over_p99);
        self.appends += other.appends;
        self.appends_lost += other.appends_lost;
        self.overlaps_not_promised += other.overlaps_not_promised;
        self.doubts += other.doubts;
        self.undecided += other.undecided;
        self.stalled += other.stalled;
        for (sums, more) in [
            (&mut self.faults, &other.faults),
            (&mut self.checked, &other.checked),
            (&mut self.violations, &other.violations),
        ] {
            for (kind, count) in more {
                *sums.entry(kind.clone()).or_default() += count;
            }
        }
    }

    /// The number of all faults.
    #[must_use]
    pub fn all_faults(&self) -> u64 {
        self.faults.values().sum()
    }

    /// The number of all violations.
    #[must_use]
    pub fn all_violations(&self) -> u64 {
        self.violations.values().sum()
    }

    /// The kinds of operations of which nothing happened, so that the rounds show nothing of them.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let has_memos = self.no_memos.is_empty();
        let kinds = [
            (true, self.sets, "granted sets"),
            (has_memos, self.leaders, "leaders"),
            (has_memos, self.sights, "leaders seen"),
            (has_memos, self.stored, "stored results"),
            (has_memos, self.replays, "replayed results"),
        ];
        kinds.into_iter().filter(|(expected, count, _)| *expected && *count == 0).map(|kind| kind.2).collect()
    }

    /// Returns true if there is no violation and the checker gave up on no lock.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.all_violations() == 0 && self.undecided == 0
    }
}

/// The attempts of elections, of work that is done one time, and of requests for several names.
#[derive(Default)]
struct Parts {
    /// The attempts that are parts of larger requests.
    parts: HashSet<AttemptId>,
    /// The attempts that publish values.
    candidates: HashSet<AttemptId>,
    /// The attempts whose result is about to be stored.
    runs: HashSet<AttemptId>,
    /// The tasks that have a granted set, by process and number.
    with_set: HashSet<(u32, u32)>,
}

impl Parts {
    fn contains(&self, attempt: AttemptId) -> bool {
        self.parts.contains(&attempt)
    }

    /// Counts what the event says.
    fn count(&mut self, event: &Event, figures: &mut Figures) {
        let of = |attempts: &HashSet<AttemptId>| u64::from(attempts.contains(&event.attempt));
        let task = (event.proc, event.task);
        let is_of_set =
            || self.parts.contains(&event.attempt) && KEYS.iter().all(|(key, _)| event.lock != *key);
        match event.what {
            What::Part { .. } => drop(self.parts.insert(event.attempt)),
            What::PublishInv { number: 0 } => drop(self.candidates.insert(event.attempt)),
            What::StoreInv { .. } => drop(self.runs.insert(event.attempt)),
            What::Seen { .. } => figures.sights += 1,
            What::Replay { .. } => figures.replays += 1,
            // All names of a set are granted at once.
            What::AcqOk { .. } if is_of_set() => figures.sets += u64::from(self.with_set.insert(task)),
            What::AcqOk { .. } => figures.leaders += of(&self.candidates),
            What::AcqInv { .. } => drop(self.with_set.remove(&task)),
            What::RelOk => figures.stored += of(&self.runs),
            _ => {}
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, figure: &dyn fmt::Display| writeln!(f, "{name:28} {figure:>12}");
        row("engine", &self.engine)?;
        row("rounds", &self.rounds)?;
        row("minutes of faults", &format!("{:.1}", self.seconds / 60.0))?;
        row("seconds the machine stalled", &format!("{:.1}", self.stalled))?;
        row("operations checked", &self.operations)?;
        row("answers of check()", &self.checks)?;
        row("faults injected", &self.all_faults())?;
        for (kind, count) in &self.faults {
            row(&format!("  {kind}"), count)?;
        }
        row("grants", &self.grants)?;
        row("hand-overs", &self.hand_overs)?;
        row("  in us, p50", &self.hand_over_p50)?;
        row("  in us, p99", &self.hand_over_p99)?;
        row("sets of names granted", &self.sets)?;
        if self.no_memos.is_empty() {
            row("leaders", &self.leaders)?;
            row("  seen by observers", &self.sights)?;
            row("results stored", &self.stored)?;
            row("  replayed", &self.replays)?;
        } else {
            row("no elections, no `once`", &format!("  {}", self.no_memos))?;
        }
        row("cancelled", &self.cancelled)?;
        row("holds reported lost", &self.lost)?;
        row("longest wait, ms", &self.longest_wait)?;
        row("fenced appends", &self.appends)?;
        row("  of these lost", &self.appends_lost)?;
        row("overlaps, not promised", &self.overlaps_not_promised)?;
        row("moments of doubt", &self.doubts)?;
        row("violations", &self.all_violations())?;
        for (invariant, checked) in &self.checked {
            let violations = self.violations.get(invariant).copied().unwrap_or(0);
            row(&format!("  {invariant}"), &format!("{violations} of {checked}"))?;
        }
        row("undecided", &self.undecided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_without_one_kind_of_operation_show_nothing_of_it() {
        let all = Figures { sets: 1, leaders: 1, sights: 1, stored: 1, replays: 1, ..Figures::default() };
        assert!(all.missing().is_empty());
        let lacking = [
            Figures { sets: 0, ..all.clone() },
            Figures { leaders: 0, ..all.clone() },
            Figures { sights: 0, ..all.clone() },
            Figures { stored: 0, ..all.clone() },
            Figures { replays: 0, ..all.clone() },
        ];
        for figures in lacking {
            assert_eq!(figures.missing().len(), 1, "{figures}");
        }
        let without_memos = Figures { sets: 1, no_memos: "no clock".to_owned(), ..Figures::default() };
        assert!(without_memos.missing().is_empty());
        assert_eq!(Figures { sets: 0, ..without_memos }.missing(), ["granted sets"]);
    }
}
