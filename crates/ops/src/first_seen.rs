//! How long holds and waits have been seen, where the engine does not tell when they began.

use std::{collections::HashMap, time::Duration};

use leasehold::{HolderView, View, WaiterView};

use crate::short_duration;

/// When holds and waits whose begin the engine does not tell were seen first.
#[derive(Debug, Default)]
pub struct FirstSeen {
    holds: HashMap<Hold, Duration>,
    waits: HashMap<(String, String), Duration>,
}

/// A hold: the name, the claim id and the token.
type Hold = (String, String, Option<u64>);

impl FirstSeen {
    /// No look yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next look, and adds to it for how long, at least, each hold and each wait lasts, where the engine does
    /// not tell it. The look was sent to the engine at `sent` and answered at `answered`, both counted from any moment.
    pub fn next(&mut self, views: &mut [View], sent: Duration, answered: Duration) {
        let (mut holds, mut waits) = (HashMap::new(), HashMap::new());
        for view in views {
            let name = view.name.as_str();
            for holder in view.holders.iter_mut().filter(|holder| holder.held.is_none()) {
                let hold = (name.to_owned(), holder.id.clone(), holder.token);
                let first = self.holds.get(&hold).copied().unwrap_or(answered);
                holds.insert(hold, first);
                holder.held_at_least = at_least(first, sent);
            }
            for waiter in view.waiters.iter_mut().filter(|waiter| waiter.waiting.is_none()) {
                let wait = (name.to_owned(), waiter.id.clone());
                let first = self.waits.get(&wait).copied().unwrap_or(answered);
                waits.insert(wait, first);
                waiter.waiting_at_least = at_least(first, sent);
            }
        }
        (self.holds, self.waits) = (holds, waits);
    }
}

/// The time from a first answer to a later request. `None`: this is the first look.
fn at_least(first: Duration, sent: Duration) -> Option<Duration> {
    Some(sent.saturating_sub(first)).filter(|seen| !seen.is_zero())
}

/// How long the hold has lasted, as text: `40s`, or `>40s` if the engine does not tell it and it was seen for 40 s.
#[must_use]
pub fn held_text(holder: &HolderView) -> Option<String> {
    text(holder.held, holder.held_at_least)
}

/// How long the waiter has waited, as text: `40s`, or `>40s` if the engine does not tell it and it was seen for 40 s.
#[must_use]
pub fn waiting_text(waiter: &WaiterView) -> Option<String> {
    text(waiter.waiting, waiter.waiting_at_least)
}

/// The waiter of the name that has waited longest, as far as it is known.
#[must_use]
pub fn oldest_waiter(view: &View) -> Option<&WaiterView> {
    let age = |waiter: &&WaiterView| waiter.waiting.or(waiter.waiting_at_least);
    view.waiters.iter().filter(|waiter| age(waiter).is_some()).max_by_key(age)
}

fn text(known: Option<Duration>, at_least: Option<Duration>) -> Option<String> {
    let at_least = || at_least.map(|time| format!(">{}", short_duration(time)));
    known.map(short_duration).or_else(at_least)
}

#[cfg(test)]
mod tests {
    use leasehold::Name;

    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn view(token: u64, waiters: &[(&str, Option<Duration>)]) -> View {
        let mut view = View::free(Name::new("n").unwrap(), "k".into());
        view.holders.push(HolderView::new("h".into(), "o".into()).token(Some(token)));
        let waiter = |(id, waiting): &(&str, _)| WaiterView::new((*id).into(), "o".into(), *waiting);
        view.waiters.extend(waiters.iter().map(waiter));
        view
    }

    #[test]
    fn a_hold_and_a_wait_last_at_least_as_long_as_they_were_seen() {
        let mut seen = FirstSeen::new();
        let mut look = |token, waiters: &[(&str, Option<Duration>)], sent, answered| {
            let mut view = view(token, waiters);
            seen.next(std::slice::from_mut(&mut view), seconds(sent), seconds(answered));
            let waits: Vec<_> =
                view.waiters.iter().map(|waiter| waiting_text(waiter).unwrap_or_default()).collect();
            (held_text(&view.holders[0]), waits.join(" "))
        };
        assert_eq!(look(1, &[("a", None)], 0, 5), (None, String::new()), "the first look");
        let told = ("b", Some(seconds(90)));
        let later = look(1, &[("a", None), told], 45, 46);
        assert_eq!(later, (Some(">40s".into()), ">40s 1m30s".into()), "the slow answer does not count");
        let next = look(2, &[], 50, 50);
        assert_eq!(next, (None, String::new()), "the next hold of the claim begins anew");
        assert_eq!(look(2, &[("a", None)], 61, 61).0, Some(">11s".into()));
    }

    #[test]
    fn the_oldest_waiter_is_known_by_either_time() {
        let mut view = view(1, &[("a", Some(seconds(5))), ("b", None), ("c", None)]);
        assert_eq!(oldest_waiter(&view).unwrap().id, "a");
        view.waiters[1].waiting_at_least = Some(seconds(6));
        assert_eq!(oldest_waiter(&view).unwrap().id, "b");
        view.waiters.clear();
        assert!(oldest_waiter(&view).is_none());
    }
}
