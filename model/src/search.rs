//! The search through all worlds of a run.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{Protocol, Run, Sights, story::story};

/// How often the progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// The result of a search.
#[derive(Debug)]
pub struct Found {
    /// The number of worlds.
    pub worlds: usize,
    /// How many steps the farthest of them is away.
    pub depth: usize,
    /// How long the search took.
    pub took: Duration,
    /// The properties that do not hold, each with the story of a world that breaks it.
    pub broken: BTreeMap<&'static str, String>,
    /// The events that were seen.
    pub sights: Sights,
}

impl Run {
    /// Searches all worlds, nearest first. Stops when every property that is expected to break is broken, or, if none
    /// is expected, at the first broken one. Calls `progress` meanwhile with the number of worlds so far and their
    /// depth.
    pub fn search(&self, mut progress: impl FnMut(usize, usize)) -> Found {
        let begun = Instant::now();
        let until = match self.breaks {
            [] => HasDiscoveries::AnyFailures,
            breaks => HasDiscoveries::AllOf(breaks.iter().copied().collect()),
        };
        let model = Protocol { rules: self.rules, sights: Sights::default() };
        let checker = model.checker().finish_when(until).spawn_bfs();
        while !checker.is_done() {
            thread::sleep(PROGRESS_INTERVAL);
            progress(checker.unique_state_count(), checker.max_depth());
        }
        let checker = checker.join();
        Found {
            worlds: checker.unique_state_count(),
            depth: checker.max_depth(),
            took: begun.elapsed(),
            broken: checker.discoveries().into_iter().map(|(name, way)| (name, story(way))).collect(),
            sights: checker.model().sights.clone(),
        }
    }

    /// The differences from the expected result.
    #[must_use]
    pub fn complaints(&self, found: &Found) -> Vec<String> {
        let unexpected = found.broken.iter().filter(|_| self.breaks.is_empty());
        let unexpected = unexpected.map(|(name, story)| format!("broken: {name}\n{story}"));
        let missed = self.breaks.iter().filter(|name| !found.broken.contains_key(*name));
        let missed = missed.map(|name| format!("not found broken: {name}"));
        let unseen = self.shows.iter().filter(|sight| found.sights.count(**sight) == 0);
        let unseen = unseen.map(|sight| format!("not seen: {sight:?}"));
        unexpected.chain(missed).chain(unseen).collect()
    }
}
