//! Whether the server can write its data to disk. The guarantee reports settings that lose acknowledged writes.

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;
use crate::identity::ServerKind;

const ID: &str = "redis-persistence";

/// Failed writes, or that everything acknowledged is on disk.
pub(super) fn judge(report: &ServerReport, kind: ServerKind) -> Option<Diagnostic> {
    let disk = "look at the disk of the server and at its log";
    if report.info("aof_last_write_status") == "err" {
        let found = "the last write to the append-only file failed, and the server refuses writes";
        return Some(Diagnostic::new(ID, Severity::Broken, found, disk));
    }
    if report.info("rdb_last_bgsave_status") == "err" {
        // With these two settings a failed snapshot makes the server refuse writes.
        let saves = report.setting("save").map(|save| !save.is_empty());
        let stops = report.setting("stop-writes-on-bgsave-error").map(|stops| stops == "yes");
        let (severity, effect) = match (saves, stops) {
            (Some(true), Some(true)) => (Severity::Broken, ", and the server refuses writes (MISCONF)"),
            (Some(false), _) | (_, Some(false)) => (Severity::Warning, ""),
            _ => (Severity::Warning, ", and the server may refuse writes (MISCONF)"),
        };
        return Some(Diagnostic::new(ID, severity, format!("the last snapshot failed{effect}"), disk));
    }
    if report.info("aof_last_bgrewrite_status") == "err" {
        let found =
            "the last rewrite of the append-only file failed, so the file grows until the disk is full";
        return Some(Diagnostic::new(ID, Severity::Warning, found, disk));
    }
    let is_durable = report.info("aof_enabled") == "1"
        && report.setting("appendfsync") == Some("always")
        && report.setting("no-appendfsync-on-rewrite") == Some("no");
    if kind == ServerKind::RedlockNode {
        // A node that may have forgotten its data has no vote, so persistence does not matter.
        return None;
    }
    let found = "every acknowledged write is on disk (appendonly yes, appendfsync always)";
    is_durable.then(|| Diagnostic::good(ID, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severity(changes: &[(&str, &str)]) -> Option<Severity> {
        judge(&ServerReport::example(changes), ServerKind::Single).map(|found| found.severity)
    }

    #[test]
    fn failed_writes_are_reported() {
        assert_eq!(severity(&[]), Some(Severity::Good));
        assert_eq!(severity(&[("aof_last_write_status", "err")]), Some(Severity::Broken));
        let failed = ("rdb_last_bgsave_status", "err");
        assert_eq!(severity(&[failed]), Some(Severity::Warning), "no snapshots are wanted");
        assert_eq!(severity(&[failed, ("save", "3600 1")]), Some(Severity::Broken));
        let goes_on = ("stop-writes-on-bgsave-error", "no");
        assert_eq!(severity(&[failed, ("save", "3600 1"), goes_on]), Some(Severity::Warning));
        assert_eq!(severity(&[("aof_last_bgrewrite_status", "err")]), Some(Severity::Warning));
    }

    #[test]
    fn only_a_durable_server_is_good() {
        for change in
            [("appendfsync", "everysec"), ("no-appendfsync-on-rewrite", "yes"), ("aof_enabled", "0")]
        {
            assert_eq!(severity(&[change]), None, "the guarantee reports {change:?}");
        }
    }
}
