//! What this user may not look at.

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;

const ID: &str = "redis-rights";

/// The commands that are asked, what each tells, and the right to it.
const COMMANDS: [(&str, &str, &str); 4] = [
    ("INFO", "persistence, memory, replicas and clients", "+info"),
    ("CONFIG", "settings", "+config|get"),
    ("CLUSTER", "the state of the cluster", "+cluster|info"),
    ("SLOWLOG", "slow commands", "+slowlog|get"),
];

/// The diagnostic about the commands that the server refused.
pub(super) fn judge(report: &ServerReport) -> Option<Diagnostic> {
    let is_missing = |command: &&(&str, &str, &str)| {
        report.refused.contains(&command.0) && !(command.0 == "SLOWLOG" && has_latencies(report))
    };
    let missing: Vec<_> = COMMANDS.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return Some(Diagnostic::good(ID, "the user may read the state and the settings of the server"));
    }
    let unknown: Vec<_> =
        missing.iter().map(|&&(command, about, _)| format!("{about} ({command})")).collect();
    let grants: Vec<_> = missing.iter().map(|command| command.2).collect();
    let user = report.user.as_deref().unwrap_or("NAME");
    // Services hide settings from every user, so a grant does not help.
    let advice = if report.info("os").contains("Amazon") {
        "the service hides them: look at its console, or take the level best effort for granted".to_owned()
    } else {
        format!(
            "run ACL SETUSER {user} {}, or name the user leasehold-operator of redis.acl",
            grants.join(" ")
        )
    };
    let found = format!("this user may not look at {}", unknown.join(", "));
    Some(Diagnostic::new(ID, Severity::Unknown, found, advice))
}

/// Whether `INFO` has the latencies of commands, which tell of slow commands too (Redis 7.0).
fn has_latencies(report: &ServerReport) -> bool {
    report.info.keys().any(|field| field.starts_with(super::slow::LATENCY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_command_names_its_grant() {
        let mut report = ServerReport::example(&[]);
        assert_eq!(judge(&report).unwrap().severity, Severity::Good);
        report.refused = vec!["CONFIG", "SLOWLOG"];
        let found = judge(&report).unwrap();
        assert_eq!(found.severity, Severity::Unknown);
        assert!(found.found.contains("settings (CONFIG), slow commands (SLOWLOG)"), "{found:?}");
        assert!(found.advice.contains("ACL SETUSER default +config|get +slowlog|get,"), "{found:?}");
        report.info.insert("latency_percentiles_usec_get".to_owned(), "p50=1".to_owned());
        assert!(!judge(&report).unwrap().found.contains("SLOWLOG"));
        report.refused = vec!["SLOWLOG"];
        assert_eq!(judge(&report).unwrap().severity, Severity::Good, "INFO tells of slow commands");
        report.refused = vec!["CONFIG"];
        report.info.insert("os".to_owned(), "Amazon ElastiCache".to_owned());
        assert!(judge(&report).unwrap().advice.contains("console"));
    }
}
