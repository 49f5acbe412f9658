//! Commands and disk writes that held up the server: while it executes one command, it answers nobody else.

use std::time::Duration;

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;

const ID: &str = "redis-slow";

/// The beginning of the fields of `INFO` with the latencies of commands (Redis 7.0); the name of the command follows.
pub(super) const LATENCY: &str = "latency_percentiles_usec_";
/// The shortest command that is reported. The client keeps its holds valid through much longer ones, but each request
/// of a lock waits for it.
const MIN_DURATION: Duration = Duration::from_millis(100);
/// Older slow commands are not reported.
const MAX_AGE: Duration = Duration::from_secs(3600);

pub(super) fn judge(report: &ServerReport) -> Option<Diagnostic> {
    let advice = "see SLOWLOG GET, and let other programs use another server";
    let slow = match &report.slow_commands {
        Some(commands) => {
            let recent =
                commands.iter().filter(|command| report.clocks.server.saturating_sub(command.at) < MAX_AGE);
            let slowest = recent.max_by_key(|command| command.took);
            let slowest = slowest.filter(|command| command.took >= MIN_DURATION);
            slowest.map(|command| format!("{} took {:.1?} in the last hour", command.name, command.took))
        }
        None => slowest_by_latencies(report)
            .filter(|(_, took)| *took >= MIN_DURATION)
            .map(|(name, took)| format!("one of 1000 calls of {name} took {took:.1?} or longer")),
    };
    if let Some(slow) = slow {
        let found = format!("{slow}: meanwhile the server answered nobody else");
        return Some(Diagnostic::new(ID, Severity::Warning, found, advice));
    }
    let delayed = report.number("aof_delayed_fsync").unwrap_or(0);
    if delayed > 0 {
        let found = format!("{delayed} writes waited for the disk since the server was started");
        let advice = "give the server a faster disk, or one of its own";
        return Some(Diagnostic::new(ID, Severity::Warning, found, advice));
    }
    let found = match (&report.slow_commands, slowest_by_latencies(report)) {
        (Some(_), _) => format!("no command took {MIN_DURATION:?} or longer in the last hour"),
        (None, Some(_)) => format!("999 of 1000 calls of each command took less than {MIN_DURATION:?}"),
        (None, None) => return None,
    };
    Some(Diagnostic::good(ID, found))
}

/// The command with the largest latency in `INFO`: the one that one of 1000 calls exceeded.
fn slowest_by_latencies(report: &ServerReport) -> Option<(String, Duration)> {
    let latency = |(field, value): (&String, &String)| {
        let name = field.strip_prefix(LATENCY)?.to_ascii_uppercase();
        let micros = value.split(',').find_map(|part| part.strip_prefix("p99.9="))?.parse::<f64>().ok()?;
        Some((name, Duration::try_from_secs_f64(micros / 1e6).ok()?))
    };
    report.info.iter().filter_map(latency).max_by_key(|(_, took)| *took)
}

#[cfg(test)]
mod tests {
    use super::{super::report::SlowCommand, *};
    use crate::server_clock::Clocks;

    #[test]
    fn a_recent_slow_command_is_reported() {
        let judged = |age: u64, millis: u64| {
            let mut report = ServerReport::example(&[]);
            let now = 10_000_000;
            report.clocks = Clocks::of_millis(now, now, now);
            let at = Duration::from_millis(now) - Duration::from_secs(age);
            let took = Duration::from_millis(millis);
            report.slow_commands = Some(vec![SlowCommand { name: "KEYS".to_owned(), at, took }]);
            judge(&report).unwrap()
        };
        let found = judged(60, 2500);
        assert!(
            found.severity == Severity::Warning && found.found.starts_with("KEYS took 2.5s"),
            "{found:?}"
        );
        assert_eq!(judged(60, 99).severity, Severity::Good);
        assert_eq!(judged(3600, 2500).severity, Severity::Good);
    }

    #[test]
    fn without_the_list_the_latencies_are_judged() {
        let mut report = ServerReport::example(&[
            ("latency_percentiles_usec_get", "p50=1.0,p99=2.0,p99.9=3.0"),
            ("latency_percentiles_usec_evalsha", "p50=1.0,p99=2.0,p99.9=150000.5"),
        ]);
        assert_eq!(judge(&report).unwrap().severity, Severity::Good, "the list of slow commands is empty");
        report.slow_commands = None;
        let found = judge(&report).unwrap();
        assert!(
            found.severity == Severity::Warning && found.found.contains("calls of EVALSHA took 150"),
            "{found:?}"
        );
        report.info.retain(|field, _| !field.ends_with("evalsha"));
        assert!(judge(&report).unwrap().found.starts_with("999 of 1000"));
        report.info.retain(|field, _| !field.starts_with(LATENCY));
        assert_eq!(judge(&report), None, "nothing tells of slow commands");
        let delayed = ServerReport::example(&[("aof_delayed_fsync", "2")]);
        assert_eq!(judge(&delayed).unwrap().severity, Severity::Warning);
    }
}
