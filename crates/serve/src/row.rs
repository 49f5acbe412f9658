//! One name of one engine, as the page shows it.

use std::time::Duration;

use leasehold::{Mode, View};
use leasehold_ops::marks;

use crate::{
    html::{link, visible},
    time::millis,
};

/// How many characters of a claim id are shown. The whole id is not shown: on engines where it is all that a request
/// must prove, a reader of the page could end the claim.
const SHOWN_ID_CHARS: usize = 8;
/// How much two measurements of the same moment may differ. Within this time the earlier one is kept, so that a row
/// does not change while nothing happens.
const SAME_MOMENT_MS: u64 = 2000;

/// A name with its holders and waiters. Times are times of day of this machine in milliseconds, so that the page can
/// count on without new rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// How other programs find the name.
    pub(crate) key: String,
    pub(crate) mode: String,
    pub(crate) holders: Vec<Holder>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) problem: Option<String>,
    pub(crate) note: Option<String>,
}

/// Since when something lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) at: u64,
    /// Whether it may last longer: the engine does not tell it, and looks have seen it since then.
    pub(crate) is_latest: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) id: String,
    pub(crate) owner: String,
    pub(crate) token: Option<u64>,
    /// Since when it holds the name.
    pub(crate) since: Option<Since>,
    /// When its lease ends, unless renewed.
    pub(crate) until: Option<u64>,
    pub(crate) of_session: bool,
    pub(crate) foreign: bool,
    /// What is not as it should be, as words after the owner.
    pub(crate) marks: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) id: String,
    pub(crate) owner: String,
    /// Since when it waits.
    pub(crate) since: Option<Since>,
}

/// The rows of a look at `now`, sorted by name. `before` are the rows of the look before.
pub(crate) fn rows(views: &[View], now: u64, before: &[Row]) -> Vec<Row> {
    let mut rows: Vec<_> = views
        .iter()
        .map(|view| {
            let at = before.binary_search_by(|row| row.name.as_str().cmp(view.name.as_str()));
            Row::new(view, now, at.ok().map(|at| &before[at]))
        })
        .collect();
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

impl Row {
    /// The row of a view that was read at `now`. `before`: the row of the name in the look before.
    pub(crate) fn new(view: &View, now: u64, before: Option<&Self>) -> Self {
        let holders = view.holders.iter().map(|holder| {
            let known = before.and_then(|row| {
                row.holders.iter().find(|other| other.id == holder.id && other.token == holder.token)
            });
            let until = holder.remaining.map(|left| now.saturating_add(millis(left)));
            Holder {
                id: holder.id.clone(),
                owner: holder.owner.clone(),
                token: holder.token,
                since: since(holder.held, holder.held_at_least, now, known.and_then(|known| known.since)),
                until: same_moment(until, known.and_then(|known| known.until)),
                of_session: holder.of_session,
                foreign: holder.foreign,
                marks: marks(holder),
            }
        });
        let waiters = view.waiters.iter().map(|waiter| {
            let known = before.and_then(|row| row.waiters.iter().find(|other| other.id == waiter.id));
            let known = known.and_then(|known| known.since);
            let since = since(waiter.waiting, waiter.waiting_at_least, now, known);
            Waiter { id: waiter.id.clone(), owner: waiter.owner.clone(), since }
        });
        Self {
            name: view.name.as_str().to_owned(),
            key: view.key.clone(),
            mode: view.mode.map_or_else(|| "free".to_owned(), mode_text),
            holders: holders.collect(),
            waiters: waiters.collect(),
            problem: view.problem.clone(),
            note: view.note.clone(),
        }
    }

    /// Since when the oldest waiter waits.
    pub(crate) fn oldest_wait(&self) -> Option<Since> {
        self.waiters.iter().filter_map(|waiter| waiter.since).min_by_key(|since| since.at)
    }

    /// Since when the oldest holder holds it.
    pub(crate) fn held_since(&self) -> Option<Since> {
        self.holders.iter().filter_map(|holder| holder.since).min_by_key(|since| since.at)
    }

    /// The holder in one line.
    pub(crate) fn holder_text(&self) -> String {
        match (&self.problem, self.holders.split_first()) {
            (Some(problem), _) => format!("unreadable: {problem}"),
            (None, None) => "-".to_owned(),
            (None, Some((first, []))) => first.owner_text(),
            (None, Some((first, others))) => format!("{} and {} more", first.owner_text(), others.len()),
        }
    }

    /// The address of its page.
    pub(crate) fn link(&self, engine: &str) -> String {
        link("/name", &[("engine", engine), ("name", &self.name)])
    }
}

impl Holder {
    /// Its owner, with what is not as it should be.
    pub(crate) fn owner_text(&self) -> String {
        let owner = if self.owner.is_empty() { "unknown" } else { &self.owner };
        if self.marks.is_empty() {
            return owner.to_owned();
        }
        format!("{owner} ({})", self.marks.join(", "))
    }

    /// What ends the hold, where no time is known.
    pub(crate) const fn end_text(&self) -> &'static str {
        if self.of_session { "with its session" } else { "no expiry" }
    }
}

/// The begin of a claim id, enough to compare two of them by eye.
pub(crate) fn short_id(id: &str) -> String {
    let short: String = id.chars().take(SHOWN_ID_CHARS).collect();
    if short.len() == id.len() { visible(&short) } else { visible(&short) + "…" }
}

/// Since when something lasts, from its age at `now`, as the engine or looks tell it. `known`: by the look before.
fn since(age: Option<Duration>, at_least: Option<Duration>, now: u64, known: Option<Since>) -> Option<Since> {
    let begin = age.or(at_least).map(|age| now.saturating_sub(millis(age)));
    let at = same_moment(begin, known.map(|known| known.at))?;
    Some(Since { at, is_latest: age.is_none() })
}

fn same_moment(measured: Option<u64>, known: Option<u64>) -> Option<u64> {
    match (measured, known) {
        (Some(measured), Some(known)) if measured.abs_diff(known) < SAME_MOMENT_MS => Some(known),
        (measured, _) => measured,
    }
}

fn mode_text(mode: Mode) -> String {
    match mode.limit() {
        Some(limit) => format!("permit (limit {limit})"),
        None => mode.word().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{HolderView, Name, WaiterView};

    use super::*;

    fn view(held_ms: u64, left_ms: u64) -> View {
        let mut view = View::free(Name::new("n").unwrap(), "k".into());
        let times = (Some(Duration::from_millis(held_ms)), Some(Duration::from_millis(left_ms)));
        view.holders
            .push(HolderView::new("0123456789".into(), "o".into()).token(Some(3)).times(times.0, times.1));
        view.waiters.push(WaiterView::new("w".into(), "p".into(), times.0));
        view
    }

    #[test]
    fn a_row_changes_only_when_something_happened() {
        let first = rows(&[view(1000, 9000)], 50_000, &[]);
        let since = Some(Since { at: 49_000, is_latest: false });
        assert_eq!((first[0].held_since(), first[0].holders[0].until), (since, Some(59_000)));
        let second = rows(&[view(2003, 7990)], 51_000, &first);
        assert_eq!(first, second, "the measurement differs by some milliseconds");
        let renewed = rows(&[view(3000, 10_000)], 52_000, &second);
        assert_eq!((renewed[0].held_since(), renewed[0].holders[0].until), (since, Some(62_000)));
    }

    #[test]
    fn a_begin_that_the_engine_does_not_tell_is_the_first_look() {
        let mut view = view(0, 9000);
        (view.holders[0].held, view.waiters[0].waiting) = (None, None);
        let first = Row::new(&view, 50_000, None);
        assert_eq!((first.held_since(), first.oldest_wait()), (None, None));
        let seen = Some(Duration::from_millis(4000));
        (view.holders[0].held_at_least, view.waiters[0].waiting_at_least) = (seen, seen);
        let next = Row::new(&view, 54_000, Some(&first));
        let since = Some(Since { at: 50_000, is_latest: true });
        assert_eq!((next.held_since(), next.oldest_wait()), (since, since));
    }

    #[test]
    fn the_holder_is_one_line() {
        let mut view = view(1, 1);
        view.holders[0].foreign = true;
        assert_eq!(Row::new(&view, 0, None).holder_text(), "o (foreign)");
        let broken = HolderView::new("i".into(), String::new()).broken(true);
        let mut row = view.clone();
        row.holders = vec![broken];
        assert_eq!(Row::new(&row, 0, None).holder_text(), "unknown (broken)");
        view.holders.push(view.holders[0].clone());
        assert_eq!(Row::new(&view, 0, None).holder_text(), "o (foreign) and 1 more");
        view.problem = Some("not a lock".into());
        assert_eq!(Row::new(&view, 0, None).holder_text(), "unreadable: not a lock");
    }

    #[test]
    fn a_whole_id_is_not_shown() {
        assert_eq!(short_id("0123456789"), "01234567…");
        assert_eq!(short_id("abc"), "abc");
    }
}
