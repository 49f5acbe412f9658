//! Holders whose process is stopped: the kernel keeps their locks until somebody continues or ends them.

use super::super::engine::FileEngine;
use crate::{Diagnostic, HolderProcess, Severity, View};

/// How many stopped holders are named.
const NAMED: usize = 3;

/// The stopped holders of all names; `None` if the names cannot be listed, which claims and `list` report.
pub(super) fn diagnose(engine: &FileEngine) -> Option<Diagnostic> {
    Some(judge(&engine.list_now("").ok()?))
}

fn judge(views: &[View]) -> Diagnostic {
    let stopped: Vec<_> = views.iter().flat_map(stopped_holders).collect();
    if stopped.is_empty() {
        return Diagnostic::good("file-holders", "no process of a holder is stopped");
    }
    let mut named = stopped[..stopped.len().min(NAMED)].join(", ");
    if stopped.len() > NAMED {
        named += &format!(", and {} more", stopped.len() - NAMED);
    }
    Diagnostic::new(
        "file-holders",
        Severity::Warning,
        format!("stopped processes hold {named}: they release nothing"),
        "continue each process by `kill -CONT PID`, or end it by `kill -KILL PID`",
    )
}

/// The holders of a name whose process is stopped. A wait that no signal interrupts is normal for moments, and one look
/// cannot tell for how long it lasts.
fn stopped_holders(view: &View) -> impl Iterator<Item = String> {
    let is_stopped = |process: &HolderProcess| matches!(process.state, Some('T' | 't'));
    let processes = view.holders.iter().filter_map(|holder| holder.process);
    processes.filter(is_stopped).map(|process| format!("{:?} (process {})", view.name.as_str(), process.pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HolderView, Mode, Name};

    fn view(name: &str, state: char) -> View {
        let mut view = View::free(Name::new(name).unwrap(), "k".into());
        let process = Some(HolderProcess::new(7, Some(state)));
        view.add_holder(Mode::Exclusive, HolderView::new("i".into(), "o".into()).process(process));
        view
    }

    #[test]
    fn stopped_holders_are_a_warning() {
        let usual = judge(&[view("a", 'S'), view("b", 'D')]);
        assert_eq!(usual.severity, Severity::Good, "{usual:?}");
        let found = judge(&[view("a", 'T'), view("b", 'S'), view("c", 't')]);
        let told = "stopped processes hold \"a\" (process 7), \"c\" (process 7): they release nothing";
        assert_eq!((found.severity, &*found.found), (Severity::Warning, told));
        let many = judge(&["a", "b", "c", "d", "e"].map(|name| view(name, 'T')));
        assert!(many.found.contains("\"c\" (process 7), and 2 more: "), "{many:?}");
    }
}
