//! The output of `show --json` and `list --json`: one object on each line, with the fields in the order of the manual
//! page.

use std::{fmt::Write, time::Duration};

use leasehold::{Diagnostic, Finding, Guard, HolderView, Leadership, View, WaiterView};
use leasehold_ops::holder_remarks;
use serde_json::Value;

use crate::{
    cmd::show::ShownName,
    doctor::{Examination, Times},
    holds::Holds,
    report,
    text::is_interpreted,
};

/// One name as a JSON object with a line feed.
pub(crate) fn line(shown: &ShownName<'_>) -> String {
    let view = shown.view;
    let fields = [
        ("name", string(view.name.as_str())),
        ("engine", string(shown.engine)),
        ("key", string(&view.key)),
        ("mode", view.mode.map_or_else(null, |mode| string(mode.word()))),
        ("limit", number(view.mode.and_then(leasehold::Mode::limit))),
        ("guarantee", shown.guarantee.level().as_deref().map_or_else(null, string)),
        ("findings", shown.guarantee.findings().map_or_else(null, |all| array(all.iter().map(finding)))),
        ("lineage", view.lineage.map_or_else(null, |lineage| string(&lineage.to_string()))),
        ("holders", holders(view)),
        ("waiters", array(view.waiters.iter().map(waiter))),
        ("problem", view.problem.as_deref().map_or_else(null, string)),
        ("note", view.note.as_deref().map_or_else(null, string)),
        ("notes", array(shown.guarantee.notes().map(string))),
    ];
    object(&fields) + "\n"
}

/// Who leads an election, as a JSON object with a line feed.
pub(crate) fn leadership(name: &str, engine: &str, leadership: &Leadership) -> String {
    let (state, leader) = match leadership {
        Leadership::Held(leader) => ("held", Some(leader)),
        Leadership::Vacant => ("vacant", None),
        // A state that this command does not know counts as unsure.
        _ => ("unsure", None),
    };
    let term = leader.map(|leader| leader.term);
    let value = leader.and_then(|leader| leader.value.as_deref());
    let fields = [
        ("name", string(name)),
        ("engine", string(engine)),
        ("state", string(state)),
        ("value", value.map_or_else(null, string)),
        ("term", number(term.map(|term| term.number))),
        ("lineage", term.map_or_else(null, |term| string(&term.lineage.to_string()))),
    ];
    object(&fields) + "\n"
}

/// The holds of a run, for its CMD.
pub(crate) fn holds(holds: Holds<'_>) -> String {
    let hold = |guard: &Guard| {
        object(&[
            ("name", string(guard.name().as_str())),
            ("mode", string(guard.mode().word())),
            ("id", string(&guard.id().to_string())),
            ("token", number(Some(guard.token().number))),
            ("lineage", string(&guard.token().lineage.to_string())),
        ])
    };
    array(holds.iter().map(hold))
}

/// The report of a run, as a JSON object with a line feed.
pub(crate) fn report(line: &report::Line<'_>) -> String {
    let fields = [
        ("name", string(line.name)),
        ("engine", string(line.engine)),
        ("outcome", string(line.outcome)),
        ("exit", number(Some(line.exit))),
        ("lost", line.lost.as_deref().map_or_else(null, string)),
        ("waited_ms", number(line.waited.map(millis))),
        ("held_ms", number(line.held.map(millis))),
        ("token", number(line.token.map(|token| token.number))),
        ("lineage", line.token.map_or_else(null, |token| string(&token.lineage.to_string()))),
        ("holds", line.holds.map_or_else(null, str::to_owned)),
        ("message", line.message.map_or_else(null, string)),
    ];
    object(&fields) + "\n"
}

/// What doctor found about one engine, as a JSON object with a line feed.
pub(crate) fn examination(examination: &Examination) -> String {
    let notes = examination.guarantee.iter().flat_map(|guarantee| &guarantee.notes);
    let fields = [
        ("engine", string(examination.engine)),
        ("level", examination.level().as_deref().map_or_else(null, string)),
        ("severity", string(examination.worst().as_str())),
        ("servers", array(examination.servers().into_iter().map(string))),
        ("findings", array(examination.worst_first().into_iter().map(diagnostic))),
        ("raised_by", array(examination.raised_by().iter().map(|setting| string(setting)))),
        ("notes", array(notes.map(|note| string(note)))),
        ("cycles", examination.times.as_ref().map_or_else(null, cycles)),
    ];
    object(&fields) + "\n"
}

fn diagnostic(diagnostic: &Diagnostic) -> String {
    object(&[
        ("id", string(diagnostic.id)),
        ("severity", string(diagnostic.severity.as_str())),
        ("server", diagnostic.server.as_deref().map_or_else(null, string)),
        ("found", string(&diagnostic.found)),
        ("advice", string(&diagnostic.advice)),
    ])
}

fn cycles(times: &Times) -> String {
    let micros = |percent| u64::try_from(times.percentile(percent).as_micros()).unwrap_or(u64::MAX);
    object(&[
        ("count", number(Some(times.cycles()))),
        ("p50_us", number(Some(micros(50)))),
        ("p99_us", number(Some(micros(99)))),
    ])
}

fn finding(finding: &Finding) -> String {
    object(&[
        ("what", string(&finding.what)),
        ("found", string(&finding.found)),
        ("wanted", string(&finding.wanted)),
        ("risk", string(&finding.risk)),
    ])
}

/// The holders of a name.
pub(crate) fn holders(view: &View) -> String {
    array(view.holders.iter().map(holder))
}

fn holder(holder: &HolderView) -> String {
    let (owner, process) = (Some(&holder.owner).filter(|owner| !owner.is_empty()), holder.process);
    let state = process.and_then(|process| process.state);
    let remarks =
        holder_remarks(holder).into_iter().map(|remark| format!("{}: {}", remark.what, remark.text));
    object(&[
        ("id", string(&holder.id)),
        ("owner", owner.map_or_else(null, |owner| string(owner))),
        ("token", number(holder.token)),
        ("held_ms", number(holder.held.map(millis))),
        ("remaining_ms", number(holder.remaining.map(millis))),
        ("foreign", Value::from(holder.foreign).to_string()),
        ("mode", holder.mode.map_or_else(null, |mode| string(mode.word()))),
        ("actor", holder.actor.map_or_else(null, |actor| string(&actor.to_string()))),
        ("broken", Value::from(holder.broken).to_string()),
        ("ttl_ms", number(holder.ttl.map(millis))),
        ("since_renewal_ms", number(holder.since_renewal.map(millis))),
        ("overdue_ms", number(holder.overdue().map(millis))),
        ("pid", number(process.map(|process| process.pid))),
        ("process_state", state.map_or_else(null, |state| string(&state.to_string()))),
        ("remarks", array(remarks.map(|remark| string(&remark)))),
    ])
}

fn waiter(waiter: &WaiterView) -> String {
    object(&[
        ("id", string(&waiter.id)),
        ("owner", string(&waiter.owner)),
        ("waiting_ms", number(waiter.waiting.map(millis))),
        ("mode", waiter.mode.map_or_else(null, |mode| string(mode.word()))),
        ("actor", waiter.actor.map_or_else(null, |actor| string(&actor.to_string()))),
    ])
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn object(fields: &[(&str, String)]) -> String {
    let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{}:{value}", string(key))).collect();
    format!("{{{}}}", fields.join(","))
}

fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(","))
}

pub(crate) fn null() -> String {
    Value::Null.to_string()
}

pub(crate) fn number(number: Option<impl Into<Value>>) -> String {
    number.map_or_else(null, |number| number.into().to_string())
}

pub(crate) fn string(text: &str) -> String {
    let mut escaped = String::new();
    for c in Value::from(text).to_string().chars() {
        // Most characters that a terminal interprets need no escape in JSON; this output escapes all of them. None of
        // them needs more than four hexadecimal digits.
        if is_interpreted(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use leasehold::{Guarantee, Level, Mode, Name};

    use super::*;
    use crate::cmd::show::GuaranteeResult;

    fn line_of(view: &View) -> String {
        let guarantee = GuaranteeResult(Ok(Guarantee::new(Level::Exact, &[])));
        line(&ShownName { engine: "file", guarantee: &guarantee, view })
    }

    #[test]
    fn a_free_name_has_all_fields_in_order() {
        let view = View::free(Name::new("a\"b").unwrap(), "/d/a%22b.lock".into());
        assert_eq!(
            line_of(&view),
            "{\"name\":\"a\\\"b\",\"engine\":\"file\",\"key\":\"/d/a%22b.lock\",\"mode\":null,\"limit\":null,\
             \"guarantee\":\"exact\",\"findings\":[],\"lineage\":null,\"holders\":[],\"waiters\":[],\"problem\":null,\"note\":null,\
             \"notes\":[]}\n"
        );
    }

    #[test]
    fn a_state_without_a_leader_has_all_fields_in_order() {
        let line = |state: &str| {
            format!(
                "{{\"name\":\"n\",\"engine\":\"file\",\"state\":\"{state}\",\"value\":null,\"term\":null,\"lineage\":null}}\n"
            )
        };
        assert_eq!(leadership("n", "file", &Leadership::Vacant), line("vacant"));
        assert_eq!(leadership("n", "file", &Leadership::Unsure), line("unsure"));
    }

    #[test]
    fn json_has_all_fields_and_no_control_characters() {
        let mut view = View::free(Name::new("n").unwrap(), "k".into());
        view.mode = Some(Mode::Permits { count: 2, limit: 3 });
        let holder = HolderView::new("i".into(), "o\u{9b}\u{1b}[2J\u{202e}".into());
        view.holders.push(holder.token(Some(u64::MAX)).times(Some(Duration::from_micros(1500)), None));
        view.waiters.push(WaiterView::new("w".into(), "x".into(), Some(Duration::from_secs(2))));
        let line = line_of(&view);
        assert!(!line.trim_end().contains(is_interpreted), "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["mode"], "permit");
        assert_eq!(value["limit"], 3);
        assert_eq!(value["holders"][0]["owner"], "o\u{9b}\u{1b}[2J\u{202e}");
        assert_eq!(value["holders"][0]["token"], u64::MAX);
        assert_eq!(value["holders"][0]["held_ms"], 1);
        assert_eq!(value["holders"][0]["remaining_ms"], Value::Null);
        assert_eq!(value["waiters"][0]["waiting_ms"], 2000);
    }

    #[test]
    fn the_notes_of_the_guarantee_and_the_remarks_about_a_holder_are_in_the_object() {
        let mut view = View::free(Name::new("n").unwrap(), "k".into());
        let (thirty, twelve) = (Duration::from_secs(30), Duration::from_secs(12));
        let holder = HolderView::new("i".into(), String::new()).times(None, Some(twelve));
        view.holders.push(holder.renewed(Some(thirty), Some(Duration::from_secs(18))));
        view.holders[0].process = Some(leasehold::HolderProcess::new(7, Some('T')));
        let guarantee = GuaranteeResult(Ok(Guarantee::new(Level::Exact, &["one host"])));
        let line = line(&ShownName { engine: "file", guarantee: &guarantee, view: &view });
        let value: Value = serde_json::from_str(&line).unwrap();
        let holder = &value["holders"][0];
        assert_eq!((&value["notes"][0], &holder["owner"]), (&"one host".into(), &Value::Null));
        for (field, expected) in
            [("ttl_ms", 30_000), ("since_renewal_ms", 18_000), ("overdue_ms", 3000), ("pid", 7)]
        {
            assert_eq!(holder[field], expected, "{line}");
        }
        assert_eq!((&holder["process_state"], &holder["broken"]), (&"T".into(), &false.into()));
        assert!(
            holder["remarks"][0].as_str().unwrap().starts_with("overdue: renewal overdue by 3.0s"),
            "{line}"
        );
        let unknown = GuaranteeResult(Err("no right to read it".into()));
        let line = super::line(&ShownName { engine: "file", guarantee: &unknown, view: &view });
        assert!(line.contains("\"guarantee\":null") && line.contains("[\"no right to read it\"]"), "{line}");
    }
}
