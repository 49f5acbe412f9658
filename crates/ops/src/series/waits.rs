//! The series of deadlocks and long waits.

use super::{
    engine::length_value,
    families::{DEADLOCKS, LONG_WAITS},
    text::{Exposition, Labels},
};
use crate::waits::{Finding, LongWaitCause};

/// Adds the number of deadlocks that a search over all engines that answer found. A deadlock can be over several
/// engines, so this series has no label of an engine. Do not pass a deadlock over an engine that does not answer any
/// more: a deadlock that was over would look current. Do not call this function while no engine answers.
pub fn write_deadlocks(text: &mut Exposition, findings: &[Finding]) {
    let deadlocks = findings.iter().filter(|finding| matches!(finding, Finding::Deadlock(_)));
    text.sample(&DEADLOCKS, &[], length_value(deadlocks.count()));
}

/// Adds the number of long waits of one engine for each cause, also where it is 0.
pub(super) fn write_long_waits(
    text: &mut Exposition,
    labels: &Labels<'_>,
    location: &str,
    findings: &[Finding],
) {
    for cause in LongWaitCause::WORDS {
        let is_one = |finding: &&Finding| match finding {
            Finding::LongWait(wait) => wait.waiter.engine == location && wait.cause.word() == cause,
            Finding::Deadlock(_) => false,
        };
        let labels: Vec<_> = labels.iter().copied().chain([("cause", cause)]).collect();
        text.sample(&LONG_WAITS, &labels, length_value(findings.iter().filter(is_one).count()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::{Actor, HolderView, Mode, Name, View, WaiterView};

    use super::*;
    use crate::{
        series::{EngineState, NameFilter, Totals},
        waits::{Look, MIN_APART, report},
    };

    /// A name that a task has held for 1000 s, and for which another task has waited for this time.
    fn lock(name: &str, holder: u64, waiter: u64, waited: Duration) -> View {
        let actor = |id: u64| Some(format!("{id:016x}").parse::<Actor>().unwrap());
        let mut view = View::free(Name::new(name).unwrap(), name.to_owned());
        let held = Some(Duration::from_secs(1000));
        let mut hold = HolderView::new(format!("h{name}"), format!("task {holder}")).token(Some(7));
        (hold, hold.actor) = (hold.clone().times(held, None), actor(holder));
        view.add_holder(Mode::Exclusive, hold);
        let mut wait = WaiterView::new(format!("w{name}"), format!("task {waiter}"), Some(waited));
        (wait.mode, wait.actor) = (Some(Mode::Exclusive), actor(waiter));
        view.waiters.push(wait);
        view
    }

    #[test]
    fn deadlocks_are_of_all_engines_and_long_waits_of_one() {
        let (short, long) = (Duration::from_secs(9), Duration::from_secs(700));
        let here = [lock("a", 1, 2, short), lock("b", 3, 4, long)];
        let there = [lock("c", 2, 1, short)];
        let look = |engine, views| Look { engine, fifo: true, views };
        let looks = [look("here", &here[..]), look("there", &there)];
        let findings = report(&looks, &looks, MIN_APART);
        let mut text = Exposition::new();
        write_deadlocks(&mut text, &findings);
        for location in ["here", "there"] {
            let totals = Totals::new();
            let state = EngineState::new("redis", location, &totals).findings(Some(&findings));
            state.write(&mut text, &NameFilter::default());
        }
        let text = text.to_string();
        let is_of_waits = |line: &&str| line.contains("_deadlocks") || line.contains("_long_waits");
        let lines: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).filter(is_of_waits).collect();
        let waits = |location, cause, count| {
            format!(
                "leasehold_long_waits{{engine=\"redis\",location=\"{location}\",cause=\"{cause}\"}} {count}"
            )
        };
        assert_eq!(
            lines,
            [
                "leasehold_deadlocks 1".to_owned(),
                waits("here", "hold", 1),
                waits("here", "overtaken", 0),
                waits("here", "queue", 0),
                waits("there", "hold", 0),
                waits("there", "overtaken", 0),
                waits("there", "queue", 0),
            ]
        );
    }

    #[test]
    fn what_is_not_known_has_no_series() {
        let (mut text, totals) = (Exposition::new(), Totals::new());
        EngineState::new("redis", "a", &totals).findings(None).write(&mut text, &NameFilter::default());
        assert!(!text.to_string().contains("leasehold_long_waits"), "{text}");
        write_deadlocks(&mut text, &[]);
        assert!(text.to_string().contains("\nleasehold_deadlocks 0\n"), "{text}");
    }
}
