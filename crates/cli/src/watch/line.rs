//! One line of `leasehold watch`, as text or as a JSON object. Pure.

use std::time::{Duration, SystemTime};

use leasehold::{HolderView, WaiterView};
use leasehold_ops::{free_when, held_text, utc, waiting_text};

use crate::{
    json::{self, null, number, string},
    text::{escaped, or_dash, owner_only, owner_text, short_duration},
};

/// How the lines are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Format {
    Text,
    Json,
}

/// What a line tells. The words are those of the manual page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event<'a> {
    /// The first look: this number of names is in use. A line for each hold and each wait follows.
    Snapshot {
        names: usize,
    },
    /// The engine answers again after an outage of this length. The changes since the last look before it follow.
    Resync {
        away: Duration,
    },
    /// The name cannot be read.
    Unreadable {
        problem: &'a str,
    },
    /// A hold, or a wait, that existed at the first look.
    Holds(&'a HolderView),
    Waits(&'a WaiterView),
    /// A request began to wait, or waits no more and was not seen to hold.
    Waiting(&'a WaiterView),
    Left(&'a WaiterView),
    /// A hold began. `waited`: how long its request had waited when it was last seen.
    Granted {
        holder: &'a HolderView,
        waited: Option<Duration>,
    },
    /// A hold was broken, and its name stays taken for now.
    Broken(&'a HolderView),
    /// A hold was released or broken, or its lease ran out.
    Ended(&'a HolderView),
    Lapsed(&'a HolderView),
}

impl Event<'_> {
    const fn word(&self) -> &'static str {
        match self {
            Self::Snapshot { .. } => "snapshot",
            Self::Resync { .. } => "resync",
            Self::Unreadable { .. } => "unreadable",
            Self::Holds(_) => "holds",
            Self::Waits(_) => "waits",
            Self::Waiting(_) => "waiting",
            Self::Left(_) => "left",
            Self::Granted { .. } => "granted",
            Self::Broken(_) => "broken",
            Self::Ended(_) => "ended",
            Self::Lapsed(_) => "lapsed",
        }
    }

    const fn holder(&self) -> Option<&HolderView> {
        match self {
            Self::Holds(holder) | Self::Broken(holder) | Self::Ended(holder) | Self::Lapsed(holder) => {
                Some(holder)
            }
            Self::Granted { holder, .. } => Some(holder),
            _ => None,
        }
    }

    const fn waiter(&self) -> Option<&WaiterView> {
        match self {
            Self::Waits(waiter) | Self::Waiting(waiter) | Self::Left(waiter) => Some(waiter),
            _ => None,
        }
    }

    fn waited(&self) -> Option<Duration> {
        match self {
            Self::Granted { waited, .. } => *waited,
            _ => self.waiter()?.waiting,
        }
    }
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// The number of the line, from 1.
    pub(crate) seq: u64,
    /// The time of day of this machine when the answer came.
    pub(crate) time: SystemTime,
    pub(crate) engine: &'a str,
    /// The name; `None` if the line is about all of them.
    pub(crate) name: Option<&'a str>,
    pub(crate) event: Event<'a>,
}

impl Line<'_> {
    /// The line with its line feed.
    pub(crate) fn write(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Json => self.json(),
        }
    }

    fn text(&self) -> String {
        let (word, time) = (self.event.word(), utc(self.time));
        let name = self.name.map_or_else(|| "*".to_owned(), escaped);
        let mut facts = Vec::new();
        match self.event {
            Event::Snapshot { names } => facts.push(format!("names in use: {names}")),
            Event::Resync { away } => facts.push(format!("no answer for {}", short_duration(away))),
            Event::Unreadable { problem } => facts.push(escaped(problem)),
            _ => {}
        }
        facts.extend(self.event.waiter().map(|waiter| escaped(&waiter.owner)));
        if let Some(holder) = self.event.holder() {
            // Of a change only this: whether the hold was renewed is over, and a break has an event of its own.
            let mark = if holder.foreign { " (foreign)" } else { "" };
            facts.push(match self.event {
                Event::Holds(_) => owner_text(holder),
                _ => format!("{}{mark}", owner_only(holder)),
            });
            facts.push(format!("token {}", or_dash(holder.token)));
        }
        let waited = match self.event {
            Event::Granted { waited, .. } => waited.map(short_duration),
            _ => self.event.waiter().and_then(waiting_text),
        };
        facts.extend(waited.map(|waited| format!("waited {waited}")));
        if !matches!(self.event, Event::Granted { .. })
            && let Some(held) = self.event.holder().and_then(held_text)
        {
            facts.push(format!("held {held}"));
        }
        let consequence = match self.event {
            Event::Broken(holder) => format!(": {}", free_when(holder)),
            _ => String::new(),
        };
        format!("{time} {name} {word}: {}{consequence}\n", facts.join(", "))
    }

    fn json(&self) -> String {
        let (holder, waiter) = (self.event.holder(), self.event.waiter());
        let text = |text: Option<&str>| text.map_or_else(null, string);
        let id = holder.map(|holder| &*holder.id).or(waiter.map(|waiter| &*waiter.id));
        let owner = holder.map(|holder| &*holder.owner).or(waiter.map(|waiter| &*waiter.owner));
        let millis = |time: Option<Duration>| number(time.map(json::millis));
        let fields = [
            ("seq", number(Some(self.seq))),
            ("time", string(&utc(self.time))),
            ("event", string(self.event.word())),
            ("engine", string(self.engine)),
            ("name", text(self.name)),
            ("id", text(id)),
            ("owner", text(owner)),
            ("token", number(holder.and_then(|holder| holder.token))),
            ("foreign", number(holder.map(|holder| holder.foreign))),
            ("broken", number(holder.map(|holder| holder.broken))),
            ("waited_ms", millis(self.event.waited())),
            ("held_ms", millis(holder.and_then(|holder| holder.held))),
            ("remaining_ms", millis(holder.and_then(|holder| holder.remaining))),
            ("names", number(if let Event::Snapshot { names } = self.event { Some(names) } else { None })),
            ("away_ms", millis(if let Event::Resync { away } = self.event { Some(away) } else { None })),
            (
                "problem",
                text(if let Event::Unreadable { problem } = self.event { Some(problem) } else { None }),
            ),
        ];
        json::object(&fields) + "\n"
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn written(event: Event<'_>, name: Option<&str>, format: Format) -> String {
        Line { seq: 3, time: UNIX_EPOCH, engine: "file", name, event }.write(format)
    }

    #[test]
    fn a_line_of_text_escapes_what_others_chose() {
        let holder = HolderView::new("i".into(), "o\u{1b}[2J".into()).token(Some(7));
        let holder = holder.times(Some(Duration::from_secs(61)), None);
        let granted = Event::Granted { holder: &holder, waited: Some(Duration::from_millis(1500)) };
        assert_eq!(
            written(granted, Some("a\u{202e}b"), Format::Text),
            "1970-01-01T00:00:00.000Z a\\u{202e}b granted: o\\u{1b}[2J, token 7, waited 1.5s\n"
        );
        assert_eq!(
            written(Event::Lapsed(&holder), Some("a"), Format::Text),
            "1970-01-01T00:00:00.000Z a lapsed: o\\u{1b}[2J, token 7, held 1m01s\n"
        );
        let broken = holder.clone().broken(true).times(None, Some(Duration::from_secs(12)));
        assert_eq!(
            written(Event::Broken(&broken), Some("a"), Format::Text),
            "1970-01-01T00:00:00.000Z a broken: o\\u{1b}[2J, token 7: the name is free when the holder stops, \
             in 12s at the latest\n"
        );
        let mut seen = WaiterView::new("w".into(), "me".into(), None);
        seen.waiting_at_least = Some(Duration::from_secs(40));
        assert!(written(Event::Left(&seen), Some("a"), Format::Text).ends_with("a left: me, waited >40s\n"));
        let waiter = WaiterView::new("w".into(), "me".into(), Some(Duration::from_secs(2)));
        assert_eq!(
            written(Event::Left(&waiter), Some("a"), Format::Text),
            "1970-01-01T00:00:00.000Z a left: me, waited 2.0s\n"
        );
        assert_eq!(
            written(Event::Snapshot { names: 2 }, None, Format::Text),
            "1970-01-01T00:00:00.000Z * snapshot: names in use: 2\n"
        );
        let resync = Event::Resync { away: Duration::from_secs(12) };
        assert!(written(resync, None, Format::Text).ends_with("* resync: no answer for 12s\n"));
        let unreadable = Event::Unreadable { problem: "a\nb" };
        assert!(written(unreadable, Some("a"), Format::Text).ends_with("a unreadable: a\\u{a}b\n"));
    }

    #[test]
    fn an_object_has_all_fields_in_order() {
        let holder = HolderView::new("i".into(), "o".into()).token(Some(7)).foreign(true);
        let holder = holder.times(Some(Duration::from_secs(1)), Some(Duration::from_secs(2)));
        assert_eq!(
            written(Event::Ended(&holder), Some("a\u{1b}"), Format::Json),
            "{\"seq\":3,\"time\":\"1970-01-01T00:00:00.000Z\",\"event\":\"ended\",\"engine\":\"file\",\
             \"name\":\"a\\u001b\",\"id\":\"i\",\"owner\":\"o\",\"token\":7,\"foreign\":true,\"broken\":false,\
             \"waited_ms\":null,\"held_ms\":1000,\"remaining_ms\":2000,\"names\":null,\"away_ms\":null,\"problem\":null}\n"
        );
        let resync = written(Event::Resync { away: Duration::from_secs(2) }, None, Format::Json);
        assert!(resync.contains("\"name\":null") && resync.contains("\"away_ms\":2000"), "{resync}");
        let snapshot = written(Event::Snapshot { names: 2 }, None, Format::Json);
        assert!(snapshot.contains("\"names\":2"), "{snapshot}");
    }
}
