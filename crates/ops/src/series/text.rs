//! The text format of Prometheus, version 0.0.4.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    time::{Duration, SystemTime},
};

use super::{
    families::Family,
    histogram::{BUCKETS, Histogram},
};

/// The value of the header `Content-Type` of an answer in this format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Samples of several families. The `Display` of the value is the text for Prometheus: each family once, with its help
/// text and kind, in the order of the names.
///
/// A second sample with the same name and labels replaces the first, because Prometheus would refuse the whole text.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Exposition {
    /// By the name of the family: the family, and its lines by their labels.
    families: BTreeMap<&'static str, (&'static str, &'static str, BTreeMap<String, String>)>,
}

/// The name and the value of each label.
pub(super) type Labels<'a> = [(&'a str, &'a str)];

impl Exposition {
    /// Without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a sample.
    pub(super) fn sample(&mut self, family: &'static Family, labels: &Labels<'_>, value: f64) {
        let line = format!("{}{} {}\n", family.name, braces(labels), number(value));
        self.lines(family, labels, line);
    }

    /// Adds the sample of a time.
    pub(super) fn time(&mut self, family: &'static Family, labels: &Labels<'_>, at: SystemTime) {
        self.sample(family, labels, unix_seconds(at));
    }

    /// Adds the samples of a histogram.
    pub(super) fn histogram(&mut self, family: &'static Family, labels: &Labels<'_>, histogram: &Histogram) {
        let name = family.name;
        let mut lines = String::new();
        let bounds = BUCKETS.iter().map(|bound| number(bound.as_secs_f64())).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(histogram.cumulative()) {
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            let _ = writeln!(lines, "{name}_bucket{} {count}", braces(&labels));
        }
        let _ = writeln!(lines, "{name}_sum{} {}", braces(labels), number(histogram.sum().as_secs_f64()));
        let _ = writeln!(lines, "{name}_count{} {}", braces(labels), histogram.count());
        self.lines(family, labels, lines);
    }

    fn lines(&mut self, family: &'static Family, labels: &Labels<'_>, lines: String) {
        let new = || (family.kind.as_str(), family.help, BTreeMap::new());
        let (_, _, samples) = self.families.entry(family.name).or_insert_with(new);
        samples.insert(braces(labels), lines);
    }
}

impl fmt::Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, (kind, help, samples)) in &self.families {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            write!(f, "# HELP {name} {help}\n# TYPE {name} {kind}\n")?;
            samples.values().try_for_each(|lines| f.write_str(lines))?;
        }
        Ok(())
    }
}

/// The labels in braces; nothing if there are none.
pub(super) fn braces(labels: &Labels<'_>) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
    format!("{{{}}}", labels.iter().map(label).collect::<Vec<_>>().join(","))
}

/// The value of a label as it stands between quotation marks.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

/// The seconds since 1970, in whole milliseconds. A time before 1970 is 0.
pub(super) fn unix_seconds(at: SystemTime) -> f64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::families::{GRANTS, HOLD_DURATION, HOLDERS, LAST_LOOK};

    #[test]
    fn a_family_has_its_help_once_and_its_samples_together() {
        let mut text = Exposition::new();
        text.sample(&HOLDERS, &[("engine", "redis")], 2.0);
        text.sample(&GRANTS, &[], 7.0);
        text.sample(&HOLDERS, &[("engine", "file")], 1.0);
        text.sample(&HOLDERS, &[("engine", "redis")], 3.0);
        let expected = "# HELP leasehold_holders Holds of all names at the last look\n\
             # TYPE leasehold_holders gauge\n\
             leasehold_holders{engine=\"file\"} 1\n\
             leasehold_holders{engine=\"redis\"} 3\n\
             # HELP leasehold_observed_grants_total Holds that began between two looks and were held at the second\n\
             # TYPE leasehold_observed_grants_total counter\n\
             leasehold_observed_grants_total 7\n";
        assert_eq!(text.to_string(), expected);
        assert_eq!(Exposition::new().to_string(), "");
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let braces = braces(&[("name", "a\"b\\c\nd{}, e"), ("empty", "")]);
        assert_eq!(braces, r#"{name="a\"b\\c\nd{}, e",empty=""}"#);
    }

    #[test]
    fn numbers_are_those_of_prometheus() {
        let numbers = [0.0, 1.5, 1e21, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(number);
        assert_eq!(numbers, ["0", "1.5", "1000000000000000000000", "NaN", "+Inf", "-Inf"]);
        let mut text = Exposition::new();
        text.time(&LAST_LOOK, &[], SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456));
        assert!(
            text.to_string().ends_with("\nleasehold_last_look_timestamp_seconds 1700000000.123\n"),
            "{text}"
        );
    }

    #[test]
    fn a_histogram_has_cumulative_buckets_a_sum_and_a_count() {
        let mut histogram = Histogram::default();
        for millis in [1, 2, 400, 7_200_000] {
            histogram.record(Duration::from_millis(millis));
        }
        let mut text = Exposition::new();
        text.histogram(&HOLD_DURATION, &[("engine", "file")], &histogram);
        let text = text.to_string();
        let lines: Vec<_> = text.lines().skip(2).collect();
        let name = "leasehold_observed_hold_duration_seconds";
        let bucket = |bound, count| format!("{name}_bucket{{engine=\"file\",le=\"{bound}\"}} {count}");
        assert_eq!(lines[0], bucket("0.001", 1));
        assert_eq!(lines[1], bucket("0.005", 2));
        assert_eq!(lines[4], bucket("0.5", 3));
        assert_eq!(lines[11], bucket("3600", 3));
        assert_eq!(lines[12], bucket("+Inf", 4));
        assert_eq!(lines[13], format!("{name}_sum{{engine=\"file\"}} 7200.403"));
        assert_eq!(lines[14], format!("{name}_count{{engine=\"file\"}} 4"));
        assert_eq!(lines.len(), 15);
    }
}
