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

/// The event that every run without a broken property must see.
pub(crate) const GRANTED_ON: &str = "a name is granted to one after another";

/// The result of a search.
#[derive(Debug)]
pub struct Seen {
    /// The number of worlds.
    pub worlds: usize,
    /// How long the search took.
    pub took: Duration,
    /// The properties that do not hold, each with the story of a world that breaks it.
    pub broken: BTreeMap<&'static str, String>,
    /// The name was granted to one client after another.
    pub granted_on: bool,
}

impl Run {
    /// Searches all worlds, nearest first. Stops when every property that is expected to break is broken; if none is
    /// expected, it searches all worlds.
    #[must_use]
    pub fn search(&self) -> Seen {
        let begun = Instant::now();
        let until = match self.breaks {
            [] => HasDiscoveries::AnyFailures,
            breaks => HasDiscoveries::AllOf(breaks.iter().copied().collect()),
        };
        let checker = Protocol { rules: self.rules }.checker().finish_when(until).spawn_bfs().join();
        let mut found: BTreeMap<_, _> = checker.discoveries().into_iter().collect();
        let granted_on = found.remove(GRANTED_ON).is_some();
        let broken = found.into_iter().map(|(name, way)| (name, story(way))).collect();
        Seen { worlds: checker.unique_state_count(), took: begun.elapsed(), broken, granted_on }
    }

    /// The differences from the expected result.
    #[must_use]
    pub fn complaints(&self, seen: &Seen) -> Vec<String> {
        let unexpected = seen.broken.iter().filter(|_| self.breaks.is_empty());
        let unexpected = unexpected.map(|(name, story)| format!("broken: {name}\n{story}"));
        let missed = self.breaks.iter().filter(|name| !seen.broken.contains_key(*name));
        let missed = missed.map(|name| format!("not found broken: {name}"));
        let idle = (self.breaks.is_empty() && !seen.granted_on).then(|| format!("not seen: {GRANTED_ON}"));
        unexpected.chain(missed).chain(idle).collect()
    }
}

/// The steps to a world, and the state of the world after each step.
fn story(way: Path<World, Action>) -> String {
    let (mut text, mut done) = (String::new(), None);
    for (step, (state, next)) in way.into_vec().into_iter().enumerate() {
        if let Some(action) = done {
            text += &format!("{step:3}. {:<22} {state}\n", format!("{action:?}"));
        }
        done = next;
    }
    text
}
