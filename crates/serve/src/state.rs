//! What all requests share: the engines with their last looks, the history, and what says that the server stops.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use leasehold::{Diagnostic, Guarantee, Locks, View};
use leasehold_ops::{
    Reached,
    audit::Audit,
    series::{NameFilter, Totals},
    waits,
};
use tokio::sync::{Semaphore, watch};

use crate::{
    guard::Access, history::History, row::Row, settings::EngineSource, table::Query, table::Selection, time,
};

/// How many pages may follow the changes at the same time.
const MAX_STREAMS: usize = 64;
/// A look is shown as out of date if the answer to the next one is late by more than this, in milliseconds.
const LATE_MS: u64 = 4000;

/// The state of the server.
pub(crate) struct Shared {
    pub(crate) engines: Vec<EngineState>,
    pub(crate) history: Mutex<History>,
    pub(crate) access: Access,
    /// Where breaks are recorded; `None`: this page cannot break holds.
    pub(crate) audit: Option<Audit>,
    /// The number of looks so far. It changes after each look.
    pub(crate) looks: watch::Sender<u64>,
    /// Becomes true when the server stops.
    pub(crate) stopping: watch::Sender<bool>,
    /// The names that have series of their own in the metrics.
    pub(crate) metrics_names: NameFilter,
    /// The last search for deadlocks and long waits.
    search: RwLock<Arc<Search>>,
    /// The right to follow the changes.
    pub(crate) streams: Arc<Semaphore>,
    /// Breaks that have begun. All permits are free when none is going on.
    pub(crate) breaks: Arc<Semaphore>,
    /// The last selections, with the number of the look that they are of.
    selections: Mutex<Vec<(u64, Query, Arc<Selection>)>>,
}

/// How many breaks may go on at the same time.
pub(crate) const MAX_BREAKS: u32 = 8;

/// An engine.
pub(crate) struct EngineState {
    pub(crate) label: String,
    pub(crate) locks: Locks,
    /// The locks by which holds are ended, if they are others.
    pub(crate) breaker: Option<Locks>,
    /// How a reader of the page reaches the engine by a command that breaks a hold.
    pub(crate) reached: Reached,
    /// What happened since the start, as counts.
    totals: Mutex<Totals>,
    look: RwLock<Arc<Look>>,
    health: RwLock<Arc<Health>>,
}

/// The last look at an engine.
#[derive(Default)]
pub(crate) struct Look {
    /// The rows, sorted by name; those of an earlier look if this one failed.
    pub(crate) rows: Vec<Row>,
    /// The answer of the engine from which the rows are made.
    pub(crate) views: Arc<Vec<View>>,
    /// The time of day of the last look that succeeded, in milliseconds.
    pub(crate) at: Option<u64>,
    /// How long after `at` the answer to the next look is to be expected, in milliseconds: looks at very many names
    /// take long, and so do the pauses between them.
    pub(crate) next_ms: u64,
    /// Whether the engine tells each change, so that a look follows at once.
    pub(crate) is_pushed: bool,
    /// Why the last look failed.
    pub(crate) error: Option<String>,
}

/// What the last search for deadlocks and long waits found.
#[derive(Default)]
pub(crate) struct Search {
    pub(crate) findings: Vec<waits::Finding>,
    /// The time of day of the search, in milliseconds; `None`: there was none yet.
    pub(crate) at: Option<u64>,
}

/// What is known of deadlocks and long waits.
pub(crate) struct KnownWaits {
    /// The findings of the last search over engines that answer. The rows of an engine that is away could show a cycle
    /// that has ended.
    pub(crate) findings: Vec<waits::Finding>,
    /// The time of day of that search, in milliseconds.
    pub(crate) at: u64,
    /// The labels of the engines that are away: nothing is known of waits over them.
    pub(crate) away: Vec<String>,
}

/// What the engine promises and what is wrong with it.
#[derive(Default)]
pub(crate) struct Health {
    /// The time of day at which it was asked, in milliseconds.
    pub(crate) at: Option<u64>,
    /// The guarantee, or why it is not known; `None`: not asked yet.
    pub(crate) guarantee: Option<Result<Guarantee, String>>,
    /// The diagnostics, or why they are not known.
    pub(crate) diagnostics: Option<Result<Vec<Diagnostic>, String>>,
}

impl Shared {
    pub(crate) fn new(engines: Vec<EngineState>, access: Access, audit: Option<Audit>) -> Self {
        Self {
            engines,
            history: Mutex::default(),
            access,
            audit,
            looks: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            metrics_names: NameFilter::default(),
            search: RwLock::default(),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            breaks: Arc::new(Semaphore::new(MAX_BREAKS as usize)),
            selections: Mutex::default(),
        }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last search for deadlocks and long waits.
    pub(crate) fn search(&self) -> Arc<Search> {
        Arc::clone(&self.search.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_search(&self, search: Search) {
        *self.search.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(search);
    }

    /// What is known now of deadlocks and long waits, by the last search. `None`: there was no search yet, or no engine
    /// answers.
    pub(crate) fn known_waits(&self) -> Option<KnownWaits> {
        let search = self.search();
        let is_away = |engine: &&EngineState| engine.look().error.is_some();
        let away: Vec<String> =
            self.engines.iter().filter(is_away).map(|engine| engine.label.clone()).collect();
        let at = search.at.filter(|_| away.len() < self.engines.len())?;
        let answer = |finding: &&waits::Finding| {
            finding.engines().all(|engine| away.iter().all(|away| away != engine))
        };
        Some(KnownWaits { findings: search.findings.iter().filter(answer).cloned().collect(), at, away })
    }

    /// The engine with this label, and its number.
    pub(crate) fn engine(&self, label: &str) -> Option<(usize, &EngineState)> {
        self.engines.iter().enumerate().find(|(_, engine)| engine.label == label)
    }

    /// How a reader of the page reaches the engine with this label by a command.
    pub(crate) fn reached(&self, label: &str) -> Reached {
        self.engine(label)
            .map_or_else(|| Reached::Label(label.to_owned()), |(_, engine)| engine.reached.clone())
    }

    /// The rows that a query selects now. Pages with the same query share one selection.
    pub(crate) fn select(&self, query: &Query) -> Arc<Selection> {
        let number = *self.looks.borrow();
        let mut selections = self.selections.lock().unwrap_or_else(PoisonError::into_inner);
        selections.retain(|(of, _, _)| *of == number);
        if let Some((_, _, selection)) = selections.iter().find(|(_, known, _)| known == query) {
            return Arc::clone(selection);
        }
        let selection = Arc::new(Selection::new(self, query));
        if selections.len() < MAX_STREAMS {
            selections.push((number, query.clone(), Arc::clone(&selection)));
        }
        selection
    }
}

impl EngineState {
    pub(crate) fn new(source: EngineSource) -> Self {
        Self {
            label: source.label,
            locks: source.locks,
            breaker: source.breaker,
            reached: source.reached,
            totals: Mutex::default(),
            look: RwLock::default(),
            health: RwLock::default(),
        }
    }

    pub(crate) fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the engine last listed, for what looks at several engines together.
    pub(crate) fn wait_look<'a>(&'a self, look: &'a Look) -> waits::Look<'a> {
        waits::Look { engine: &self.label, fifo: self.locks.profile().fifo, views: &look.views }
    }

    pub(crate) fn look(&self) -> Arc<Look> {
        Arc::clone(&self.look.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_look(&self, look: Look) {
        *self.look.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(look);
    }

    pub(crate) fn health(&self) -> Arc<Health> {
        Arc::clone(&self.health.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_health(&self, health: Health) {
        *self.health.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(health);
    }

    /// The locks by which holds are ended.
    pub(crate) fn breaker(&self) -> &Locks {
        self.breaker.as_ref().unwrap_or(&self.locks)
    }
}

impl Look {
    /// Whether the rows are out of date at `now`.
    pub(crate) fn is_stale(&self, now: u64) -> bool {
        self.at.is_none_or(|at| at.saturating_add(self.next_ms).saturating_add(LATE_MS) < now)
    }

    /// The state of the engine in one line.
    pub(crate) fn state_text(&self, now: u64) -> String {
        let age = self.at.map(|at| time::short(now.saturating_sub(at)));
        match (&self.error, age) {
            (None, None) => "not looked at yet".to_owned(),
            (None, Some(_)) if !self.is_stale(now) && self.is_pushed => {
                "up to date, changes are pushed".to_owned()
            }
            (None, Some(_)) if !self.is_stale(now) => "up to date, looked at each second".to_owned(),
            (None, Some(age)) => format!("out of date: the last look was {age} ago"),
            (Some(error), None) => format!("away: {error}"),
            (Some(error), Some(age)) => format!("away, seen {age} ago: {error}"),
        }
    }
}

impl Health {
    /// The level as a word.
    pub(crate) fn level(&self) -> String {
        match &self.guarantee {
            None => "not asked yet".to_owned(),
            Some(Ok(guarantee)) => guarantee.level.to_string(),
            Some(Err(_)) => "not known".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_out_of_date_when_the_next_one_is_late() {
        let quick = Look { at: Some(10_000), next_ms: 1000, ..Look::default() };
        assert!(!quick.is_stale(15_000) && quick.is_stale(15_001));
        // A look that takes five seconds is followed by a pause of fifteen.
        let slow = Look { at: Some(10_000), next_ms: 20_000, ..Look::default() };
        assert!(!slow.is_stale(30_000) && slow.is_stale(34_001));
        assert!(Look::default().is_stale(0), "never looked");
        assert_eq!(quick.state_text(15_000), "up to date, looked at each second");
        let pushed = Look { is_pushed: true, ..quick };
        assert_eq!(pushed.state_text(15_000), "up to date, changes are pushed");
        assert_eq!(pushed.state_text(15_001), "out of date: the last look was 5.0s ago");
    }
}
