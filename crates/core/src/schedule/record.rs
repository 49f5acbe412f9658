//! The record of the ticks that have run: the content of the memo of a schedule.

use std::{fmt::Write, time::Duration};

use crate::Due;

/// By how much the clocks of two processes may differ. A tick that is further ahead of the clock of this process than
/// this was recorded by a process whose clock is fast, or the clock of this process is slow.
pub(crate) const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// The most spans. One span is the rule; each gap between ticks that ran begins another one.
const MAX_SPANS: usize = 16;

/// The format of the record.
const VERSION: &str = "1";

/// The ticks that have run, as spans of time whose ticks are all settled. A record has several spans after gaps: ticks
/// that were skipped, or ticks that a process with a fast clock has run ahead of time. The gap keeps the ticks between
/// from counting as settled (R32), so one fast clock does not stop the other processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TickRecord {
    /// Ticks up to this time count as settled, although none of them has run: the schedule began after it.
    since: Option<Due>,
    /// In order, and apart from each other.
    spans: Vec<Span>,
}

/// Every tick from the first to the last time is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    first: Due,
    last: Due,
}

impl TickRecord {
    /// Nothing was ever recorded.
    pub(crate) const EMPTY: Self = Self { since: None, spans: Vec::new() };

    /// A record in which no tick has run, and ticks up to `since` count as settled.
    pub(crate) const fn beginning(since: Due) -> Self {
        Self { since: Some(since), spans: Vec::new() }
    }

    /// Whether nothing was ever recorded.
    pub(crate) const fn is_empty(&self) -> bool {
        self.since.is_none() && self.spans.is_empty()
    }

    /// Whether the tick has run, or came before a tick that has. `now`: what the clock of this process shows.
    pub(crate) fn is_settled(&self, due: Due, now: Due) -> bool {
        self.span_of(due).is_some() || self.settled_until(now).is_some_and(|settled| due <= settled)
    }

    /// The time up to which all ticks are settled for a process whose clock shows `now`. What is ahead of that clock by
    /// more than the tolerance says nothing about the ticks before it.
    pub(crate) fn settled_until(&self, now: Due) -> Option<Due> {
        let limit = now.plus(CLOCK_TOLERANCE);
        let in_time = self.spans.iter().rev().find(|span| span.first <= limit);
        let of_spans = in_time.map(|span| span.last.min(limit));
        of_spans.max(self.since.filter(|since| *since <= limit))
    }

    /// The end of the span that contains this tick.
    pub(crate) fn span_end(&self, due: Due) -> Option<Due> {
        self.span_of(due).map(|span| span.last)
    }

    /// The latest tick that has run.
    pub(crate) fn latest(&self) -> Option<Due> {
        self.spans.last().map(|span| span.last)
    }

    /// The record after one more tick. `before`: the tick before it in the timetable; if it is settled, the span grows.
    pub(crate) fn with(mut self, due: Due, before: Option<Due>) -> Self {
        if self.span_of(due).is_some() {
            return self;
        }
        let neighbour = before.and_then(|before| self.spans.iter().position(|span| span.contains(before)));
        match neighbour {
            Some(index) => {
                self.spans[index].last = due;
                // Ticks of another timetable, which the longer span contains now.
                let after = self.spans.partition_point(|span| span.first <= due);
                self.spans.drain(index + 1..after);
            }
            None => {
                let place = self.spans.partition_point(|span| span.last < due);
                self.spans.insert(place, Span { first: due, last: due });
            }
        }
        while self.spans.len() > MAX_SPANS {
            self.close_gap();
        }
        self
    }

    /// Joins two spans. In the gap between the present and a tick of a fast clock there are ticks that are still to be
    /// run. It is over for every clock when as much time has passed since its end as it is long. So the gap that is
    /// shortest in relation to that time is closed.
    fn close_gap(&mut self) {
        let latest = self.latest().unwrap_or(Due::from_unix_millis(0));
        let ratio = |index: &usize| {
            let end = self.spans[*index].first;
            let length = end.since(self.spans[index - 1].last).as_millis();
            // In millionths.
            length * 1_000_000 / latest.since(end).as_millis().max(1)
        };
        if let Some(index) = (1..self.spans.len()).min_by_key(ratio) {
            self.spans[index - 1].last = self.spans[index].last;
            self.spans.remove(index);
        }
    }

    fn span_of(&self, due: Due) -> Option<&Span> {
        self.spans.iter().find(|span| span.contains(due))
    }

    /// The content of the memo: the version, then `since=<time>` if there is one, then the spans as `<first>-<last>`.
    /// Times are milliseconds since 1970.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = VERSION.to_owned();
        if let Some(since) = self.since {
            let _ = write!(text, " since={}", since.as_unix_millis());
        }
        for Span { first, last } in &self.spans {
            let _ = write!(text, " {}-{}", first.as_unix_millis(), last.as_unix_millis());
        }
        text.into_bytes()
    }

    /// The record in the content of a memo; `None` if it is none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(bytes).ok()?.split(' ');
        if words.next()? != VERSION {
            return None;
        }
        let mut record = Self::default();
        for word in words {
            if let Some(since) = word.strip_prefix("since=") {
                record.since = Some(read_due(since)?);
                continue;
            }
            let (first, last) = word.split_once('-')?;
            let span = Span { first: read_due(first)?, last: read_due(last)? };
            let is_in_order = record.spans.last().is_none_or(|before| before.last < span.first);
            if span.first > span.last || !is_in_order || record.spans.len() == MAX_SPANS {
                return None;
            }
            record.spans.push(span);
        }
        Some(record)
    }
}

impl Span {
    fn contains(self, due: Due) -> bool {
        (self.first..=self.last).contains(&due)
    }
}

fn read_due(digits: &str) -> Option<Due> {
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| digits.parse().ok().map(Due::from_unix_millis)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Every, Timetable};

    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;

    const fn at(secs: u64) -> Due {
        Due::from_unix_secs(secs)
    }

    /// The record after these ticks of a ten-minute schedule.
    fn after_ticks(dues: impl IntoIterator<Item = u64>) -> TickRecord {
        let every = Every::new(Duration::from_secs(10 * MINUTE));
        let add = |record: TickRecord, due| {
            let before = every.last_until(Due::from_unix_millis(at(due).as_unix_millis() - 1));
            record.with(at(due), before)
        };
        dues.into_iter().fold(TickRecord::default(), add)
    }

    #[test]
    fn ticks_in_a_row_are_one_span() {
        let record = after_ticks((1..1000).map(|tick| tick * 10 * MINUTE));
        assert_eq!(record.encode(), b"1 600000-599400000");
        assert_eq!(record.latest(), Some(at(999 * 10 * MINUTE)));
        let now = at(999 * 10 * MINUTE);
        assert!(record.is_settled(now, now) && !record.is_settled(at(1000 * 10 * MINUTE), now));
    }

    #[test]
    fn skipped_ticks_are_settled_by_a_later_one() {
        let record = after_ticks([HOUR, 2 * HOUR]);
        assert!(record.is_settled(at(HOUR + 10 * MINUTE), at(2 * HOUR)));
        assert!(!record.is_settled(at(2 * HOUR + 1), at(2 * HOUR + 1)));
    }

    #[test]
    fn a_process_whose_clock_is_set_back_runs_no_tick_again() {
        let record = after_ticks((6..=12).map(|tick| tick * 10 * MINUTE));
        // The clock showed 2:00:05, and shows 1:00:05 now.
        for due in (6..=12).map(|tick| at(tick * 10 * MINUTE)) {
            assert!(record.is_settled(due, at(HOUR + 5)), "{due:?}");
        }
        assert_eq!(record.span_end(at(HOUR + 10 * MINUTE)), Some(at(2 * HOUR)));
    }

    #[test]
    fn the_ticks_of_a_fast_clock_stop_no_tick_before_them() {
        let record = after_ticks([HOUR, DAY, DAY + 10 * MINUTE]);
        let now = at(HOUR + 10 * MINUTE);
        assert!(record.is_settled(at(HOUR), now) && !record.is_settled(now, now));
        assert!(record.is_settled(at(DAY), now), "it has run, ahead of time");
        let record = record.with(now, Some(at(HOUR)));
        assert!(record.is_settled(now, now) && record.settled_until(now) == Some(now));
        // When its time comes, it is not run again, and the tick after the fast ones is.
        assert!(record.is_settled(at(DAY), at(DAY)));
        assert!(!record.is_settled(at(DAY + 20 * MINUTE), at(DAY + 20 * MINUTE)));
    }

    #[test]
    fn ticks_of_another_timetable_are_inside_the_longer_span() {
        let record = after_ticks([HOUR]).with(at(HOUR + 7 * MINUTE), None);
        assert_eq!(record.spans.len(), 2);
        let record = record.with(at(HOUR + 10 * MINUTE), Some(at(HOUR)));
        assert_eq!(record.spans, [Span { first: at(HOUR), last: at(HOUR + 10 * MINUTE) }]);
    }

    #[test]
    fn clocks_may_differ_by_a_minute() {
        let record = after_ticks([HOUR]);
        assert!(record.is_settled(at(HOUR - 1), at(HOUR - 60)));
        assert!(!record.is_settled(at(HOUR - 1), at(HOUR - 61)));
    }

    #[test]
    fn the_size_is_bounded_and_the_gap_to_a_fast_clock_stays() {
        let skipping = (1..200).map(|tick| tick * HOUR);
        let record = after_ticks(skipping.chain([1000 * DAY]));
        assert!(record.spans.len() <= MAX_SPANS && record.encode().len() < 500);
        let now = at(200 * HOUR);
        assert!(record.is_settled(at(199 * HOUR), now) && !record.is_settled(now, now));
        assert!((1..200).all(|tick| record.is_settled(at(tick * HOUR), at(HOUR))), "also for a slow clock");
    }

    #[test]
    fn the_gap_that_is_closed_is_over_for_every_clock() {
        // 15 long gaps; then a process whose clock is two hours fast, which skips ticks too.
        let record = after_ticks((1..=16).map(|tick| tick * 12 * HOUR));
        let began = 16 * 12 * HOUR;
        for step in [2 * MINUTE, 20 * MINUTE] {
            let mut record = record.clone();
            for now in (began..began + 100 * MINUTE).step_by(step as usize) {
                record = record.with(at(now + 2 * HOUR), None);
                let due = at(now + MINUTE);
                assert!(record.spans.len() <= MAX_SPANS && !record.is_settled(due, due), "{now}: {record:?}");
            }
        }
    }

    #[test]
    fn a_schedule_has_a_begin() {
        let record = TickRecord::beginning(at(HOUR - 1));
        assert!(!record.is_empty() && record.latest().is_none());
        assert!(record.is_settled(at(HOUR - 1), at(HOUR)) && !record.is_settled(at(HOUR), at(HOUR)));
        // A process with a fast clock has begun it.
        let record = TickRecord::beginning(at(DAY));
        assert!(record.settled_until(at(HOUR)).is_none() && !record.is_settled(at(HOUR), at(HOUR)));
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for record in [
            TickRecord::default(),
            TickRecord::beginning(at(5)),
            after_ticks([HOUR, DAY, 3 * DAY]),
            TickRecord { since: Some(at(1)), ..after_ticks([HOUR]) },
        ] {
            assert_eq!(TickRecord::decode(&record.encode()), Some(record));
        }
    }

    #[test]
    fn other_bytes_are_no_record() {
        let many = format!("1{}", " 1-1".repeat(100_000));
        for bytes in [
            "",
            "2",
            "1 ",
            "1 5",
            "1 5-",
            "1 5-4",
            "1 5-6 6-7",
            "1 -1-2",
            "1 +1-2",
            "1 since=",
            "x",
            "1 99999999999999999999-1",
            many.as_str(),
        ] {
            assert_eq!(TickRecord::decode(bytes.as_bytes()), None, "{bytes:.40}");
        }
        assert_eq!(TickRecord::decode(&[b'1', b' ', 0xff]), None);
    }
}
