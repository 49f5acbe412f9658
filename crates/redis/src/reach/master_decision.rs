//! Decides which server is the master, from the reports of Sentinels. Pure functions, without clock or I/O.

use std::time::Duration;

use leasehold_core::{Endpoint, EngineError, Fault};

/// The report of one Sentinel about the group.
#[derive(Debug)]
pub(crate) enum SentinelReport {
    /// The Sentinel was not asked yet.
    NotAsked,
    /// The master. A Sentinel that has promoted a server names that server at once in `GET-MASTER-ADDR-BY-NAME`, but
    /// `MASTER` still reports the old details of the group, except for the epoch. So the address is from
    /// `GET-MASTER-ADDR-BY-NAME`, and the rest from `MASTER`.
    Named(NamedMaster),
    /// The Sentinel does not know the group; it knows these groups.
    UnknownGroup(Vec<String>),
    /// The Sentinel does not answer, or its answer cannot be read.
    Failed(EngineError),
}

/// The master that a Sentinel names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedMaster {
    pub(crate) endpoint: Endpoint,
    /// Grows with each fail-over to which a majority of all Sentinels agreed.
    pub(crate) epoch: u64,
    /// How many Sentinels the reporting Sentinel knows, including itself.
    pub(crate) sentinels: u32,
    /// How long a server must be silent before the Sentinel regards it as down.
    pub(crate) down_after: Duration,
}

/// Which server is the master, as far as the reports show.
#[derive(Debug)]
pub(crate) enum MasterDecision {
    /// A majority of those Sentinels of the URL that know the group names this server.
    Master(NamedMaster),
    /// A majority names the first server, but another Sentinel names the second one, with the epoch of a later
    /// fail-over.
    Disputed(NamedMaster, Endpoint),
    /// There is no majority yet: some Sentinels have not reported.
    Undecided,
    /// There is no master.
    NoMaster(EngineError),
}

/// The endpoint of one Sentinel, and its report.
pub(crate) type SentinelAnswer<'a> = (&'a Endpoint, &'a SentinelReport);

/// Decides which server is the master of the group of this name.
pub(crate) fn decide_master(answers: &[SentinelAnswer<'_>], group: &str) -> MasterDecision {
    let unknowing_sentinels =
        answers.iter().filter(|(_, report)| matches!(report, SentinelReport::UnknownGroup(_))).count();
    if unknowing_sentinels * 2 > answers.len() {
        return MasterDecision::NoMaster(unknown_group_error(answers, group));
    }
    let majority = (answers.len() - unknowing_sentinels) / 2 + 1;
    let named_masters =
        || {
            answers.iter().filter_map(|(_, report)| {
                if let SentinelReport::Named(named) = report { Some(named) } else { None }
            })
        };
    let votes = |endpoint: &Endpoint| named_masters().filter(|named| named.endpoint == *endpoint).count();
    if let Some(elected) =
        named_masters().filter(|named| votes(&named.endpoint) >= majority).max_by_key(|named| named.epoch)
    {
        let later_named =
            named_masters().find(|other| other.endpoint != elected.endpoint && other.epoch > elected.epoch);
        return match later_named {
            Some(later) => MasterDecision::Disputed(elected.clone(), later.endpoint.clone()),
            None => MasterDecision::Master(elected.clone()),
        };
    }
    if answers.iter().any(|(_, report)| matches!(report, SentinelReport::NotAsked)) {
        return MasterDecision::Undecided;
    }
    MasterDecision::NoMaster(no_majority_error(answers, group, answers.len() - majority))
}

/// Whether any report names another server than `followed`, with a later epoch than every report that names `followed`;
/// false if no report names `followed`. One such Sentinel is enough to doubt the server that the client follows, but
/// not enough to follow the other server.
pub(crate) fn contradicts(answers: &[SentinelAnswer<'_>], followed: &Endpoint) -> bool {
    let newest_epoch = |is_followed: bool| {
        let epochs = answers.iter().filter_map(move |(_, report)| match report {
            SentinelReport::Named(named) if (named.endpoint == *followed) == is_followed => Some(named.epoch),
            _ => None,
        });
        epochs.max()
    };
    matches!((newest_epoch(false), newest_epoch(true)), (Some(other), Some(followed)) if other > followed)
}

/// The error if most Sentinels do not know the group.
fn unknown_group_error(answers: &[SentinelAnswer<'_>], group: &str) -> EngineError {
    let mut known_groups: Vec<&str> = answers
        .iter()
        .flat_map(
            |(_, report)| if let SentinelReport::UnknownGroup(groups) = report { &groups[..] } else { &[] },
        )
        .map(String::as_str)
        .collect();
    known_groups.sort_unstable();
    known_groups.dedup();
    let known_groups =
        if known_groups.is_empty() { "none that they report".to_owned() } else { known_groups.join(", ") };
    EngineError::new(
        Fault::Misconfigured,
        format!("the Sentinels know no master {group:?}: they know {known_groups}"),
    )
}

/// The error if no majority of the Sentinels names one master. If more than `spare` Sentinels refuse the login or are
/// not Sentinels, the error of one of these is returned, because waiting does not help. `spare` is the number of
/// Sentinels that are not needed for a majority.
fn no_majority_error(answers: &[SentinelAnswer<'_>], group: &str, spare: usize) -> EngineError {
    let errors = || {
        answers.iter().filter_map(
            |(_, report)| if let SentinelReport::Failed(error) = report { Some(error) } else { None },
        )
    };
    let permanent: Vec<_> =
        errors().filter(|error| matches!(error.fault, Fault::Denied | Fault::Misconfigured)).collect();
    if permanent.len() > spare {
        return permanent[0].without_source();
    }
    let describe = |(endpoint, report): &SentinelAnswer<'_>| match report {
        SentinelReport::Named(named) => format!("{endpoint} names {}", named.endpoint),
        SentinelReport::UnknownGroup(_) => format!("{endpoint} does not know it"),
        SentinelReport::NotAsked => format!("{endpoint} was not asked"),
        SentinelReport::Failed(error) => error.message.clone(),
    };
    let reports: Vec<_> = answers.iter().map(describe).collect();
    let message = format!("no majority of the Sentinels names one master {group:?}: {}", reports.join("; "));
    EngineError::new(Fault::Retry, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(host: &str) -> Endpoint {
        Endpoint { host: host.to_owned(), port: 1 }
    }

    /// `a5`: names the server a, in epoch 5. `?x`: knows only the group x. `-`: cannot be reached. `!`: refuses the
    /// login. `.`: was not asked.
    fn report(code: &str) -> SentinelReport {
        let error = |fault, message: &str| SentinelReport::Failed(EngineError::new(fault, message));
        match code.split_at(1) {
            ("?", known) => SentinelReport::UnknownGroup(vec![known.to_owned()]),
            ("-", _) => error(Fault::Retry, "cannot connect"),
            ("!", _) => error(Fault::Denied, "wants a password"),
            (".", _) => SentinelReport::NotAsked,
            (host, epoch) => SentinelReport::Named(NamedMaster {
                endpoint: endpoint(host),
                epoch: epoch.parse().unwrap(),
                sentinels: 3,
                down_after: Duration::from_secs(30),
            }),
        }
    }

    fn decision(codes: &str) -> String {
        let reports: Vec<_> = codes.split(' ').map(|code| (endpoint(code), report(code))).collect();
        let answers: Vec<_> = reports.iter().map(|(endpoint, report)| (endpoint, report)).collect();
        match decide_master(&answers, "mymaster") {
            MasterDecision::Master(named) => named.endpoint.host,
            MasterDecision::Disputed(named, other) => format!("{} or {}", named.endpoint.host, other.host),
            MasterDecision::Undecided => "undecided".to_owned(),
            MasterDecision::NoMaster(error) => format!("{:?}: {}", error.fault, error.message),
        }
    }

    #[test]
    fn a_majority_names_the_master_in_any_order() {
        for (codes, expected) in [
            ("a1", "a"),
            ("a1 a1 a1", "a"),
            // One Sentinel still names the old master.
            ("b2 b2 a1", "b"),
            ("b2 a1 b2", "b"),
            ("a1 b2 b2", "b"),
            ("a1 b2 .", "undecided"),
            ("b2 b2 .", "b"),
            ("b2 b2 -", "b"),
            ("b2 b2 !", "b"),
            // The Sentinel that leads the fail-over has the new epoch while it still names the old master; the others
            // learn of the new epoch later.
            ("a2 a1 a1", "a"),
            ("b2 a1 a1", "a or b"),
            ("b2 b2 a2", "b"),
            // Epochs restart where the group was removed and added again.
            ("b0 b0 a7", "b or a"),
            // A Sentinel that does not know the group does not count; a Sentinel that cannot be reached counts toward
            // the number of which a majority is needed.
            ("a1 a1 ?x", "a"),
            (
                "b2 ?x -",
                "Retry: no majority of the Sentinels names one master \"mymaster\": b2:1 names b:1; ?x:1 does not know it; cannot connect",
            ),
            ("a1 . .", "undecided"),
        ] {
            assert_eq!(decision(codes), expected, "{codes}");
        }
    }

    #[test]
    fn a_missing_majority_is_reported_with_its_reason() {
        assert_eq!(
            decision("?y ?x ?x"),
            "Misconfigured: the Sentinels know no master \"mymaster\": they know x, y"
        );
        assert!(decision("?x ?x a1").starts_with("Misconfigured"));
        assert!(decision("- - -").starts_with("Retry"));
        assert!(decision("a1 b2 c3").starts_with("Retry"));
        assert_eq!(decision("! ! a1"), "Denied: wants a password");
        assert!(decision("- ! a1").starts_with("Retry"), "one of them will be there again");
    }

    #[test]
    fn one_report_of_a_later_fail_over_contradicts() {
        for (codes, followed, doubted) in [
            ("a1 a1 a1", "a", false),
            ("b2 a1 a1", "a", true),
            ("b1 a1 a1", "a", false),
            ("b2 b2 a1", "b", false),
            ("- - -", "a", false),
            ("b2 - -", "a", false),
        ] {
            let reports: Vec<_> = codes.split(' ').map(|code| (endpoint(code), report(code))).collect();
            let answers: Vec<_> = reports.iter().map(|(endpoint, report)| (endpoint, report)).collect();
            assert_eq!(contradicts(&answers, &endpoint(followed)), doubted, "{codes}");
        }
    }
}
