//! Which lines follow from the answers of the engine. Pure.

use std::time::{Duration, Instant, SystemTime};

use leasehold::{Error, View};
use leasehold_ops::{Change, Looks};

use super::line::{Event, Format, Line};
use crate::{
    exit::{UNAVAILABLE, code_of_error},
    looker::Look,
};

/// What an answer leads to.
#[derive(Debug)]
pub(crate) enum Told {
    /// Lines for the standard output; empty if nothing changed.
    Lines(String),
    /// The engine began to fail: a message for the standard error.
    Outage(String),
    /// It fails still: that was told already.
    StillAway,
    /// An error that another attempt does not end.
    Failed(Error),
}

/// All that is remembered between two answers.
#[derive(Debug)]
pub(crate) struct Story {
    engine: &'static str,
    format: Format,
    looks: Looks,
    seq: u64,
    /// When the request of the last answer without an error left, by a clock that counts the time for which the machine
    /// was suspended. `None`: there was none.
    last_answer: Option<Duration>,
    is_away: bool,
}

impl Story {
    pub(crate) fn new(engine: &'static str, format: Format) -> Self {
        Self { engine, format, looks: Looks::new(), seq: 0, last_answer: None, is_away: false }
    }

    /// Takes a look whose answer came at `now`, and at the time of day `time`.
    ///
    /// Before the first answer every error is final: the command was given a wrong URL, or cannot do what it is for.
    pub(crate) fn take(&mut self, look: Look, now: Instant, time: SystemTime) -> Told {
        match look.answer {
            Ok(views) => Told::Lines(self.lines(&views, look.at, now, time)),
            Err(error) if self.last_answer.is_none() || code_of_error(error.kind()) != UNAVAILABLE => {
                Told::Failed(error)
            }
            Err(_) if std::mem::replace(&mut self.is_away, true) => Told::StillAway,
            Err(error) => Told::Outage(format!(
                "{error}: the watch continues, and a line `resync` follows when the engine answers again"
            )),
        }
    }

    fn lines(&mut self, views: &[View], at: Duration, now: Instant, time: SystemTime) -> String {
        let mut lines = String::new();
        let last_answer = self.last_answer.replace(at);
        let was_away = std::mem::take(&mut self.is_away);
        let changes = self.looks.next(views, now);
        match last_answer {
            None => self.snapshot(views, time, &mut lines),
            Some(last_answer) if was_away => {
                let away = at.saturating_sub(last_answer);
                self.line(None, Event::Resync { away }, time, &mut lines);
            }
            Some(_) => {}
        }
        for (name, change) in &changes {
            let event = match change {
                Change::Waiting(waiter) => Event::Waiting(waiter),
                Change::Left(waiter) => Event::Left(waiter),
                Change::Granted { holder, waited } => Event::Granted { holder, waited: *waited },
                Change::Broken(holder) => Event::Broken(holder),
                Change::Ended { holder, lapsed: true } => Event::Lapsed(holder),
                Change::Ended { holder, lapsed: false } => Event::Ended(holder),
            };
            self.line(Some(name), event, time, &mut lines);
        }
        lines
    }

    /// The lines of the first look.
    fn snapshot(&mut self, views: &[View], time: SystemTime, lines: &mut String) {
        let is_in_use =
            |view: &&View| !view.holders.is_empty() || !view.waiters.is_empty() || view.problem.is_some();
        let names = views.iter().filter(is_in_use).count();
        self.line(None, Event::Snapshot { names }, time, lines);
        for view in views {
            let name = Some(view.name.as_str());
            if let Some(problem) = &view.problem {
                self.line(name, Event::Unreadable { problem }, time, lines);
            }
            for holder in &view.holders {
                self.line(name, Event::Holds(holder), time, lines);
            }
            for waiter in &view.waiters {
                self.line(name, Event::Waits(waiter), time, lines);
            }
        }
    }

    fn line(&mut self, name: Option<&str>, event: Event<'_>, time: SystemTime, lines: &mut String) {
        self.seq += 1;
        *lines += &Line { seq: self.seq, time, engine: self.engine, name, event }.write(self.format);
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use leasehold::{ErrorKind, HolderView, Name, WaiterView};
    use serde_json::Value;

    use super::*;

    fn view(name: &str, holder: Option<&str>, waiters: &[&str]) -> View {
        let mut view = View::free(Name::new(name).unwrap(), name.to_owned());
        view.holders.extend(holder.map(|id| HolderView::new(id.into(), "o".into())));
        view.waiters.extend(waiters.iter().map(|&id| WaiterView::new(id.into(), "o".into(), None)));
        view
    }

    /// The event, the name and the id of each line. Checks that the lines are numbered.
    fn events(told: Told, next: &mut u64) -> Vec<String> {
        let Told::Lines(lines) = told else { panic!("no lines: {told:?}") };
        let event = |line: &str| {
            let value: Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["seq"], *next, "{line}");
            *next += 1;
            let text = |field: &str| value[field].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", text("event"), text("name"), text("id"))
        };
        lines.lines().map(event).collect()
    }

    /// A look at this second.
    fn look(at: u64, answer: Result<Vec<View>, Error>) -> Look {
        Look { at: Duration::from_secs(at), answer }
    }

    fn unreachable(at: u64) -> Look {
        look(at, Err(Error::new(ErrorKind::Unreachable, "cut off")))
    }

    #[test]
    fn a_snapshot_is_followed_by_changes() {
        let (mut story, now, mut next) = (Story::new("file", Format::Json), Instant::now(), 1);
        let mut take =
            |views: &[View]| events(story.take(look(0, Ok(views.to_vec())), now, UNIX_EPOCH), &mut next);
        let mut unreadable = view("c", None, &[]);
        unreadable.problem = Some("torn".into());
        let first = take(&[view("a", Some("h"), &["w"]), view("b", None, &["x"]), unreadable]);
        let expected = ["snapshot - -", "holds a h", "waits a w", "waits b x", "unreadable c -"];
        assert_eq!(first, expected);
        let second = take(&[view("a", Some("w"), &[]), view("b", None, &["x", "y"])]);
        assert_eq!(second, ["ended a h", "granted a w", "waiting b y"]);
        assert_eq!(take(&[view("a", Some("w"), &[]), view("b", None, &["x", "y"])]), [""; 0]);
        assert_eq!(take(&[]), ["ended a w", "left b x", "left b y"]);
    }

    #[test]
    fn a_free_name_is_not_in_use() {
        let (mut story, mut next) = (Story::new("file", Format::Json), 1);
        let told = story.take(look(0, Ok(vec![view("a", None, &[])])), Instant::now(), UNIX_EPOCH);
        assert!(matches!(&told, Told::Lines(lines) if lines.contains("\"names\":0")), "{told:?}");
        assert_eq!(events(told, &mut next), ["snapshot - -"]);
    }

    #[test]
    fn an_outage_is_told_once_and_ends_with_a_resync() {
        let (mut story, now, mut next) = (Story::new("file", Format::Json), Instant::now(), 1);
        let mut take = |look: Look| story.take(look, now, UNIX_EPOCH);
        assert!(matches!(take(unreachable(0)), Told::Failed(_)), "at first contact");
        events(take(look(1, Ok(vec![view("a", Some("h"), &[])]))), &mut next);
        let told = take(unreachable(2));
        assert!(matches!(&told, Told::Outage(message) if message.starts_with("cut off: ")), "{told:?}");
        assert!(matches!(take(unreachable(3)), Told::StillAway));
        let denied = take(look(4, Err(Error::new(ErrorKind::Denied, "no"))));
        assert!(matches!(denied, Told::Failed(_)), "{denied:?}");
        let told = take(look(10, Ok(vec![view("a", Some("i"), &[])])));
        assert!(matches!(&told, Told::Lines(lines) if lines.contains("\"away_ms\":9000")), "{told:?}");
        assert_eq!(events(told, &mut next), ["resync - -", "ended a h", "granted a i"]);
        let told = take(look(11, Ok(vec![])));
        assert_eq!(events(told, &mut next), ["ended a i"], "one resync for one outage");
        assert!(matches!(take(unreachable(12)), Told::Outage(_)), "the next outage");
    }
}
