//! The version of the server.

use std::collections::BTreeSet;

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;

const ID: &str = "redis-version";

/// The version. The guarantee reports one that is too old.
pub(super) fn judge(report: &ServerReport) -> Option<Diagnostic> {
    let uptime = match report.number("uptime_in_seconds")? {
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    };
    Some(Diagnostic::good(ID, format!("{}, up for {uptime}", version(report))))
}

/// A warning if the servers have different versions.
pub(crate) fn judge_between(reports: &[(String, ServerReport)]) -> Option<Diagnostic> {
    let known = reports.iter().filter(|(_, report)| !report.info.is_empty());
    let versions: BTreeSet<String> = known.map(|(_, report)| version(report)).collect();
    (versions.len() > 1).then(|| {
        let versions: Vec<_> = versions.into_iter().collect();
        Diagnostic::new(
            ID,
            Severity::Warning,
            format!("the servers have different versions: {}", versions.join(", ")),
            "finish the upgrade: a promise that needs the newer version is not given by the older server",
        )
    })
}

/// The name and the version of the server. Valkey also reports the version of Redis that it is compatible with.
fn version(report: &ServerReport) -> String {
    match report.info("valkey_version") {
        "" => format!("Redis {}", report.info("redis_version")),
        version => format!("Valkey {version}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_versions_are_reported() {
        let report = |changes: &[(&str, &str)]| ("a".to_owned(), ServerReport::example(changes));
        assert_eq!(judge(&report(&[]).1).unwrap().found, "Redis 7.0.15, up for 25 h");
        assert_eq!(judge_between(&[report(&[]), report(&[])]), None);
        let valkey = [("valkey_version", "9.1.2"), ("redis_version", "7.2.4")];
        let found = judge_between(&[report(&[]), report(&valkey)]).unwrap();
        assert!(found.found.ends_with(": Redis 7.0.15, Valkey 9.1.2"), "{found:?}");
    }
}
