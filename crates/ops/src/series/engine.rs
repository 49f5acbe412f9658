//! The series of one engine: its state, its locks, and what happened to them.

use std::time::{Duration, SystemTime};

use leasehold::{Diagnostic, Level, View};

use super::{
    families::{
        DIAGNOSTIC, ENGINE_UP, HOLDERS, LAST_LOOK, LEVEL, LOCK_HELD_SINCE, LOCK_OLDEST_WAITER, LOCK_WAITERS,
        LONGEST_QUEUE, NAMES_DROPPED, OLDEST_HOLD, OLDEST_WAITER, UNREADABLE, WAITERS,
    },
    names::NameFilter,
    text::{Exposition, Labels},
    totals::{Totals, count_value},
    waits::write_long_waits,
};
use crate::waits::Finding;

/// What is known of one engine.
///
/// ```
/// use std::time::SystemTime;
///
/// use leasehold_ops::series::{EngineState, Exposition, NameFilter, Totals};
///
/// let (views, totals) = (Vec::new(), Totals::new());
/// let state = EngineState::new("redis", "redis.example:6379", &totals).looked(SystemTime::now(), &views);
/// let mut text = Exposition::new();
/// state.write(&mut text, &NameFilter::new(["deploy/*"]));
/// assert!(text.to_string().contains("leasehold_holders{engine=\"redis\",location=\"redis.example:6379\"} 0\n"));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct EngineState<'a> {
    engine: &'a str,
    location: &'a str,
    totals: &'a Totals,
    last_look: Option<SystemTime>,
    /// The views of the last look; `None` if it failed.
    views: Option<&'a [View]>,
    level: Option<Level>,
    diagnostics: &'a [Diagnostic],
    /// What the last search for long waits found; `None` if it is not known.
    findings: Option<&'a [Finding]>,
}

impl<'a> EngineState<'a> {
    /// An engine at which no look has succeeded. `location` says where it stores its locks, without secrets: a host and
    /// a port, or a directory. Two engines of one text must differ in the location.
    pub const fn new(engine: &'a str, location: &'a str, totals: &'a Totals) -> Self {
        let (last_look, views, level, findings) = (None, None, None, None);
        Self { engine, location, totals, last_look, views, level, diagnostics: &[], findings }
    }

    /// An engine whose last look, made at this time, returned these views. Do not pass the views of an earlier look
    /// when the last one failed: stale holders would look current.
    pub const fn looked(mut self, at: SystemTime, views: &'a [View]) -> Self {
        (self.last_look, self.views) = (Some(at), Some(views));
        self
    }

    /// An engine whose last look failed. `at`: the time of the last look that succeeded.
    pub const fn away(mut self, at: Option<SystemTime>) -> Self {
        (self.last_look, self.views) = (at, None);
        self
    }

    /// The level of the guarantee; `None` if it is not known.
    pub const fn level(mut self, level: Option<Level>) -> Self {
        self.level = level;
        self
    }

    /// What the diagnosis of the engine found.
    pub const fn diagnostics(mut self, diagnostics: &'a [Diagnostic]) -> Self {
        self.diagnostics = diagnostics;
        self
    }

    /// What the last search for deadlocks and long waits found, over this engine and others. The looks of the search
    /// must have had the location as the name of the engine. `None`: it is not known, for example because this engine
    /// does not answer.
    pub const fn findings(mut self, findings: Option<&'a [Finding]>) -> Self {
        self.findings = findings;
        self
    }

    /// Adds the series. `names`: the names that have series of their own.
    pub fn write(&self, text: &mut Exposition, names: &NameFilter) {
        let labels = [("engine", self.engine), ("location", self.location)];
        text.sample(&ENGINE_UP, &labels, f64::from(u8::from(self.views.is_some())));
        self.last_look.iter().for_each(|at| text.time(&LAST_LOOK, &labels, *at));
        self.level.iter().for_each(|level| text.sample(&LEVEL, &labels, level_value(*level)));
        for Diagnostic { id, severity, server, .. } in self.diagnostics {
            let mut labels = labels.to_vec();
            labels.extend([("id", *id), ("severity", severity.as_str())]);
            labels.extend(server.as_deref().map(|server| ("server", server)));
            text.sample(&DIAGNOSTIC, &labels, 1.0);
        }
        self.totals.write(text, &labels);
        if let Some(findings) = self.findings {
            write_long_waits(text, &labels, self.location, findings);
        }
        if let (Some(at), Some(views)) = (self.last_look, self.views) {
            write_sums(text, &labels, at, views);
            let (selected, dropped) = names.select(views);
            text.sample(&NAMES_DROPPED, &labels, length_value(dropped));
            selected.into_iter().for_each(|view| write_name(text, &labels, at, view));
        }
    }
}

/// The series of all names together.
fn write_sums(text: &mut Exposition, labels: &Labels<'_>, at: SystemTime, views: &[View]) {
    let sum = |count: fn(&View) -> usize| length_value(views.iter().map(count).sum());
    text.sample(&HOLDERS, labels, sum(|view| view.holders.len()));
    text.sample(&WAITERS, labels, sum(|view| view.waiters.len()));
    text.sample(&UNREADABLE, labels, sum(|view| usize::from(view.problem.is_some())));
    let longest = views.iter().map(|view| view.waiters.len()).max();
    text.sample(&LONGEST_QUEUE, labels, length_value(longest.unwrap_or_default()));
    since(views.iter().filter_map(longest_hold).max(), at)
        .iter()
        .for_each(|since| text.time(&OLDEST_HOLD, labels, *since));
    since(views.iter().filter_map(longest_wait).max(), at)
        .iter()
        .for_each(|since| text.time(&OLDEST_WAITER, labels, *since));
}

/// The series of one name.
fn write_name(text: &mut Exposition, labels: &Labels<'_>, at: SystemTime, view: &View) {
    let labels: Vec<_> = labels.iter().copied().chain([("name", view.name.as_str())]).collect();
    text.sample(&LOCK_WAITERS, &labels, length_value(view.waiters.len()));
    let held = since(longest_hold(view), at);
    held.iter().for_each(|since| text.time(&LOCK_HELD_SINCE, &labels, *since));
    let waiting = since(longest_wait(view), at);
    waiting.iter().for_each(|since| text.time(&LOCK_OLDEST_WAITER, &labels, *since));
}

fn longest_hold(view: &View) -> Option<Duration> {
    view.holders.iter().filter_map(|holder| holder.held.or(holder.held_at_least)).max()
}

fn longest_wait(view: &View) -> Option<Duration> {
    let waits = view.waiters.iter().filter_map(|waiter| waiter.waiting.or(waiter.waiting_at_least));
    waits.max()
}

/// The time since which something lasts that had lasted for `age` at the time of the look.
fn since(age: Option<Duration>, at: SystemTime) -> Option<SystemTime> {
    at.checked_sub(age?)
}

pub(super) fn length_value(length: usize) -> f64 {
    count_value(u64::try_from(length).unwrap_or(u64::MAX))
}

const fn level_value(level: Level) -> f64 {
    match level {
        Level::Exact => 2.0,
        Level::LeaseBounded => 1.0,
        // Best effort. A level that this version does not know counts as the worst.
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use leasehold::{HolderView, Name, Severity, WaiterView};

    use super::*;

    fn view(name: &str, held: &[u64], waiting: &[u64]) -> View {
        let mut view = View::free(Name::new(name).unwrap(), name.into());
        for seconds in held {
            let holder = HolderView::new("h".into(), "alice".into());
            view.holders.push(holder.times(Some(Duration::from_secs(*seconds)), None));
        }
        for seconds in waiting {
            view.waiters.push(WaiterView::new("w".into(), "bob".into(), Some(Duration::from_secs(*seconds))));
        }
        view
    }

    fn file(totals: &Totals) -> EngineState<'_> {
        EngineState::new("file", "/d", totals)
    }

    /// The lines without comments of the file engine.
    fn lines(state: &EngineState<'_>, names: &NameFilter) -> Vec<String> {
        let mut text = Exposition::new();
        state.write(&mut text, names);
        let text = text.to_string().replace("engine=\"file\",location=\"/d\"", "E");
        let is_shown = |line: &&str| !line.starts_with('#') && !line.contains("_observed_");
        text.lines().filter(is_shown).map(str::to_owned).collect()
    }

    fn at() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000)
    }

    #[test]
    fn ages_become_times_and_only_selected_names_have_series() {
        let mut unreadable = view("x", &[], &[]);
        unreadable.problem = Some("not a record".into());
        let views =
            [view("a/1", &[10, 30], &[]), view("a/2", &[5], &[4, 2]), view("b", &[50], &[60]), unreadable];
        let lines = lines(&file(&Totals::new()).looked(at(), &views), &NameFilter::new(["a/*"]));
        let expected = [
            "leasehold_breaks_total{E} 0",
            "leasehold_engine_up{E} 1",
            "leasehold_holders{E} 4",
            "leasehold_last_look_timestamp_seconds{E} 1000000",
            "leasehold_lock_held_since_timestamp_seconds{E,name=\"a/1\"} 999970",
            "leasehold_lock_held_since_timestamp_seconds{E,name=\"a/2\"} 999995",
            "leasehold_lock_names_dropped{E} 0",
            "leasehold_lock_oldest_waiter_since_timestamp_seconds{E,name=\"a/2\"} 999996",
            "leasehold_lock_waiters{E,name=\"a/1\"} 0",
            "leasehold_lock_waiters{E,name=\"a/2\"} 2",
            "leasehold_longest_queue{E} 2",
            "leasehold_oldest_hold_since_timestamp_seconds{E} 999950",
            "leasehold_oldest_waiter_since_timestamp_seconds{E} 999940",
            "leasehold_unreadable_names{E} 1",
            "leasehold_waiters{E} 3",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_engine_that_is_away_shows_no_holders() {
        let lines = lines(&file(&Totals::new()).away(Some(at())), &NameFilter::new(["*"]));
        let expected = [
            "leasehold_breaks_total{E} 0",
            "leasehold_engine_up{E} 0",
            "leasehold_last_look_timestamp_seconds{E} 1000000",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_level_and_each_diagnostic_have_a_series() {
        let diagnostics = [
            Diagnostic::good("redis-version", "7.0.15"),
            Diagnostic::new("clock", Severity::Warning, "2 s ahead", "run NTP").of_server("h1:6379"),
        ];
        let lines = lines(
            &file(&Totals::new()).level(Some(Level::LeaseBounded)).diagnostics(&diagnostics),
            &NameFilter::default(),
        );
        let expected = [
            "leasehold_breaks_total{E} 0",
            "leasehold_diagnostic{E,id=\"clock\",severity=\"warning\",server=\"h1:6379\"} 1",
            "leasehold_diagnostic{E,id=\"redis-version\",severity=\"good\"} 1",
            "leasehold_engine_up{E} 0",
            "leasehold_guarantee_level{E} 1",
        ];
        assert_eq!(lines, expected);
        let levels = [Level::BestEffort, Level::LeaseBounded, Level::Exact].map(level_value);
        assert_eq!(levels, [0.0, 1.0, 2.0]);
    }

    #[test]
    fn a_hold_without_an_age_has_no_time() {
        let mut foreign = view("a", &[], &[]);
        foreign.holders.push(HolderView::new("h".into(), "x".into()).foreign(true));
        let lines = lines(
            &file(&Totals::new()).looked(at(), std::slice::from_ref(&foreign)),
            &NameFilter::new(["*"]),
        );
        assert!(lines.contains(&"leasehold_holders{E} 1".to_owned()), "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("since_timestamp")), "{lines:?}");
    }
}
