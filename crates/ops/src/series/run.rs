//! The series of the runs of one job, for the text-file collector of the node exporter. A run ends before a Prometheus
//! can scrape it, so it leaves its series in a file. Each run keeps what the file says about earlier runs.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use super::{
    families::{
        Family, RUN_BEGIN, RUN_END, RUN_ENDS, RUN_EXIT, RUN_FAMILIES, RUN_HELD, RUN_HELD_SINCE, RUN_HOLD,
        RUN_LOST, RUN_SUCCESS, RUN_WAIT,
    },
    text::{Exposition, braces, unix_seconds},
};

/// The families that have one sample for a job: all but the ends, which have one for each outcome.
fn single() -> impl Iterator<Item = &'static Family> {
    RUN_FAMILIES.into_iter().filter(|family| family.name != RUN_ENDS.name)
}

/// How a run ended. The words are those of the report of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunOutcome {
    /// CMD ran to its end.
    Ran,
    /// CMD was not run, because an earlier run for the same key had succeeded.
    RanBefore,
    /// The hold was lost while CMD ran.
    Lost,
    /// The lock was not acquired.
    NotAcquired,
    /// The lock was acquired, and the run failed for another reason.
    Failed,
}

impl RunOutcome {
    const ALL: [Self; 5] = [Self::Ran, Self::RanBefore, Self::Lost, Self::NotAcquired, Self::Failed];

    /// The outcome as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::RanBefore => "ran_before",
            Self::Lost => "lost",
            Self::NotAcquired => "not_acquired",
            Self::Failed => "failed",
        }
    }
}

/// What is known at the end of a run.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::exhaustive_structs, reason = "a caller has to know every field")]
pub struct RunEnd {
    /// The time of the end.
    pub at: SystemTime,
    /// How it ended.
    pub outcome: RunOutcome,
    /// Its exit code.
    pub exit: u8,
    /// How long it waited for the lock; `None` if it is not known.
    pub waited: Option<Duration>,
    /// How long it held the lock; `None` if it did not, or if it is not known.
    pub held: Option<Duration>,
    /// When the lock was granted, as in [`RunSeries::granted`]; `None` if it was not, or if it is not known.
    pub granted: Option<SystemTime>,
}

/// The series of the runs of one job: of one name on one engine.
#[derive(Clone, Debug)]
#[must_use]
pub struct RunSeries {
    engine: String,
    name: String,
    /// The values by the name of their family.
    values: BTreeMap<&'static str, f64>,
    /// How many runs had each outcome.
    ends: BTreeMap<&'static str, f64>,
}

impl RunSeries {
    /// The series of a job that `text`, the contents of its file, says of earlier runs. Other lines of the text are
    /// left out: text that is not from this module makes series without earlier runs.
    pub fn read(text: &str, engine: &str, name: &str) -> Self {
        let (engine, name) = (engine.to_owned(), name.to_owned());
        let mut series = Self { engine, name, values: BTreeMap::new(), ends: BTreeMap::new() };
        let known: BTreeMap<_, _> = text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        let value = |family: &Family, labels: &[(&str, &str)]| {
            let value: f64 =
                known.get(format!("{}{}", family.name, braces(labels)).as_str())?.parse().ok()?;
            (value.is_finite() && value >= 0.0).then_some(value)
        };
        let labels = series.labels().map(|(key, value)| (key, value.to_owned()));
        let labels = [(labels[0].0, labels[0].1.as_str()), (labels[1].0, labels[1].1.as_str())];
        for family in single() {
            series.values.extend(value(family, &labels).map(|value| (family.name, value)));
        }
        for outcome in RunOutcome::ALL.map(RunOutcome::as_str) {
            let labels = [labels[0], labels[1], ("outcome", outcome)];
            series.ends.insert(outcome, value(&RUN_ENDS, &labels).unwrap_or_default());
        }
        series
    }

    /// Whether a text has no other lines than those of runs. A text of another program must not be replaced.
    #[must_use]
    pub fn is_text_of_runs(text: &str) -> bool {
        let is_known = |name: &str| RUN_FAMILIES.iter().any(|family| family.name == name);
        text.lines().all(|line| {
            let comment = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
            is_known(comment.unwrap_or(line).split([' ', '{']).next().unwrap_or_default())
        })
    }

    /// A run began at this time.
    pub fn begun(&mut self, at: SystemTime) {
        self.set(&RUN_BEGIN, unix_seconds(at));
        self.values.entry(RUN_HELD.name).or_insert(0.0);
    }

    /// The run was granted the lock at this time, after this wait.
    pub fn granted(&mut self, at: SystemTime, waited: Duration) {
        self.set(&RUN_WAIT, waited.as_secs_f64());
        self.set(&RUN_HELD, 1.0);
        self.set(&RUN_HELD_SINCE, unix_seconds(at));
    }

    /// The run has ended. The sample that says whether the lock is held shows the run that was granted it last. So only
    /// the end of that run changes the sample, or the end of a run that was granted it at an unknown time.
    pub fn ended(&mut self, end: RunEnd) {
        let RunEnd { at, outcome, exit, waited, held, granted } = end;
        let at = unix_seconds(at);
        self.set(&RUN_END, at);
        self.set(&RUN_EXIT, f64::from(exit));
        waited.iter().for_each(|waited| self.set(&RUN_WAIT, waited.as_secs_f64()));
        self.set(&RUN_LOST, f64::from(u8::from(outcome == RunOutcome::Lost)));
        held.iter().for_each(|held| self.set(&RUN_HOLD, held.as_secs_f64()));
        let since = self.values.get(RUN_HELD_SINCE.name).copied();
        // The file has the time in milliseconds.
        let is_another = |(granted, since): (SystemTime, f64)| (unix_seconds(granted) - since).abs() > 0.0005;
        let is_of_another = granted.zip(since).is_some_and(is_another);
        if matches!(outcome, RunOutcome::Ran | RunOutcome::Lost | RunOutcome::Failed) && !is_of_another {
            self.set(&RUN_HELD, 0.0);
            self.values.remove(RUN_HELD_SINCE.name);
        }
        if exit == 0 {
            self.set(&RUN_SUCCESS, at);
        }
        *self.ends.entry(outcome.as_str()).or_default() += 1.0;
    }

    /// The contents of the file.
    #[must_use]
    pub fn text(&self) -> String {
        let (mut text, labels) = (Exposition::new(), self.labels());
        for family in single() {
            if let Some(value) = self.values.get(family.name) {
                text.sample(family, &labels, *value);
            }
        }
        for (outcome, count) in &self.ends {
            text.sample(&RUN_ENDS, &[labels[0], labels[1], ("outcome", outcome)], *count);
        }
        text.to_string()
    }

    fn set(&mut self, family: &Family, value: f64) {
        self.values.insert(family.name, value);
    }

    fn labels(&self) -> [(&'static str, &str); 2] {
        [("engine", &self.engine), ("name", &self.name)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn end(seconds: u64, outcome: RunOutcome, exit: u8, held: Option<u64>) -> RunEnd {
        let held = held.map(Duration::from_secs);
        RunEnd {
            at: at(seconds),
            outcome,
            exit,
            waited: Some(Duration::from_millis(1500)),
            held,
            granted: None,
        }
    }

    /// The value of a sample of the job.
    fn value(series: &RunSeries, family: &str) -> Option<String> {
        let start = format!("leasehold_run_{family}{{engine=\"file\",name=\"a \\\"b\\\"\"");
        let text = series.text();
        text.lines()
            .find_map(|line| line.strip_prefix(&start)?.rsplit_once(' ').map(|(_, value)| value.to_owned()))
    }

    /// The series that the next run reads.
    fn reread(series: &RunSeries) -> RunSeries {
        RunSeries::read(&series.text(), "file", "a \"b\"")
    }

    #[test]
    fn a_run_is_shown_from_its_begin_to_its_end() {
        let mut series = RunSeries::read("", "file", "a \"b\"");
        series.begun(at(100));
        assert_eq!(value(&series, "last_begin_timestamp_seconds").as_deref(), Some("100"));
        assert_eq!(value(&series, "held").as_deref(), Some("0"));
        assert_eq!(value(&series, "last_success_timestamp_seconds"), None, "there was none");
        series.granted(at(101), Duration::from_millis(1500));
        assert_eq!(value(&series, "held").as_deref(), Some("1"));
        assert_eq!(value(&series, "held_since_timestamp_seconds").as_deref(), Some("101"));
        series.ended(end(130, RunOutcome::Ran, 0, Some(28)));
        assert_eq!(value(&series, "held_since_timestamp_seconds"), None);
        for (family, expected) in [
            ("held", "0"),
            ("last_wait_seconds", "1.5"),
            ("last_hold_seconds", "28"),
            ("last_exit_code", "0"),
            ("last_lost", "0"),
            ("last_success_timestamp_seconds", "130"),
            ("last_end_timestamp_seconds", "130"),
        ] {
            assert_eq!(value(&series, family).as_deref(), Some(expected), "{family}");
        }
    }

    #[test]
    fn a_later_run_keeps_the_last_success_and_the_counts() {
        let mut series = RunSeries::read("", "file", "a \"b\"");
        series.begun(at(100));
        series.ended(end(130, RunOutcome::Ran, 0, Some(28)));
        let mut series = reread(&series);
        series.begun(at(200));
        series.ended(end(210, RunOutcome::Lost, 76, Some(9)));
        let mut series = reread(&series);
        series.begun(at(300));
        series.ended(end(310, RunOutcome::Ran, 1, Some(9)));
        let series = reread(&series);
        assert_eq!(value(&series, "last_success_timestamp_seconds").as_deref(), Some("130"));
        let text = series.text();
        for (outcome, count) in
            [("ran", 2), ("lost", 1), ("failed", 0), ("not_acquired", 0), ("ran_before", 0)]
        {
            assert!(text.contains(&format!("outcome=\"{outcome}\"}} {count}\n")), "{text}");
        }
    }

    #[test]
    fn a_run_that_is_skipped_does_not_end_the_hold_of_another() {
        let mut series = RunSeries::read("", "file", "a \"b\"");
        series.begun(at(100));
        series.granted(at(101), Duration::ZERO);
        let mut other = reread(&series);
        other.begun(at(110));
        other.ended(end(111, RunOutcome::NotAcquired, 75, None));
        assert_eq!(value(&other, "held").as_deref(), Some("1"));
        assert_eq!(value(&other, "held_since_timestamp_seconds").as_deref(), Some("101"));
        assert_eq!(value(&other, "last_exit_code").as_deref(), Some("75"));
        assert_eq!(value(&other, "last_success_timestamp_seconds"), None);
    }

    #[test]
    fn the_run_that_was_granted_last_is_shown_until_its_end() {
        let mut series = RunSeries::read("", "file", "a \"b\"");
        let granted = |millis| at(101) + Duration::from_millis(millis);
        series.granted(granted(123), Duration::ZERO);
        let mut series = reread(&series);
        series.granted(granted(457), Duration::ZERO);
        let mut series = reread(&series);
        series.ended(RunEnd { granted: Some(granted(123)), ..end(130, RunOutcome::Ran, 0, Some(28)) });
        assert_eq!(value(&series, "held").as_deref(), Some("1"), "the other run holds still");
        assert_eq!(value(&series, "held_since_timestamp_seconds").as_deref(), Some("101.457"));
        let mut series = reread(&series);
        series.ended(RunEnd { granted: Some(granted(457)), ..end(140, RunOutcome::Ran, 0, Some(38)) });
        assert_eq!(value(&series, "held").as_deref(), Some("0"));
        assert_eq!(value(&series, "held_since_timestamp_seconds"), None);
    }

    /// As after a CMD that succeeded, whose release got no answer; and with a conflict exit code of 0.
    #[test]
    fn every_end_with_exit_code_0_is_a_success() {
        for outcome in RunOutcome::ALL {
            let mut series = RunSeries::read("", "file", "a \"b\"");
            series.ended(end(130, outcome, 0, None));
            let success = value(&series, "last_success_timestamp_seconds");
            assert_eq!(success.as_deref(), Some("130"), "{outcome:?}");
        }
    }

    #[test]
    fn text_of_others_changes_nothing() {
        let job = "{engine=\"file\",name=\"n\"}";
        for text in [
            "#!/bin/sh\necho 1\n".to_owned(),
            "leasehold_run_last_exit_code{engine=\"file\",name=\"other\"} 3\n".to_owned(),
            format!("leasehold_run_last_exit_code{job} NaN\nleasehold_run_held{job} -1\n"),
            format!("leasehold_run_last_exit_code{job} 3 1700000000000\n"),
        ] {
            let series = RunSeries::read(&text, "file", "n");
            assert!(series.values.is_empty(), "{text}: {series:?}");
        }
    }

    #[test]
    fn text_of_other_programs_is_recognised() {
        let mut series = RunSeries::read("", "file", "n");
        series.begun(at(100));
        series.ended(end(130, RunOutcome::Failed, 70, None));
        assert!(RunSeries::is_text_of_runs("") && RunSeries::is_text_of_runs(&series.text()));
        let others =
            ["#!/bin/sh\n", "\n", "node_load1 3\n", "leasehold_run_held_by 1\n", "# HELP node_load1 x\n"];
        for other in others {
            assert!(!RunSeries::is_text_of_runs(&format!("{}{other}", series.text())), "{other}");
        }
    }

    /// As when the process that ran CMD was killed: another process records the end.
    #[test]
    fn the_end_of_a_hold_of_unknown_time_keeps_the_wait() {
        let mut series = RunSeries::read("", "file", "a \"b\"");
        series.begun(at(100));
        series.granted(at(107), Duration::from_secs(7));
        let mut series = reread(&series);
        series.ended(RunEnd { waited: None, ..end(130, RunOutcome::Failed, 70, None) });
        assert_eq!(value(&series, "held").as_deref(), Some("0"));
        assert_eq!(value(&series, "last_wait_seconds").as_deref(), Some("7"));
    }
}
