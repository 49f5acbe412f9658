//! The search through all worlds of a run.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model, Path};

use super::{
    action::{Action, Protocol},
    runs::Run,
    world::World,
};

/// The event that every run without a broken property must see: a second grant.
pub(crate) const GRANTED_AGAIN: &str = "a name is granted to one after another";

/// The result of a search.
#[derive(Debug)]
pub struct SearchResult {
    /// The number of worlds.
    pub worlds: usize,
    /// How long the search took.
    pub took: Duration,
    /// The properties that do not hold. Each has the story of a world that breaks it: the steps to that world.
    pub broken: BTreeMap<&'static str, String>,
    /// The name was granted to one client after another.
    pub granted_again: bool,
}

impl Run {
    /// Searches the worlds; worlds that are fewer steps away come first. If the run expects broken properties, stops
    /// when all of them are broken. Otherwise stops at the first broken property, or when all worlds are searched.
    #[must_use]
    pub fn search(&self) -> SearchResult {
        let begun = Instant::now();
        let finish = match self.breaks {
            [] => HasDiscoveries::AnyFailures,
            breaks => HasDiscoveries::AllOf(breaks.iter().copied().collect()),
        };
        let checker = Protocol { rules: self.rules }.checker().finish_when(finish).spawn_bfs().join();
        let mut discoveries: BTreeMap<_, _> = checker.discoveries().into_iter().collect();
        let granted_again = discoveries.remove(GRANTED_AGAIN).is_some();
        let broken = discoveries.into_iter().map(|(name, path)| (name, story(path))).collect();
        SearchResult { worlds: checker.unique_state_count(), took: begun.elapsed(), broken, granted_again }
    }

    /// The differences between the result and the expected result.
    #[must_use]
    pub fn complaints(&self, result: &SearchResult) -> Vec<String> {
        let unexpected = result.broken.iter().filter(|_| self.breaks.is_empty());
        let unexpected = unexpected.map(|(name, story)| format!("broken: {name}\n{story}"));
        let not_broken = self.breaks.iter().filter(|name| !result.broken.contains_key(*name));
        let not_broken = not_broken.map(|name| format!("not found broken: {name}"));
        let unseen =
            (self.breaks.is_empty() && !result.granted_again).then(|| format!("not seen: {GRANTED_AGAIN}"));
        unexpected.chain(not_broken).chain(unseen).collect()
    }
}

/// The steps to a world, and the state of the world after each step.
fn story(path: Path<World, Action>) -> String {
    let (mut text, mut last_action) = (String::new(), None);
    for (step, (state, next)) in path.into_vec().into_iter().enumerate() {
        if let Some(action) = last_action {
            text += &format!("{step:3}. {:<22} {state}\n", format!("{action:?}"));
        }
        last_action = next;
    }
    text
}
