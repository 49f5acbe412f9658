//! Commands and disk writes that held up the server: while it executes one command, it answers nobody else.

use std::time::Duration;

use leasehold_core::{Diagnostic, Severity};

use super::{ServerReport, report::SlowCommand};

const ID: &str = "redis-slow";

/// The beginning of the fields of `INFO` with the latencies of commands (Redis 7.0); the name of the command follows.
pub(super) const LATENCY: &str = "latency_percentiles_usec_";
/// The shortest command that is reported. The client keeps its holds valid through much longer ones, but each request
/// of a lock waits for it.
const MIN_DURATION: Duration = Duration::from_millis(100);
/// Older slow commands are not reported.
const MAX_AGE: Duration = Duration::from_secs(3600);

pub(super) fn judge(report: &ServerReport) -> Option<Diagnostic> {
    let slow = match &report.slow_commands {
        Some(commands) => slowest_in_the_list(report, commands),
        None => slowest_by_latencies(report).filter(|(_, took)| *took >= MIN_DURATION).map(of_latency),
    };
    if let Some((slow, advice)) = slow {
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

/// What to do about a slow command of another program.
const OTHERS: &str = "see SLOWLOG GET, and let other programs use another server";

/// The slowest recent command of another program, or else of leasehold, and what to do about it.
fn slowest_in_the_list(report: &ServerReport, commands: &[SlowCommand]) -> Option<(String, &'static str)> {
    let is_recent = |command: &&SlowCommand| report.clocks.server.saturating_sub(command.at) < MAX_AGE;
    let slow = commands.iter().filter(is_recent).filter(|command| command.took >= MIN_DURATION);
    // A script of leasehold is short, so it is slow when the whole server was: what another program did explains more.
    let slowest = slow.max_by_key(|command| (!command.is_own, command.took))?;
    let SlowCommand { name, took, .. } = slowest;
    if slowest.is_own {
        let advice = "look at the processor, the swap and the virtual machine of the server, which stood still: such a \
                      script takes less than a millisecond on an idle server";
        return Some((format!("a script of leasehold took {took:.1?} in the last hour"), advice));
    }
    Some((format!("{name} of another program took {took:.1?} in the last hour"), OTHERS))
}

/// The same by the latencies in `INFO`, which do not tell whose scripts were slow.
fn of_latency((name, took): (String, Duration)) -> (String, &'static str) {
    let advice = match name.as_str() {
        "EVALSHA" => {
            "grant +slowlog|get to learn whether the script is of leasehold: then the server stood still, and else \
             another program needs another server"
        }
        _ => OTHERS,
    };
    (format!("one of 1000 calls of {name} took {took:.1?} or longer"), advice)
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
    use super::*;
    use crate::server_clock::Clocks;

    #[test]
    fn a_recent_slow_command_is_reported() {
        let judged = |commands: &[(u64, u64, bool)]| {
            let mut report = ServerReport::example(&[]);
            let now = 10_000_000;
            report.clocks = Clocks::of_millis(now, now, now);
            let command = |&(age, millis, is_own): &(u64, u64, bool)| {
                let at = Duration::from_millis(now) - Duration::from_secs(age);
                let name = if is_own { "EVALSHA" } else { "KEYS" }.to_owned();
                SlowCommand { name, is_own, at, took: Duration::from_millis(millis) }
            };
            report.slow_commands = Some(commands.iter().map(command).collect());
            judge(&report).unwrap()
        };
        for (commands, severity, words) in [
            (&[(60, 2500, false)][..], Severity::Warning, "KEYS of another program took 2.5s"),
            (&[(60, 99, false)], Severity::Good, "no command took"),
            (&[(3600, 2500, false)], Severity::Good, "no command took"),
            (&[(60, 2500, true)], Severity::Warning, "a script of leasehold took 2.5s"),
            // What another program did explains why a short script was slow.
            (&[(60, 2500, true), (60, 150, false)], Severity::Warning, "KEYS of another program took 150"),
            (&[(60, 2500, true), (60, 99, false)], Severity::Warning, "a script of leasehold took 2.5s"),
            (&[(60, 2500, true), (3600, 5000, false)], Severity::Warning, "a script of leasehold took 2.5s"),
        ] {
            let found = judged(commands);
            assert!(found.severity == severity && found.found.starts_with(words), "{found:?}");
            let blames_others = found.advice.contains("other programs");
            assert_eq!(blames_others, found.found.contains("another program"), "{found:?}");
        }
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
        assert!(found.advice.contains("+slowlog|get"), "{found:?}");
        report.info.retain(|field, _| !field.ends_with("evalsha"));
        assert!(judge(&report).unwrap().found.starts_with("999 of 1000"));
        report.info.retain(|field, _| !field.starts_with(LATENCY));
        assert_eq!(judge(&report), None, "nothing tells of slow commands");
        let delayed = ServerReport::example(&[("aof_delayed_fsync", "2")]);
        assert_eq!(judge(&delayed).unwrap().severity, Severity::Warning);
    }
}
