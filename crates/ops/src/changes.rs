//! What happened between two looks at the locks of an engine.
//!
//! An engine tells who holds and who waits now. What happened in between is concluded from two such answers: a hold
//! that began and ended between them is not seen.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use leasehold::{HolderView, View, WaiterView};

/// A change of one name.
#[derive(Clone, Debug)]
pub enum Change {
    /// A request began to wait.
    Waiting(WaiterView),
    /// A request waits no more and holds nothing: it gave up, or it was granted and its hold ended between two looks.
    Left(WaiterView),
    /// A hold began. `waited`: how long its request had waited when it was last seen in the queue.
    Granted {
        /// The hold.
        holder: HolderView,
        /// How long its request had waited, at least; `None` if it was not seen in the queue.
        waited: Option<Duration>,
    },
    /// A hold was broken, and its name stays taken until the holder stops or its lease ends.
    Broken(HolderView),
    /// A hold ended.
    Ended {
        /// The hold, as it was last seen.
        holder: HolderView,
        /// Whether its lease can have run out since it was last seen. If not, it was released or broken. An end of a
        /// hold that was seen broken is no loss, however it came.
        lapsed: bool,
    },
}

/// The last look at the locks of an engine.
#[derive(Debug, Default)]
pub struct Looks {
    last: Option<(Instant, HashMap<String, View>)>,
}

impl Looks {
    /// No look yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next look, made at `now`: the answer of `list`. Returns what changed since the look before, by name;
    /// nothing for the first look. Of a name that could not be read, nothing is concluded.
    pub fn next(&mut self, views: &[View], now: Instant) -> Vec<(String, Change)> {
        let mut next: HashMap<String, View> =
            views.iter().map(|view| (view.name.as_str().to_owned(), view.clone())).collect();
        let mut changes = Vec::new();
        if let Some((then, last)) = &self.last {
            let elapsed = now.saturating_duration_since(*then);
            for (name, before) in last {
                match next.get(name) {
                    Some(view) if view.problem.is_some() => {
                        next.insert(name.clone(), before.clone());
                    }
                    after => compare(name, before, after, elapsed, &mut changes),
                }
            }
            for (name, view) in &next {
                if view.problem.is_none() && !last.contains_key(name) {
                    let free = View::free(view.name.clone(), view.key.clone());
                    compare(name, &free, Some(view), elapsed, &mut changes);
                }
            }
        }
        // A name whose first look failed stays unknown: its holders are no news when they can be read.
        next.retain(|_, view| view.problem.is_none());
        self.last = Some((now, next));
        // In the order of names, and of each name in the order in which things happen: ends before grants.
        changes.sort_by(|(a, _), (b, _)| a.cmp(b));
        changes
    }
}

/// The changes of one name.
fn compare(
    name: &str,
    before: &View,
    after: Option<&View>,
    elapsed: Duration,
    changes: &mut Vec<(String, Change)>,
) {
    let (no_holders, no_waiters) = (Vec::new(), Vec::new());
    let holders = after.map_or(&no_holders, |view| &view.holders);
    let waiters = after.map_or(&no_waiters, |view| &view.waiters);
    let mut tell = |change| changes.push((name.to_owned(), change));
    for holder in &before.holders {
        if !holders.iter().any(|other| is_same_hold(holder, other)) {
            let lapsed = !holder.broken && holder.remaining.is_some_and(|remaining| remaining <= elapsed);
            tell(Change::Ended { holder: holder.clone(), lapsed });
        }
    }
    for holder in holders {
        let known = before.holders.iter().find(|other| is_same_hold(holder, other));
        if known.is_none() {
            let waited = before.waiters.iter().find(|waiter| waiter.id == holder.id);
            tell(Change::Granted {
                holder: holder.clone(),
                waited: waited.and_then(|waiter| waiter.waiting.or(waiter.waiting_at_least)),
            });
        }
        if holder.broken && !known.is_some_and(|known| known.broken) {
            tell(Change::Broken(holder.clone()));
        }
    }
    for waiter in &before.waiters {
        let is_holder = holders.iter().any(|holder| holder.id == waiter.id);
        if !is_holder && !waiters.iter().any(|other| other.id == waiter.id) {
            tell(Change::Left(waiter.clone()));
        }
    }
    for waiter in waiters {
        if !before.waiters.iter().any(|other| other.id == waiter.id) {
            tell(Change::Waiting(waiter.clone()));
        }
    }
}

/// Whether two views show one hold. A name that is handed over inside a process keeps its id and its block of tokens.
fn is_same_hold(one: &HolderView, other: &HolderView) -> bool {
    one.id == other.id && one.token == other.token
}

#[cfg(test)]
mod tests {
    use leasehold::Name;

    use super::*;

    fn view(name: &str, holders: &[(&str, u64)], waiters: &[&str]) -> View {
        let mut view = View::free(Name::new(name).unwrap(), name.to_owned());
        for (id, token) in holders {
            let holder = HolderView::new((*id).into(), "o".into()).token(Some(*token));
            view.holders.push(holder.times(None, Some(Duration::from_secs(5))));
        }
        for id in waiters {
            view.waiters.push(WaiterView::new((*id).into(), "o".into(), Some(Duration::from_secs(2))));
        }
        view
    }

    fn words(changes: &[(String, Change)]) -> Vec<String> {
        let word = |(name, change): &(String, Change)| match change {
            Change::Waiting(waiter) => format!("{name}: {} waits", waiter.id),
            Change::Left(waiter) => format!("{name}: {} left", waiter.id),
            Change::Granted { holder, waited } => {
                format!("{name}: {} granted, waited {}", holder.id, waited.is_some())
            }
            Change::Broken(holder) => format!("{name}: {} broken", holder.id),
            Change::Ended { holder, lapsed } => format!("{name}: {} ended, lapsed {lapsed}", holder.id),
        };
        changes.iter().map(word).collect()
    }

    #[test]
    fn a_hand_over_is_an_end_and_a_grant() {
        let (mut looks, start) = (Looks::new(), Instant::now());
        assert!(looks.next(&[view("a", &[("h", 1)], &["w", "x"])], start).is_empty(), "the first look");
        let soon = start + Duration::from_secs(1);
        let changes = looks.next(&[view("a", &[("w", 2)], &["y"])], soon);
        let expected = ["a: h ended, lapsed false", "a: w granted, waited true", "a: x left", "a: y waits"];
        assert_eq!(words(&changes), expected);
        let late = soon + Duration::from_secs(5);
        let changes = looks.next(&[view("b", &[("z", 1)], &[])], late);
        assert_eq!(words(&changes), ["a: w ended, lapsed true", "a: y left", "b: z granted, waited false"]);
        assert!(looks.next(&[view("b", &[("z", 1)], &[])], late).is_empty(), "nothing changed");
    }

    #[test]
    fn a_broken_hold_is_told_one_time_and_does_not_lapse() {
        let (mut looks, now) = (Looks::new(), Instant::now());
        let broken = |id: &str| {
            let mut view = view("a", &[(id, 1)], &[]);
            view.holders[0].broken = true;
            [view]
        };
        looks.next(&[view("a", &[("h", 1)], &[])], now);
        assert_eq!(words(&looks.next(&broken("h"), now)), ["a: h broken"]);
        assert!(looks.next(&broken("h"), now).is_empty(), "it was told");
        let late = now + Duration::from_secs(9);
        let changes = words(&looks.next(&broken("i"), late));
        assert_eq!(changes, ["a: h ended, lapsed false", "a: i granted, waited false", "a: i broken"]);
    }

    #[test]
    fn a_name_that_cannot_be_read_changes_nothing() {
        let (mut looks, now) = (Looks::new(), Instant::now());
        let mut unreadable = view("a", &[], &[]);
        unreadable.problem = Some("not a record".into());
        looks.next(&[view("a", &[("h", 1)], &[])], now);
        assert!(looks.next(std::slice::from_ref(&unreadable), now).is_empty());
        assert!(looks.next(&[view("a", &[("h", 1)], &[])], now).is_empty(), "the same holder as before");
        assert_eq!(words(&looks.next(&[], now)), ["a: h ended, lapsed false"]);
        looks.next(&[unreadable], now);
    }
}
