//! The members together: their number, their versions, their leader, and how far each is behind.

use std::collections::BTreeSet;

use leasehold_core::{Diagnostic, Severity};

use super::Answered;
use crate::wire::StatusResponse;

const MEMBERS_ID: &str = "etcd-members";
const VERSION_ID: &str = "etcd-version";
const LEADER_ID: &str = "etcd-leader";
const LAG_ID: &str = "etcd-lag";

/// How many entries of the log a member may be behind the others: the members were asked at different moments, and a
/// cluster writes some thousand entries in a second at most.
const MAX_LAG: u64 = 10_000;

pub(super) fn judge(answered: &[Answered], in_url: usize) -> Vec<Diagnostic> {
    let statuses: Vec<(&str, &StatusResponse)> = answered
        .iter()
        .filter_map(|(address, report)| Some((address.as_str(), report.status.as_ref()?)))
        .collect();
    let all = [members(answered, in_url), versions(&statuses), leader(&statuses), lag(&statuses)];
    all.into_iter().flatten().collect()
}

/// How many members there are, and how many of them the URL names.
fn members(answered: &[Answered], in_url: usize) -> Option<Diagnostic> {
    let members = answered.iter().find_map(|(_, report)| report.members.as_ref())?;
    let voters = members.iter().filter(|member| !member.is_learner).count();
    if in_url < voters {
        return Some(Diagnostic::new(
            MEMBERS_ID,
            Severity::Warning,
            format!("the URL names {in_url} of {voters} members: while these are down, no lock can be taken"),
            "name all members in the URL",
        ));
    }
    if voters == 2 {
        let found = "there are two members, and both have to be up, which is less safe than one";
        return Some(Diagnostic::new(MEMBERS_ID, Severity::Warning, found, "add a third member"));
    }
    let may_fail = voters.saturating_sub(1) / 2;
    Some(Diagnostic::good(MEMBERS_ID, format!("members: {voters}, of which may fail: {may_fail}")))
}

/// Whether all members have one version. The guarantee reports versions with known bugs.
fn versions(statuses: &[(&str, &StatusResponse)]) -> Option<Diagnostic> {
    let versions: BTreeSet<&str> = statuses.iter().map(|(_, status)| status.version.as_str()).collect();
    let versions: Vec<&str> = versions.into_iter().collect();
    if versions.len() > 1 {
        let found = format!("the members have different versions: {}", versions.join(", "));
        let advice = "finish the upgrade: the guarantee is judged by the version of one member";
        return Some(Diagnostic::new(VERSION_ID, Severity::Warning, found, advice));
    }
    Some(Diagnostic::good(VERSION_ID, format!("all members that answered have etcd {}", versions.first()?)))
}

/// Whether all members have one leader.
fn leader(statuses: &[(&str, &StatusResponse)]) -> Option<Diagnostic> {
    let leaders: BTreeSet<u64> =
        statuses.iter().map(|(_, status)| status.leader).filter(|id| *id != 0).collect();
    if leaders.len() > 1 {
        let found = "the members report different leaders: an election is under way, or members are cut off";
        let advice = "look at the network between the members";
        return Some(Diagnostic::new(LEADER_ID, Severity::Warning, found, advice));
    }
    leaders.first().map(|leader| {
        Diagnostic::good(LEADER_ID, format!("all members that answered have the leader {leader:x}"))
    })
}

/// How far the members are behind the one with the newest entry.
fn lag(statuses: &[(&str, &StatusResponse)]) -> Option<Diagnostic> {
    let newest = statuses.iter().map(|(_, status)| status.raft_index).max()?;
    if statuses.len() < 2 {
        return None;
    }
    let behind = |status: &StatusResponse| newest.saturating_sub(status.raft_index);
    let lagging: Vec<String> = statuses
        .iter()
        .filter(|(_, status)| behind(status) > MAX_LAG)
        .map(|(address, status)| format!("{address} by {}", behind(status)))
        .collect();
    if lagging.is_empty() {
        return Some(Diagnostic::good(LAG_ID, "no member that answered is far behind"));
    }
    Some(Diagnostic::new(
        LAG_ID,
        Severity::Warning,
        format!("members are behind, in entries of the log: {}", lagging.join(", ")),
        "look at the network and the disk of these members",
    ))
}

#[cfg(test)]
mod tests {
    use super::{super::report::MemberReport, *};

    fn answered(change: impl FnOnce(&mut StatusResponse)) -> Answered {
        ("a:1".to_owned(), MemberReport::example(change))
    }

    /// The severity of the diagnostic with this id.
    fn of(id: &str, answered: &[Answered], in_url: usize) -> Option<Severity> {
        judge(answered, in_url).iter().find(|found| found.id == id).map(|found| found.severity)
    }

    #[test]
    fn members_that_differ_are_reported() {
        let one = || answered(|_| ());
        for (id, other) in [
            (VERSION_ID, answered(|status| status.version = "3.5.20".to_owned())),
            (LEADER_ID, answered(|status| status.leader = 8)),
            (LAG_ID, answered(|status| status.raft_index = 11_001)),
        ] {
            assert_eq!(of(id, &[one(), one()], 2), Some(Severity::Good), "{id}");
            assert_eq!(of(id, &[one(), other], 2), Some(Severity::Warning), "{id}");
        }
        assert_eq!(of(LEADER_ID, &[one(), answered(|status| status.leader = 0)], 2), Some(Severity::Good));
        assert_eq!(
            of(LAG_ID, &[one(), answered(|status| status.raft_index = 11_000)], 2),
            Some(Severity::Good)
        );
    }

    #[test]
    fn a_url_that_names_too_few_members_is_reported() {
        let of_count = |count: usize, in_url: usize| {
            let mut one = answered(|_| ());
            let member = one.1.members.as_ref().unwrap()[0].clone();
            one.1.members = Some(vec![member; count]);
            of(MEMBERS_ID, &[one], in_url).unwrap()
        };
        assert_eq!(of_count(1, 1), Severity::Good);
        assert_eq!(of_count(3, 3), Severity::Good);
        assert_eq!(of_count(3, 1), Severity::Warning);
        assert_eq!(of_count(2, 2), Severity::Warning);
    }
}
