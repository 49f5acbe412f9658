//! The search through all worlds of a run.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model};

use crate::{EventCounts, Protocol, Run, story::story};

/// How often the progress is reported.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(50);

/// The result of a search.
#[derive(Debug)]
pub struct SearchResult {
    /// The number of different worlds that the search visited.
    pub worlds: usize,
    /// The number of steps to the world that is farthest from the first one.
    pub depth: usize,
    /// How long the search took.
    pub took: Duration,
    /// The properties that do not hold. Each has the story of a world that breaks it: the steps to that world.
    pub broken: BTreeMap<&'static str, String>,
    /// The events that were seen.
    pub events: EventCounts,
}

impl Run {
    /// Searches the worlds; worlds that are fewer steps away come first. If the run expects broken properties, stops
    /// when all of them are broken. Otherwise stops at the first broken property, or when all worlds are searched.
    /// Meanwhile calls `progress` repeatedly with the number of worlds so far and the largest number of steps to one of
    /// them.
    pub fn search(&self, mut progress: impl FnMut(usize, usize)) -> SearchResult {
        let begun = Instant::now();
        let finish = match self.breaks {
            [] => HasDiscoveries::AnyFailures,
            breaks => HasDiscoveries::AllOf(breaks.iter().copied().collect()),
        };
        let model = Protocol { rules: self.rules, events: EventCounts::default() };
        let checker = model.checker().finish_when(finish).spawn_bfs();
        while !checker.is_done() {
            thread::sleep(PROGRESS_INTERVAL);
            progress(checker.unique_state_count(), checker.max_depth());
        }
        let checker = checker.join();
        SearchResult {
            worlds: checker.unique_state_count(),
            depth: checker.max_depth(),
            took: begun.elapsed(),
            broken: checker.discoveries().into_iter().map(|(name, path)| (name, story(path))).collect(),
            events: checker.model().events.clone(),
        }
    }

    /// The differences between the result and the expected result. The list is empty if there are none.
    #[must_use]
    pub fn complaints(&self, result: &SearchResult) -> Vec<String> {
        let unexpected = result.broken.iter().filter(|_| self.breaks.is_empty());
        let unexpected = unexpected.map(|(name, story)| format!("broken: {name}\n{story}"));
        let not_broken = self.breaks.iter().filter(|name| !result.broken.contains_key(*name));
        let not_broken = not_broken.map(|name| format!("not found broken: {name}"));
        let unseen = self.must_see.iter().filter(|event| result.events.count(**event) == 0);
        let unseen = unseen.map(|event| format!("not seen: {event:?}"));
        unexpected.chain(not_broken).chain(unseen).collect()
    }
}
