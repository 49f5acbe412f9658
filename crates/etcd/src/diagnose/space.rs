//! The size of the database of a member against its limit.

use leasehold_core::{Diagnostic, Severity};

use super::report::MemberReport;

const ID: &str = "etcd-space";

/// From this share of the limit on, the database counts as nearly full, in percent.
const NEARLY_FULL: u64 = 80;
/// The limit of etcd, unless it is configured.
const DEFAULT_QUOTA: u64 = 2 << 30;
/// Less unused room than this, in percent of the file, does not make a defragmentation worth while.
const MUCH_UNUSED: u64 = 50;

pub(super) fn judge(report: &MemberReport) -> Option<Diagnostic> {
    let status = report.status.as_ref()?;
    let size = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    let (file, used) = (size(status.db_size), size(status.db_size_in_use));
    let reported = Some(size(status.db_size_quota)).filter(|quota| *quota > 0);
    let quota = reported.or_else(|| report.metrics.as_ref()?.quota);
    let (limit, about_limit) = match quota {
        Some(quota) => (quota, ""),
        None => (DEFAULT_QUOTA, ", if the limit is the default"),
    };
    // A small limit of a trial would be 0 MiB.
    let (shift, unit) = if limit < 2 << 20 { (10, "KiB") } else { (20, "MiB") };
    let found = format!("the database has {} of {} {unit}{about_limit}", file >> shift, limit >> shift);
    if file.saturating_mul(100) < limit.saturating_mul(NEARLY_FULL) {
        return Some(Diagnostic::good(ID, found));
    }
    let is_mostly_unused = used.saturating_mul(100) < file.saturating_mul(MUCH_UNUSED);
    let advice = if is_mostly_unused {
        "run etcdctl defrag, one member after another: most of the file is unused"
    } else {
        "let etcd compact (--auto-compaction-retention=1h), or raise --quota-backend-bytes"
    };
    Some(Diagnostic::new(ID, Severity::Warning, found + ": a full one refuses new locks", advice))
}

#[cfg(test)]
mod tests {
    use super::{super::metrics::Metrics, *};

    #[test]
    fn a_database_that_is_nearly_full_is_reported() {
        let judged = |file: i64, used: i64, quota: i64, of_metrics: Option<u64>| {
            let mut report = MemberReport::example(|status| {
                (status.db_size, status.db_size_in_use, status.db_size_quota) =
                    (file << 20, used << 20, quota << 20);
            });
            report.metrics =
                of_metrics.map(|quota| Metrics { quota: Some(quota << 20), ..Metrics::default() });
            judge(&report).unwrap()
        };
        assert_eq!(judged(70, 70, 100, None).severity, Severity::Good);
        assert!(judged(70, 70, 100, None).found.contains("70 of 100 MiB"));
        assert!(judged(1, 1, 1, None).found.contains("1024 of 1024 KiB"));
        let full = judged(85, 80, 100, Some(1000));
        assert!(full.severity == Severity::Warning && full.advice.contains("compact"), "{full:?}");
        assert!(judged(85, 20, 100, None).advice.contains("defrag"));
        assert_eq!(judged(85, 80, 0, Some(100)).severity, Severity::Warning);
        assert_eq!(judged(85, 80, 0, Some(1000)).severity, Severity::Good);
        let guessed = judged(1700, 1700, 0, None);
        assert!(
            guessed.severity == Severity::Warning && guessed.found.contains("is the default"),
            "{guessed:?}"
        );
    }
}
