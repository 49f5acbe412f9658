//! The lines about one break. Pure.

use std::time::{Duration, SystemTime};

use leasehold::{HolderView, View};
use serde_json::{Value, json};

use super::Fields;
use crate::utc;

/// The most characters of a reason.
const MAX_REASON_CHARS: usize = 500;

/// A break that somebody asked for, as both of its lines tell it.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "each tool for operators must fill a new field")]
pub struct BreakRecord {
    /// The same in both lines, and another one for each break.
    pub id: String,
    /// Who asked for it.
    pub who: String,
    /// How this is known: `session`, `token` or `proxy` of the page, or `system` for the user of a command.
    pub known_by: &'static str,
    /// Where the request came from; `None` for a command.
    pub address: Option<String>,
    /// The label of the engine.
    pub engine: String,
    /// The name of the lock.
    pub name: String,
    /// The token of the hold that is to end.
    pub token: u64,
    /// Whether the break does not wait for the end of the lease.
    pub force: bool,
    /// Why.
    pub reason: String,
}

impl BreakRecord {
    /// A reason as it is recorded. `None`: it is empty, or longer than 500 characters.
    #[must_use]
    pub fn reason(text: &str) -> Option<&str> {
        let text = text.trim();
        (!text.is_empty() && text.chars().count() <= MAX_REASON_CHARS).then_some(text)
    }

    /// The hold of a name that has this token.
    #[must_use]
    pub fn holder(view: &View, token: u64) -> Option<&HolderView> {
        view.holders.iter().find(|holder| holder.token == Some(token))
    }

    /// The line that is written before the break: with the hold that is to end, if the engine shows one with the token.
    #[must_use]
    pub fn intent(&self, at: SystemTime, before: &View) -> Fields {
        let holder = Self::holder(before, self.token);
        let card = holder.map_or(Value::Null, |holder| card(holder, before.waiters.len()));
        self.line(at, "intent", vec![("holder", card)])
    }

    /// The line that is written after the break: what became of it, why it failed, and who holds the name now or why
    /// this is not known.
    #[must_use]
    pub fn outcome(
        &self,
        at: SystemTime,
        (outcome, error): (&str, Option<&str>),
        after: Result<&View, &str>,
    ) -> Fields {
        let after = match after {
            Ok(view) => holders(view),
            Err(error) => json!({ "unknown": error }),
        };
        let fields =
            vec![("outcome", Value::from(outcome)), ("error", Value::from(error)), ("holders_after", after)];
        self.line(at, "outcome", fields)
    }

    fn line(&self, at: SystemTime, event: &str, more: Fields) -> Fields {
        let mut fields = vec![
            ("time", Value::from(utc(at))),
            ("event", Value::from(event)),
            ("id", Value::from(self.id.as_str())),
            ("who", Value::from(self.who.as_str())),
            ("known_by", Value::from(self.known_by)),
            ("address", Value::from(self.address.as_deref())),
            ("engine", Value::from(self.engine.as_str())),
            ("name", Value::from(self.name.as_str())),
            ("token", Value::from(self.token)),
            ("force", Value::from(self.force)),
            ("reason", Value::from(self.reason.as_str())),
        ];
        fields.extend(more);
        fields
    }
}

/// The hold that is to end.
fn card(holder: &HolderView, waiters: usize) -> Value {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    json!({
        "owner": holder.owner,
        "token": holder.token,
        "held_ms": holder.held.map(millis),
        "remaining_ms": holder.remaining.map(millis),
        "waiters": waiters,
    })
}

fn holders(view: &View) -> Value {
    let holder = |holder: &HolderView| json!({ "owner": holder.owner, "token": holder.token });
    Value::Array(view.holders.iter().map(holder).collect())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use leasehold::Name;

    use super::*;

    fn record() -> BreakRecord {
        BreakRecord {
            id: "i".into(),
            who: "ada@h:7".into(),
            known_by: "system",
            address: None,
            engine: "redis".into(),
            name: "deploy".into(),
            token: 7,
            force: false,
            reason: "it hangs".into(),
        }
    }

    #[test]
    fn both_lines_tell_the_break_and_each_its_own_facts() {
        let mut view = View::free(Name::new("deploy").unwrap(), "k".into());
        let holder = HolderView::new("id".into(), "me".into()).token(Some(7));
        view.holders.push(holder.times(Some(Duration::from_secs(2)), None));
        let value = |fields: Fields| fields.into_iter().collect::<std::collections::BTreeMap<_, _>>();
        let (intent, outcome) = (
            value(record().intent(UNIX_EPOCH, &view)),
            value(record().outcome(UNIX_EPOCH, ("failed", Some("no answer")), Err("away"))),
        );
        for line in [&intent, &outcome] {
            assert_eq!((&line["who"], &line["reason"]), (&"ada@h:7".into(), &"it hangs".into()));
            assert_eq!((&line["address"], &line["token"]), (&Value::Null, &7.into()));
            assert_eq!(line["time"], "1970-01-01T00:00:00.000Z");
        }
        let card = json!({ "owner": "me", "token": 7, "held_ms": 2000, "remaining_ms": null, "waiters": 0 });
        assert_eq!((&intent["event"], &intent["holder"]), (&"intent".into(), &card));
        assert_eq!((&outcome["event"], &outcome["outcome"]), (&"outcome".into(), &"failed".into()));
        assert_eq!(
            (&outcome["error"], &outcome["holders_after"]["unknown"]),
            (&"no answer".into(), &"away".into())
        );
        // Another token is the break of nothing that is shown.
        let other = value(BreakRecord { token: 8, ..record() }.intent(UNIX_EPOCH, &view));
        assert_eq!(other["holder"], Value::Null);
        let done = value(record().outcome(UNIX_EPOCH, ("broken", None), Ok(&view)));
        assert_eq!(done["holders_after"], json!([{ "owner": "me", "token": 7 }]));
        assert_eq!(done["error"], Value::Null);
    }

    #[test]
    fn a_reason_is_a_text_of_bounded_length() {
        assert_eq!(BreakRecord::reason("  it hangs\n"), Some("it hangs"));
        assert_eq!(BreakRecord::reason(" "), None);
        assert!(BreakRecord::reason(&"r".repeat(500)).is_some());
        assert_eq!(BreakRecord::reason(&"r".repeat(501)), None);
    }
}
