//! Whether a member writes its log to disk before it answers, and how long that takes, by its metrics.

use leasehold_core::{Diagnostic, Severity};

use super::{metrics::Metrics, report::MemberReport};

const FSYNC_ID: &str = "etcd-fsync";
const DISK_ID: &str = "etcd-disk";

/// A member that has written its database less often than this says nothing about its log.
const MIN_COMMITS: u64 = 20;
/// A member syncs its log before each change that it later writes to its database, so it has at least as many syncs as
/// writes of the database. With `--unsafe-no-fsync` it syncs only new files of the log. The factor leaves room for a
/// compaction, which writes the database without an entry of the log.
const MAX_COMMITS_PER_SYNC: u64 = 10;
/// The limit for the duration of 99 of 100 syncs, in seconds: etcd recommends 10 ms, and this is the next limit that
/// its metrics have.
const MAX_SYNC_SECONDS: f64 = 0.016;
/// The fewest syncs that are judged: the first ones after a start are slow.
const MIN_SYNCS: u64 = 200;

pub(super) fn judge(report: &MemberReport) -> Vec<Diagnostic> {
    let Some(metrics) = &report.metrics else { return Vec::new() };
    [fsync(metrics), duration(metrics)].into_iter().flatten().collect()
}

/// Whether the log is synced.
fn fsync(metrics: &Metrics) -> Option<Diagnostic> {
    let (syncs, commits) = (metrics.log_syncs?, metrics.database_commits?);
    if commits < MIN_COMMITS {
        return None;
    }
    if syncs.saturating_mul(MAX_COMMITS_PER_SYNC) < commits {
        return Some(Diagnostic::new(
            FSYNC_ID,
            Severity::Warning,
            format!(
                "it has written its database {commits} times and synced its log {syncs} times, as with \
                    --unsafe-no-fsync: a power cut loses locks that were granted, and two may hold one"
            ),
            "start the member without --unsafe-no-fsync",
        ));
    }
    Some(Diagnostic::good(FSYNC_ID, "it writes its log to disk before it answers"))
}

/// How long the syncs take.
fn duration(metrics: &Metrics) -> Option<Diagnostic> {
    let syncs = metrics.log_syncs.filter(|&syncs| syncs >= MIN_SYNCS)?;
    let in_time = metrics.log_syncs_within.iter().filter(|(limit, _)| *limit <= MAX_SYNC_SECONDS);
    let in_time = in_time.map(|(_, count)| *count).max()?;
    let late = syncs.saturating_sub(in_time);
    if late.saturating_mul(100) < syncs {
        return Some(Diagnostic::good(DISK_ID, "99 of 100 writes of its log took less than 16 ms"));
    }
    Some(Diagnostic::new(
        DISK_ID,
        Severity::Warning,
        format!(
            "{late} of {syncs} writes of its log took longer than 16 ms: grants wait, and leaders change"
        ),
        "give the member a faster disk, or one of its own",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(syncs: u64, within: u64, commits: u64) -> MemberReport {
        let metrics = Metrics {
            log_syncs: Some(syncs),
            log_syncs_within: vec![(0.008, within / 2), (0.016, within), (0.032, syncs)],
            database_commits: Some(commits),
            quota: None,
        };
        MemberReport { metrics: Some(metrics), ..MemberReport::example(|_| ()) }
    }

    #[test]
    fn a_member_without_syncs_is_reported() {
        let judged =
            |syncs, commits| judge(&metrics(syncs, syncs, commits)).first().map(|found| found.severity);
        assert_eq!(judged(2, 19), None, "too few to tell");
        assert_eq!(judged(2, 21), Some(Severity::Warning));
        assert_eq!(judged(3, 21), Some(Severity::Good));
        assert!(judge(&MemberReport::example(|_| ())).is_empty(), "without metrics nothing is told");
    }

    #[test]
    fn a_slow_disk_is_reported() {
        let judged = |syncs, within| judge(&metrics(syncs, within, 0)).first().map(|found| found.severity);
        assert_eq!(judged(199, 0), None);
        assert_eq!(judged(1000, 995), Some(Severity::Good));
        assert_eq!(judged(1000, 990), Some(Severity::Warning));
    }
}
