//! What happened on the engines: a bounded history of the last day, in memory.

use std::collections::VecDeque;

use leasehold_ops::Change;

use crate::time::millis;

/// How long an entry is kept.
const KEPT_MS: u64 = 24 * 3600 * 1000;
/// How many entries are kept at most.
const MAX_ENTRIES: usize = 100_000;
/// How many bytes of names and owners are kept at most, so that long names cannot fill the memory.
const MAX_BYTES: usize = 32 << 20;
/// How many breaks of this page are remembered until their end is seen.
const MAX_BREAKS: usize = 256;

/// The history, oldest first.
#[derive(Default)]
pub(crate) struct History {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Whether an entry was dropped before its day was over.
    is_cut: bool,
    /// Breaks by this page whose end was not seen yet: the engine, the name, the token.
    breaks: VecDeque<(usize, String, u64)>,
}

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The time of day of the look that found it, in milliseconds.
    pub(crate) at: u64,
    /// The number of the engine.
    pub(crate) engine: usize,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) owner: String,
    pub(crate) token: Option<u64>,
    /// How long it had waited at the grant or when it left, or had held at the end, in milliseconds.
    pub(crate) lasted: Option<u64>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Granted,
    Ended,
    Lapsed,
    Broken,
    /// It left the queue: it gave up, or it was granted and its hold ended between two looks.
    Left,
}

/// How often each kind happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) granted: usize,
    pub(crate) lapsed: usize,
    pub(crate) broken: usize,
    pub(crate) left: usize,
}

impl Kind {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Ended => "ended",
            Self::Lapsed => "lapsed",
            Self::Broken => "broken",
            Self::Left => "left",
        }
    }

    /// Whether it ends a wait. The others end a hold.
    pub(crate) const fn is_wait(self) -> bool {
        matches!(self, Self::Granted | Self::Left)
    }
}

impl History {
    /// Adds what a look at `now` found on an engine. The begin of a wait is left out: its end has the time waited.
    pub(crate) fn add(&mut self, engine: usize, changes: &[(String, Change)], now: u64) {
        for (name, change) in changes {
            let (kind, owner, token, lasted) = match change {
                Change::Granted { holder, waited } => {
                    (Kind::Granted, &holder.owner, holder.token, waited.map(millis))
                }
                Change::Broken(holder) => {
                    // Its end is an entry of its own.
                    let _ = self.take_break(engine, name, holder.token);
                    (Kind::Broken, &holder.owner, holder.token, holder.held.map(millis))
                }
                Change::Ended { holder, lapsed } => {
                    let kind = match (self.take_break(engine, name, holder.token), lapsed) {
                        (true, _) => Kind::Broken,
                        (false, true) => Kind::Lapsed,
                        (false, false) => Kind::Ended,
                    };
                    (kind, &holder.owner, holder.token, holder.held.map(millis))
                }
                Change::Left(waiter) => (Kind::Left, &waiter.owner, None, waiter.waiting.map(millis)),
                Change::Waiting(_) => continue,
            };
            let (name, owner) = (name.clone(), owner.clone());
            self.push(Entry { at: now, engine, name, kind, owner, token, lasted });
        }
        self.drop_old(now);
    }

    /// Remembers that this page ended a hold: its end counts as broken.
    pub(crate) fn expect_break(&mut self, engine: usize, name: &str, token: u64) {
        if self.breaks.len() == MAX_BREAKS {
            self.breaks.pop_front();
        }
        self.breaks.push_back((engine, name.to_owned(), token));
    }

    /// The entries, newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().rev()
    }

    /// Since when the history is complete, if entries had to be dropped before their day was over.
    pub(crate) fn cut_at(&self) -> Option<u64> {
        self.entries.front().filter(|_| self.is_cut).map(|entry| entry.at)
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for entry in &self.entries {
            match entry.kind {
                Kind::Granted => counts.granted += 1,
                Kind::Lapsed => counts.lapsed += 1,
                Kind::Broken => counts.broken += 1,
                Kind::Left => counts.left += 1,
                Kind::Ended => {}
            }
        }
        counts
    }

    /// The longest waits, longest first.
    pub(crate) fn longest_waits(&self, count: usize) -> Vec<&Entry> {
        let is_wait = |entry: &&Entry| entry.kind.is_wait() && entry.lasted > Some(0);
        let mut waits: Vec<_> = self.entries.iter().filter(is_wait).collect();
        waits.sort_by_key(|entry| std::cmp::Reverse(entry.lasted));
        waits.truncate(count);
        waits
    }

    fn take_break(&mut self, engine: usize, name: &str, token: Option<u64>) -> bool {
        let is_it = |(of, broken, number): &(usize, String, u64)| {
            *of == engine && broken == name && Some(*number) == token
        };
        let at = self.breaks.iter().position(is_it);
        at.map(|at| self.breaks.remove(at)).is_some()
    }

    fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        while self.entries.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            self.is_cut = true;
            self.pop();
        }
    }

    fn drop_old(&mut self, now: u64) {
        while self.entries.front().is_some_and(|entry| entry.at.saturating_add(KEPT_MS) < now) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(entry) = self.entries.pop_front() {
            self.bytes -= entry.bytes();
        }
    }
}

impl Entry {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.owner.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::{HolderView, WaiterView};

    use super::*;

    fn ended(token: u64, lapsed: bool) -> Change {
        let holder = HolderView::new("i".into(), "o".into()).token(Some(token));
        Change::Ended { holder: holder.times(Some(Duration::from_secs(2)), None), lapsed }
    }

    fn named(change: Change) -> [(String, Change); 1] {
        [("n".to_owned(), change)]
    }

    #[test]
    fn a_break_by_the_page_is_told_from_a_release() {
        let mut history = History::default();
        history.expect_break(0, "n", 7);
        history.add(0, &named(ended(6, false)), 1);
        history.add(1, &named(ended(7, true)), 2);
        history.add(0, &named(ended(7, false)), 3);
        history.add(0, &named(ended(7, false)), 4);
        let kinds: Vec<_> = history.newest().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [Kind::Ended, Kind::Broken, Kind::Lapsed, Kind::Ended]);
        assert_eq!(history.counts(), Counts { lapsed: 1, broken: 1, ..Counts::default() });
    }

    #[test]
    fn a_break_that_a_look_sees_is_told_one_time() {
        let mut history = History::default();
        history.expect_break(0, "n", 7);
        let holder = HolderView::new("i".into(), "o".into()).token(Some(7)).broken(true);
        history.add(0, &named(Change::Broken(holder.clone())), 1);
        history.add(0, &named(Change::Ended { holder, lapsed: false }), 2);
        let kinds: Vec<_> = history.newest().map(|entry| entry.kind).collect();
        assert_eq!(kinds, [Kind::Ended, Kind::Broken]);
    }

    #[test]
    fn waits_are_sorted_by_their_length() {
        let mut history = History::default();
        for secs in [3, 9, 1] {
            let waiter = WaiterView::new("w".into(), format!("o{secs}"), Some(Duration::from_secs(secs)));
            history.add(0, &named(Change::Left(waiter)), 1);
        }
        let longest: Vec<_> = history.longest_waits(2).iter().map(|entry| entry.owner.as_str()).collect();
        assert_eq!(longest, ["o9", "o3"]);
    }

    #[test]
    fn it_is_bounded_by_a_day_by_entries_and_by_bytes() {
        let mut history = History::default();
        history.add(0, &named(ended(1, false)), 0);
        history.add(0, &named(ended(2, false)), KEPT_MS + 1);
        assert_eq!((history.newest().count(), history.cut_at()), (1, None), "a day is over");
        for token in 0..MAX_ENTRIES as u64 {
            history.add(0, &named(ended(token, false)), KEPT_MS + 2);
        }
        assert_eq!((history.entries.len(), history.cut_at()), (MAX_ENTRIES, Some(KEPT_MS + 2)));
        let long = ("n".repeat(1 << 20), ended(1, false));
        for _ in 0..64 {
            history.add(0, std::slice::from_ref(&long), KEPT_MS + 3);
        }
        assert!(history.bytes <= MAX_BYTES && history.entries.len() < 64);
        assert_eq!(history.bytes, history.entries.iter().map(Entry::bytes).sum::<usize>());
    }
}
