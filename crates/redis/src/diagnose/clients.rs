//! What the server does to its connections: how many it accepts, when it closes them, and which notifications it drops.

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;

const CLIENTS_ID: &str = "redis-clients";
const PUSHES_ID: &str = "redis-pushes";
const TIMEOUT_ID: &str = "redis-timeout";

/// From this share of `maxclients` on, the connections count as nearly used up, in percent.
const NEARLY_USED_UP: u64 = 90;
/// A limit on the unsent bytes of a connection below this is reported: a batch of answers and notifications of a busy
/// client is some hundred KiB.
const MIN_BUFFER: u64 = 1 << 20;
/// A limit on the number of tracked keys below this is reported: a client tracks one key for each foreign lock for
/// which it waits.
const MIN_TRACKED_KEYS: u64 = 1000;
/// A server that closes idle connections after less than this many seconds is reported: the connection of a holder is
/// idle between two renewals, which by default are 10 s apart.
const MIN_TIMEOUT: u64 = 60;

pub(super) fn judge(report: &ServerReport) -> Vec<Diagnostic> {
    let all = [clients(report), pushes(report), timeout(report)];
    all.into_iter().flatten().collect()
}

/// How many further connections the server accepts.
fn clients(report: &ServerReport) -> Option<Diagnostic> {
    let (connected, rejected) = (report.number("connected_clients")?, report.number("rejected_connections")?);
    let limit = report.setting("maxclients").and_then(|limit| limit.parse::<u64>().ok());
    let limit = limit.or_else(|| report.number("maxclients"))?;
    let found = format!("{connected} of {limit} connections are in use (maxclients)");
    let advice =
        "raise maxclients and the limit of open files of the server, or let programs share connections";
    if connected.saturating_mul(100) >= limit.saturating_mul(NEARLY_USED_UP) {
        return Some(Diagnostic::new(CLIENTS_ID, Severity::Warning, found, advice));
    }
    if rejected > 0 {
        let found = format!("{found}, and {rejected} were refused since the server was started");
        return Some(Diagnostic::new(CLIENTS_ID, Severity::Warning, found, advice));
    }
    Some(Diagnostic::good(CLIENTS_ID, found))
}

/// Whether the server drops notifications. A subscribed connection counts as one of the class `pubsub`.
fn pushes(report: &ServerReport) -> Option<Diagnostic> {
    let limits = report.setting("client-output-buffer-limit")?;
    let mut words = limits.split_whitespace().skip_while(|word| *word != "pubsub").skip(1);
    let mut limit = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (hard, soft) = (limit()?, limit()?);
    if let Some(small) = [hard, soft].into_iter().find(|limit| (1..MIN_BUFFER).contains(limit)) {
        return Some(Diagnostic::new(
            PUSHES_ID,
            Severity::Warning,
            format!("it closes a connection with {small} unsent bytes (client-output-buffer-limit pubsub)"),
            "set client-output-buffer-limit to pubsub 32mb 8mb 60, the default",
        ));
    }
    let tracked = report.setting("tracking-table-max-keys").and_then(|keys| keys.parse::<u64>().ok());
    if let Some(keys) = tracked.filter(|keys| (1..MIN_TRACKED_KEYS).contains(keys)) {
        return Some(Diagnostic::new(
            PUSHES_ID,
            Severity::Warning,
            format!("it tracks {keys} keys at most, so waiters may not be told when another program unlocks"),
            "set tracking-table-max-keys to 1000000, the default",
        ));
    }
    Some(Diagnostic::good(PUSHES_ID, "notifications are not cut off by small limits"))
}

/// Whether the server closes idle connections.
fn timeout(report: &ServerReport) -> Option<Diagnostic> {
    let seconds = report.setting("timeout")?.parse::<u64>().ok()?;
    if (1..MIN_TIMEOUT).contains(&seconds) {
        return Some(Diagnostic::new(
            TIMEOUT_ID,
            Severity::Warning,
            format!("it closes idle connections after {seconds} s (timeout)"),
            "set timeout to 0 or to some minutes: otherwise connections break between two renewals",
        ));
    }
    let found = match seconds {
        0 => "it closes no idle connection (timeout 0)".to_owned(),
        _ => format!("it closes idle connections after {seconds} s (timeout)"),
    };
    Some(Diagnostic::good(TIMEOUT_ID, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ids of the warnings.
    fn warnings(changes: &[(&str, &str)]) -> Vec<&'static str> {
        let found = judge(&ServerReport::example(changes));
        assert_eq!(found.len(), 3, "{found:?}");
        found.into_iter().filter(|found| found.severity == Severity::Warning).map(|found| found.id).collect()
    }

    #[test]
    fn limits_that_break_connections_are_reported() {
        assert_eq!(warnings(&[]), [""; 0]);
        for (changes, id) in [
            (&[("maxclients", "3")][..], CLIENTS_ID),
            (&[("rejected_connections", "1")], CLIENTS_ID),
            (&[("client-output-buffer-limit", "normal 0 0 0 pubsub 65536 0 0")], PUSHES_ID),
            (&[("client-output-buffer-limit", "normal 0 0 0 pubsub 33554432 1024 60")], PUSHES_ID),
            (&[("tracking-table-max-keys", "10")], PUSHES_ID),
            (&[("timeout", "20")], TIMEOUT_ID),
        ] {
            assert_eq!(warnings(changes), [id], "{changes:?}");
        }
        let unlimited = ("client-output-buffer-limit", "normal 1 1 1 slave 1 1 1 pubsub 0 0 0");
        assert_eq!(warnings(&[unlimited, ("tracking-table-max-keys", "0"), ("timeout", "300")]), [""; 0]);
    }
}
