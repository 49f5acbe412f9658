//! What is to be said about a holder beside who it is: that its hold is broken, that it is not renewed, that its
//! process is stopped. Pure.

use leasehold::{HolderProcess, HolderView, View};

use crate::{short_duration, waiting_text};

/// A remark about a holder. Its texts contain no text that others chose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// What it is about, one word.
    pub what: &'static str,
    /// What there is to know, and what to do.
    pub text: String,
}

/// The words after the owner of a hold where holders are a list: what is not as it should be, and whether another
/// program holds the name.
#[must_use]
pub fn marks(holder: &HolderView) -> Vec<&'static str> {
    let halted = holder.process.filter(HolderProcess::is_halted).and_then(|process| process.state);
    [
        holder.foreign.then_some("foreign"),
        holder.broken.then_some("broken"),
        halted.map(|state| if state == 'D' { "state D" } else { "stopped" }),
        holder.overdue().is_some().then_some("not renewed"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The remarks about a name and its holders. If there are several holders, each of their remarks begins with the token
/// of its hold.
#[must_use]
pub fn remarks(view: &View) -> Vec<Remark> {
    let is_only = view.holders.len() == 1;
    let of_holder = |holder: &HolderView| {
        let prefix = holder.token.filter(|_| !is_only).map(|token| format!("token {token}: "));
        let prefix = prefix.unwrap_or_default();
        let remarks = holder_remarks(holder).into_iter();
        remarks.map(move |Remark { what, text }| Remark { what, text: format!("{prefix}{text}") })
    };
    view.holders.iter().flat_map(of_holder).chain(untaken(view)).collect()
}

/// About a free name that is waited for. Its first waiter takes it within moments, unless it is stopped or cut off.
fn untaken(view: &View) -> Option<Remark> {
    let is_free = view.holders.is_empty() && view.problem.is_none();
    let first = view.waiters.first().filter(|_| is_free)?;
    let waited = waiting_text(first).map(|waited| format!(" after {waited}")).unwrap_or_default();
    let text = format!(
        "free, and not taken{waited}: if a second look shows the same, the first waiter is stopped or cut off, and others \
         get the name when it is continued (kill -CONT), is ended, or loses its place"
    );
    Some(Remark { what: "waiter", text })
}

/// The remarks about one holder, the most important first.
#[must_use]
pub fn holder_remarks(holder: &HolderView) -> Vec<Remark> {
    let remark = |what, text| Remark { what, text };
    [
        holder.broken.then(|| remark("broken", free_when(holder))),
        overdue(holder).map(|text| remark("overdue", text)),
        holder.process.map(|process| remark("process", process_text(process))),
        lease(holder).map(|text| remark("lease", text)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// When the name of a broken hold becomes free, in a sentence.
#[must_use]
pub fn free_when(holder: &HolderView) -> String {
    let free = "the name is free when the holder stops";
    match holder.remaining {
        Some(left) => format!("{free}, in {} at the latest", short_duration(left)),
        None if holder.of_session => format!("{free}, or when its session ends"),
        None => free.to_owned(),
    }
}

fn overdue(holder: &HolderView) -> Option<String> {
    let (late, since) = (short_duration(holder.overdue()?), short_duration(holder.since_renewal?));
    let left = holder.remaining.map(short_duration).unwrap_or_default();
    Some(format!(
        "renewal overdue by {late}, none for {since}: the holder hangs, is stopped or is cut off, or is one that never \
         renews; without a renewal the name is free in {left}"
    ))
}

fn process_text(HolderProcess { pid, state, .. }: HolderProcess) -> String {
    match state {
        Some('T') => format!(
            "the holder's process {pid} is stopped (state T), and releases nothing: continue it by `kill -CONT \
             {pid}`, or end it by `kill -KILL {pid}`"
        ),
        Some('t') => format!("the holder's process {pid} is stopped by a debugger (state t)"),
        Some('D') => format!(
            "the holder's process {pid} is in a wait that no signal interrupts (state D), mostly for a disk or a \
             network file system"
        ),
        Some(state) => format!("{pid} (state {state})"),
        None => pid.to_string(),
    }
}

fn lease(holder: &HolderView) -> Option<String> {
    let (ttl, since) = (short_duration(holder.ttl?), short_duration(holder.since_renewal?));
    Some(format!("{ttl}, last renewed {since} ago"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::{Mode, Name, WaiterView};

    use super::*;

    fn holder() -> HolderView {
        HolderView::new("i".into(), "o".into()).token(Some(7))
    }

    fn seconds(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    fn texts(holder: &HolderView) -> Vec<String> {
        holder_remarks(holder).iter().map(|remark| format!("{}: {}", remark.what, remark.text)).collect()
    }

    #[test]
    fn a_holder_without_anything_to_say_has_no_remark() {
        let usual = holder().times(seconds(3), seconds(20)).renewed(None, seconds(9));
        assert_eq!((marks(&usual), texts(&usual)), (vec![], vec![]));
        assert_eq!(marks(&usual.foreign(true)), ["foreign"]);
    }

    #[test]
    fn a_broken_hold_tells_when_the_name_is_free() {
        let broken = holder().broken(true);
        assert_eq!(marks(&broken), ["broken"]);
        assert_eq!(texts(&broken), ["broken: the name is free when the holder stops"]);
        let of_session = broken.clone().of_session();
        assert_eq!(
            free_when(&of_session),
            "the name is free when the holder stops, or when its session ends"
        );
        let leased = broken.times(None, seconds(12)).renewed(None, seconds(18));
        assert_eq!(texts(&leased), ["broken: the name is free when the holder stops, in 12s at the latest"]);
    }

    #[test]
    fn a_hold_that_is_not_renewed_is_overdue() {
        let late = holder().times(None, seconds(14)).renewed(seconds(30), seconds(16));
        assert_eq!(marks(&late), ["not renewed"]);
        let [overdue, lease] = &texts(&late)[..] else { panic!("{late:?}") };
        assert!(overdue.starts_with("overdue: renewal overdue by 1.0s, none for 16s: "), "{overdue}");
        assert!(
            overdue.contains("or is one that never renews") && overdue.ends_with("free in 14s"),
            "{overdue}"
        );
        assert_eq!(lease, "lease: 30s, last renewed 16s ago");
    }

    #[test]
    fn a_stopped_process_is_named_with_what_to_do() {
        let of = |state| holder().process(Some(HolderProcess::new(1234, state)));
        assert_eq!(texts(&of(Some('S'))), ["process: 1234 (state S)"]);
        assert_eq!(texts(&of(None)), ["process: 1234"]);
        assert!(marks(&of(Some('S'))).is_empty());
        for (state, mark, text) in [
            ('T', "stopped", "the holder's process 1234 is stopped (state T), "),
            ('t', "stopped", "the holder's process 1234 is stopped by a debugger (state t)"),
            ('D', "state D", "the holder's process 1234 is in a wait that no signal interrupts (state D), "),
        ] {
            assert_eq!(marks(&of(Some(state))), [mark]);
            let texts = texts(&of(Some(state)));
            assert!(texts[0].starts_with(&format!("process: {text}")), "{texts:?}");
        }
        assert!(texts(&of(Some('T')))[0].contains("`kill -CONT 1234`"));
    }

    #[test]
    fn a_free_name_with_a_waiter_has_a_remark() {
        let mut view = View::free(Name::new("n").unwrap(), "k".into());
        assert_eq!(remarks(&view), []);
        view.waiters.push(WaiterView::new("i".into(), "o".into(), seconds(50)));
        let [Remark { what: "waiter", text }] = &remarks(&view)[..] else { panic!("{view:?}") };
        assert!(text.starts_with("free, and not taken after 50s: "), "{text}");
        view.add_holder(Mode::Exclusive, holder());
        assert_eq!(remarks(&view), []);
    }

    #[test]
    fn remarks_about_several_holders_name_their_tokens() {
        let mut view = View::free(Name::new("n").unwrap(), "k".into());
        view.add_holder(Mode::Shared, holder().broken(true));
        view.add_holder(Mode::Shared, holder().token(Some(9)));
        let texts: Vec<_> = remarks(&view).into_iter().map(|remark| remark.text).collect();
        assert_eq!(texts, ["token 7: the name is free when the holder stops"]);
        view.holders.pop();
        assert_eq!(remarks(&view)[0].text, "the name is free when the holder stops");
    }
}
