//! The guarantee of the cluster in its present state.

use leasehold_core::{EngineError, Fault, Guarantee, Level};

use crate::{
    client::Client,
    wire::{Members, Status, StatusResponse},
};

/// The oldest supported version: it has watches with client-chosen ids, and conditions on ranges and leases.
const MIN_VERSION: (u32, u32) = (3, 4);

/// What the cluster reports about itself.
struct ClusterReport {
    version: String,
    alarms: Vec<String>,
    /// The number of voting members; `None` if the user has no right to read it.
    voters: Option<usize>,
}

/// Asks the cluster for its state and judges it.
pub(crate) async fn examine(client: &Client) -> Result<Guarantee, EngineError> {
    let status = match client.ask(Status {}).await {
        Ok((_, status)) => status,
        Err(error) if error.fault == Fault::Denied => StatusResponse::default(),
        Err(error) => return Err(error),
    };
    let members = client.ask(Members {}).await.ok();
    let voters = members.map(|(_, reply)| reply.members.iter().filter(|member| !member.is_learner).count());
    Ok(judge(&ClusterReport { version: status.version, alarms: status.errors, voters }))
}

/// Whether the engine supports this version. An unreadable version counts as supported.
pub(crate) fn is_supported(version: &str) -> bool {
    parse_version(version).is_none_or(|(major, minor, _)| (major, minor) >= MIN_VERSION)
}

/// The guarantee of a cluster with this report.
fn judge(report: &ClusterReport) -> Guarantee {
    let mut guarantee = Guarantee::new(
        Level::LeaseBounded,
        &["a hold ends with its lease: only a fence that checks the token stops later writes"],
    );
    guarantee.note(format!(
        "etcd {}: tokens are create revisions, which grow for ever unless an older snapshot is restored",
        if report.version.is_empty() { "of unknown version" } else { &report.version }
    ));
    if report.version.is_empty() {
        // Every release that refuses the status is newer than all releases with the bugs below.
        guarantee.note("the user may not ask for the status: whether there are alarms is not known");
    }
    if let Some(version) = parse_version(&report.version) {
        for bug in BUGS.iter().filter(|bug| bug.is_in(version) && bug.members.include(report.voters)) {
            let (major, minor) = bug.series;
            let risk = format!("{} (etcd pull request {})", bug.risk, bug.pull_request);
            guarantee.lower(
                "the version",
                &report.version,
                &format!("{major}.{minor}.{} or newer", bug.fixed_in_patch),
                &risk,
            );
        }
    }
    match report.voters {
        None => guarantee.note("the user may not list the members: how many copies there are is not known"),
        Some(1) => guarantee
            .note("one member: while it is down no client gets a lock, and its disk is the only copy"),
        Some(2) => guarantee.note("two members: both have to be up, which is less safe than one"),
        Some(_) => {}
    }
    for alarm in &report.alarms {
        if alarm.contains("CORRUPT") {
            guarantee.lower("the alarm", alarm, "none", "the members disagree on what is stored");
        } else {
            guarantee.note(format!("the cluster has an alarm: {alarm}"));
        }
    }
    guarantee
}

/// A bug by which two clients can hold one lock at the same time. The releases of one minor version have the bug, up to
/// the patch release that fixes it.
struct Bug {
    /// Major and minor.
    series: (u32, u32),
    /// The first patch release without the bug.
    fixed_in_patch: u32,
    /// The pull request that fixed the bug.
    pull_request: u32,
    /// The sizes of clusters in which the bug matters.
    members: Clusters,
    risk: &'static str,
}

/// Clusters by their number of voting members.
#[derive(Clone, Copy)]
enum Clusters {
    Any,
    One,
    Several,
}

impl Clusters {
    fn include(self, voters: Option<usize>) -> bool {
        match (self, voters) {
            (Self::Any, _) | (_, None) => true,
            (Self::One, Some(voters)) => voters == 1,
            (Self::Several, Some(voters)) => voters > 1,
        }
    }
}

impl Bug {
    fn is_in(&self, (major, minor, patch): (u32, u32, u32)) -> bool {
        (major, minor) == self.series && patch < self.fixed_in_patch
    }
}

/// The risks of the bugs below.
const OLD_LEADER: &str = "a leader that was stopped or slow may end leases that the next one keeps alive, \
    so that a lock may be free before its holder's deadline";
const NOT_DURABLE: &str = "a crash of the only member may lose what it acknowledged";
const INCONSISTENT: &str = "members may have different data after a crash";

/// The known bugs, from etcd's change logs: <https://github.com/etcd-io/etcd/tree/main/CHANGELOG>.
const BUGS: &[Bug] = &[
    Bug {
        series: (3, 4),
        fixed_in_patch: 31,
        pull_request: 17465,
        members: Clusters::Several,
        risk: OLD_LEADER,
    },
    Bug {
        series: (3, 5),
        fixed_in_patch: 13,
        pull_request: 17425,
        members: Clusters::Several,
        risk: OLD_LEADER,
    },
    Bug {
        series: (3, 4),
        fixed_in_patch: 21,
        pull_request: 14423,
        members: Clusters::One,
        risk: NOT_DURABLE,
    },
    Bug { series: (3, 5), fixed_in_patch: 5, pull_request: 14424, members: Clusters::One, risk: NOT_DURABLE },
    Bug {
        series: (3, 5),
        fixed_in_patch: 3,
        pull_request: 13908,
        members: Clusters::Any,
        risk: INCONSISTENT,
    },
];

/// The major, minor and patch version; `None` if the text is no version.
fn parse_version(version: &str) -> Option<(u32, u32, u32)> {
    let without_suffix = version.split(['-', '+']).next()?;
    let mut parts = without_suffix.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(version: &str, voters: Option<usize>) -> Level {
        judge(&ClusterReport { version: version.to_owned(), alarms: Vec::new(), voters }).level
    }

    #[test]
    fn versions_with_known_lock_bugs_are_named() {
        assert_eq!(level("3.4.23", Some(1)), Level::LeaseBounded, "its bug needs another leader");
        assert_eq!(level("3.4.23", Some(3)), Level::BestEffort);
        assert_eq!(level("3.4.23", None), Level::BestEffort, "the number of members is unknown");
        assert_eq!(level("3.4.31", Some(3)), Level::LeaseBounded);
        assert_eq!(level("3.5.12", Some(5)), Level::BestEffort);
        assert_eq!(level("3.5.13", Some(5)), Level::LeaseBounded);
        assert_eq!(level("3.4.20", Some(1)), Level::BestEffort);
        assert_eq!(level("3.5.2-rc.1", Some(3)), Level::BestEffort);
        assert_eq!(level("3.6.0", Some(3)), Level::LeaseBounded);
        let corrupt =
            ClusterReport { version: "3.6.0".into(), alarms: vec!["CORRUPT".into()], voters: Some(3) };
        assert_eq!(judge(&corrupt).level, Level::BestEffort);
    }

    #[test]
    fn a_version_that_is_too_old_is_not_used() {
        assert!(
            !is_supported("3.3.27") && is_supported("3.4.0") && is_supported("4.0.0") && is_supported("odd")
        );
    }
}
