//! One member: its version, its role, its leader, its alarms, and whether it keeps up with the log.

use leasehold_core::{Diagnostic, Severity};

use super::{MEMBER_ID, report::MemberReport};
use crate::wire::StatusResponse;

const ALARMS_ID: &str = "etcd-alarms";
const RAFT_ID: &str = "etcd-raft";

/// How many entries of the log a member may have without having applied them. From this number on etcd itself refuses
/// requests ("too many requests").
const MAX_UNAPPLIED: u64 = 5000;

pub(super) fn judge(report: &MemberReport) -> Vec<Diagnostic> {
    let Some(status) = &report.status else { return Vec::new() };
    vec![role(status, report.id()), alarms(status), applied(status)]
}

/// The version and the role.
fn role(status: &StatusResponse, id: Option<u64>) -> Diagnostic {
    let version = &status.version;
    if status.leader == 0 {
        let found = format!("etcd {version}, without a leader: it serves no locks");
        let advice = "start the other members: a majority of them elects a leader";
        return Diagnostic::new(MEMBER_ID, Severity::Broken, found, advice);
    }
    if status.is_learner {
        let found = format!("etcd {version}, a learner: it does not vote and serves no clients");
        let advice = "promote it (etcdctl member promote), or leave it out of the URL";
        return Diagnostic::new(MEMBER_ID, Severity::Warning, found, advice);
    }
    let role = if Some(status.leader) == id { "the leader" } else { "a follower" };
    Diagnostic::good(MEMBER_ID, format!("etcd {version}, {role}"))
}

/// The alarms of the cluster.
fn alarms(status: &StatusResponse) -> Diagnostic {
    let has = |name: &str| status.errors.iter().any(|alarm| alarm.contains(name));
    if has("NOSPACE") {
        return Diagnostic::new(
            ALARMS_ID,
            Severity::Broken,
            "the alarm NOSPACE is on: the database is full, and the cluster refuses new locks",
            "compact and defragment the database or raise --quota-backend-bytes, then run etcdctl alarm disarm",
        );
    }
    if has("CORRUPT") {
        return Diagnostic::new(
            ALARMS_ID,
            Severity::Broken,
            "the alarm CORRUPT is on: the data of the members differ",
            "replace the member with the wrong data, then run etcdctl alarm disarm",
        );
    }
    match status.errors.first() {
        None => Diagnostic::good(ALARMS_ID, "the member reports no alarm"),
        Some(other) => Diagnostic::new(
            ALARMS_ID,
            Severity::Warning,
            format!("the member reports: {other}"),
            "look at the log of the member",
        ),
    }
}

/// Whether the member applies what it has received.
fn applied(status: &StatusResponse) -> Diagnostic {
    let unapplied = status.raft_index.saturating_sub(status.raft_applied_index);
    if unapplied < MAX_UNAPPLIED {
        return Diagnostic::good(RAFT_ID, format!("{unapplied} entries of its log are not applied yet"));
    }
    Diagnostic::new(
        RAFT_ID,
        Severity::Warning,
        format!("{unapplied} entries of its log are not applied yet: it refuses requests"),
        "look for a slow disk or large requests on this member",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn severities(change: impl FnOnce(&mut StatusResponse)) -> [Severity; 3] {
        let found = judge(&MemberReport::example(change));
        [0, 1, 2].map(|index: usize| found[index].severity)
    }

    #[test]
    fn a_member_that_is_unfit_is_reported() {
        use Severity::{Broken, Good, Warning};
        assert_eq!(severities(|_| ()), [Good; 3]);
        assert_eq!(severities(|status| status.leader = 0), [Broken, Good, Good]);
        assert_eq!(severities(|status| status.is_learner = true), [Warning, Good, Good]);
        for (alarm, severity) in [("NOSPACE", Broken), ("CORRUPT", Broken), ("other", Warning)] {
            let alarm = format!("memberID:7 alarm:{alarm} ");
            assert_eq!(severities(|status| status.errors.push(alarm))[1], severity);
        }
        assert_eq!(severities(|status| status.raft_index = 6000)[2], Warning);
    }

    #[test]
    fn the_role_is_told() {
        let found =
            |leader: u64| judge(&MemberReport::example(|status| status.leader = leader))[0].found.clone();
        assert_eq!(found(7), "etcd 3.5.21, the leader");
        assert_eq!(found(8), "etcd 3.5.21, a follower");
    }
}
