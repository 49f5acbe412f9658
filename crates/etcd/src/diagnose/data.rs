//! Whether all members have the same data, and whether old versions of keys are removed.

use futures_util::future::join_all;
use leasehold_core::{Diagnostic, Severity};

use super::Answered;
use crate::wire::{HashKv, HashKvResponse};

const DATA_ID: &str = "etcd-data";
const COMPACTION_ID: &str = "etcd-compaction";

/// A larger database is not compared: a member reads all of its data to make a hash.
const MAX_COMPARED_BYTES: i64 = 64 << 20;
/// A cluster without a compaction is reported from this revision on: each hold of a name makes a few.
const MAX_REVISIONS: i64 = 100_000;

/// Asks each member for a hash of its data at one revision.
pub(super) async fn judge(answered: &[Answered]) -> Vec<Diagnostic> {
    let statuses = || answered.iter().filter_map(|(_, report)| report.status.as_ref());
    let revisions = statuses().filter_map(|status| Some(status.header.as_ref()?.revision));
    let Some(revision) = revisions.min() else { return Vec::new() };
    if statuses().any(|status| status.db_size > MAX_COMPARED_BYTES) {
        return Vec::new();
    }
    let hashes = answered
        .iter()
        .map(async |(address, report)| Some((address.as_str(), report.ask(HashKv { revision }).await?)));
    let hashes: Vec<_> = join_all(hashes).await.into_iter().flatten().collect();
    compared(&hashes, revision).into_iter().chain(compacted(&hashes, revision)).collect()
}

/// Whether the hashes agree. They can be compared only after the same compaction.
fn compared(hashes: &[(&str, HashKvResponse)], revision: i64) -> Option<Diagnostic> {
    let (first, first_hash) = hashes.first()?;
    let mut others = hashes.iter().skip(1).peekable();
    others.peek()?;
    if hashes.iter().any(|(_, hash)| hash.compact_revision != first_hash.compact_revision) {
        return None;
    }
    match others.find(|(_, other)| other.hash != first_hash.hash) {
        Some((other, _)) => Some(Diagnostic::new(
            DATA_ID,
            Severity::Broken,
            format!("the data of {first} and {other} differ at revision {revision}: two may hold one lock"),
            "replace the member with the wrong data (etcdctl member remove, member add)",
        )),
        None => {
            let found = format!("{} members have the same data at revision {revision}", hashes.len());
            Some(Diagnostic::good(DATA_ID, found))
        }
    }
}

/// Whether the cluster was ever compacted.
fn compacted(hashes: &[(&str, HashKvResponse)], revision: i64) -> Option<Diagnostic> {
    let newest = hashes.iter().map(|(_, hash)| hash.compact_revision).max()?;
    if newest > 0 {
        return Some(Diagnostic::good(
            COMPACTION_ID,
            format!("the last compaction was at revision {newest}"),
        ));
    }
    if revision < MAX_REVISIONS {
        let found = format!("there was no compaction, and there are only {revision} revisions");
        return Some(Diagnostic::good(COMPACTION_ID, found));
    }
    Some(Diagnostic::new(
        COMPACTION_ID,
        Severity::Warning,
        format!("there was no compaction, and there are {revision} revisions: requests become slower"),
        "start the members with --auto-compaction-mode=periodic --auto-compaction-retention=1h",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(hash: u32, compact_revision: i64) -> (&'static str, HashKvResponse) {
        ("a:1", HashKvResponse { hash, compact_revision })
    }

    #[test]
    fn different_data_are_broken() {
        let judged = |hashes: &[_]| compared(hashes, 5).map(|found| found.severity);
        assert_eq!(judged(&[hash(1, -1)]), None, "one member has nothing to be compared with");
        assert_eq!(judged(&[hash(1, -1), hash(1, -1), hash(1, -1)]), Some(Severity::Good));
        assert_eq!(judged(&[hash(1, -1), hash(1, -1), hash(2, -1)]), Some(Severity::Broken));
        assert_eq!(judged(&[hash(1, 3), hash(2, 4)]), None, "a compaction is under way");
    }

    #[test]
    fn a_cluster_that_is_never_compacted_is_reported() {
        let judged = |compacted_at, revision| compacted(&[hash(1, compacted_at)], revision).unwrap().severity;
        assert_eq!(judged(-1, 99_999), Severity::Good);
        assert_eq!(judged(-1, 100_000), Severity::Warning);
        assert_eq!(judged(5, 100_000), Severity::Good);
    }
}
