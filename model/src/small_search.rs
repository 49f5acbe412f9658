//! The search through all worlds of a small model: Redlock, or blocks of tokens.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
    hash::Hash,
    time::{Duration, Instant},
};

use stateright::{Checker, HasDiscoveries, Model, Path};

/// The result of a search.
#[derive(Debug)]
pub struct SearchResult {
    /// The number of different worlds that the search visited.
    pub worlds: usize,
    /// How long the search took.
    pub took: Duration,
    /// The properties that do not hold. Each has the story of a world that breaks it: the steps to that world.
    pub broken: BTreeMap<&'static str, String>,
    /// Whether the event that the run must see was seen.
    pub event_seen: bool,
}

impl SearchResult {
    /// Searches the worlds of a model; worlds that are fewer steps away come first. Stops when every property of
    /// `breaks` is broken. If `breaks` is empty, stops at the first broken property, or when all worlds are searched.
    /// `event` is the name of the property that holds as soon as enough happens in the model.
    pub(crate) fn of<M>(model: M, breaks: &[&'static str], event: &'static str) -> Self
    where
        M: Model + Send + Sync + 'static,
        M::State: Clone + Debug + Display + Hash + PartialEq + Send + Sync,
        M::Action: Clone + Debug + PartialEq + Send + Sync,
    {
        let begun = Instant::now();
        let finish = match breaks {
            [] => HasDiscoveries::AnyFailures,
            breaks => HasDiscoveries::AllOf(breaks.iter().copied().collect()),
        };
        let checker = model.checker().finish_when(finish).spawn_bfs().join();
        let mut discoveries: BTreeMap<_, _> = checker.discoveries().into_iter().collect();
        let event_seen = discoveries.remove(event).is_some();
        let broken = discoveries.into_iter().map(|(name, path)| (name, story(path))).collect();
        Self { worlds: checker.unique_state_count(), took: begun.elapsed(), broken, event_seen }
    }

    /// The differences between the result and the expected result. The list is empty if there are none.
    pub(crate) fn complaints(&self, breaks: &[&'static str], event: &str) -> Vec<String> {
        let unexpected = self.broken.iter().filter(|_| breaks.is_empty());
        let unexpected = unexpected.map(|(name, story)| format!("broken: {name}\n{story}"));
        let not_broken = breaks.iter().filter(|name| !self.broken.contains_key(*name));
        let not_broken = not_broken.map(|name| format!("not found broken: {name}"));
        let unseen = (breaks.is_empty() && !self.event_seen).then(|| format!("not seen: {event}"));
        unexpected.chain(not_broken).chain(unseen).collect()
    }
}

/// The steps to a world, and the state of the world after each step.
fn story<S: Display, A: Debug>(path: Path<S, A>) -> String {
    let (mut text, mut last_action) = (String::new(), None);
    for (step, (state, next)) in path.into_vec().into_iter().enumerate() {
        if let Some(action) = last_action {
            text += &format!("{step:3}. {:<22} {state}\n", format!("{action:?}"));
        }
        last_action = next;
    }
    text
}
