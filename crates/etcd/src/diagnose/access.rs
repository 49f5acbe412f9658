//! Who can reach the members, what this user may not look at, and when the certificates expire.

use std::{net::IpAddr, time::Duration};

use leasehold_core::{Diagnostic, Endpoint, Severity};

use super::{Answered, report::MemberReport};
use crate::config::Config;

const USER_ID: &str = "etcd-user";
const RIGHTS_ID: &str = "etcd-rights";
const TLS_ID: &str = "etcd-tls";

/// Who else can use the cluster, and what this user may not look at.
pub(super) fn judge(answered: &[Answered], config: &Config) -> Vec<Diagnostic> {
    let user = config.login.as_ref().map(|(user, _)| user.as_str());
    if user.is_none() && answered.iter().any(|(_, report)| report.wants_user) {
        let found = "authentication is turned on, and the URL has no user";
        let advice = "write etcd://user:password@host, with a user of docs/engines/etcd-role.sh";
        return vec![Diagnostic::new(USER_ID, Severity::Broken, found, advice), rights(answered)];
    }
    vec![access(user, config.is_encrypted(), config.members.iter().all(is_loopback)), rights(answered)]
}

/// When the certificate of a member expires.
pub(super) fn judge_certificate(
    report: &MemberReport,
    is_encrypted: bool,
    now: Duration,
) -> Option<Diagnostic> {
    is_encrypted.then(|| leasehold_core::judge_certificate(TLS_ID, "member", report.certificate_end, now))
}

/// Who else can use the cluster.
fn access(user: Option<&str>, is_encrypted: bool, is_local: bool) -> Diagnostic {
    match (user, is_encrypted) {
        (Some(_), false) if !is_local => Diagnostic::new(
            USER_ID,
            Severity::Warning,
            "the connection is not encrypted: whoever reads along on the network sees the password",
            "write etcds:// in the URL, and set up TLS on the members",
        ),
        (Some(user), _) => Diagnostic::good(USER_ID, format!("logged in as {user}, with a password")),
        (None, true) => Diagnostic::good(USER_ID, "without a user, by TLS"),
        (None, false) => Diagnostic::new(
            USER_ID,
            Severity::Warning,
            "without a user: whoever reaches the cluster can take and delete locks",
            "turn on authentication, with the users of docs/engines/etcd-role.sh, or client certificates",
        ),
    }
}

/// What this user may not look at.
fn rights(answered: &[Answered]) -> Diagnostic {
    let is_refused =
        |is_missing: fn(&MemberReport) -> bool| answered.iter().any(|(_, report)| is_missing(report));
    let mut missing = Vec::new();
    if is_refused(|report| report.status.is_none()) {
        missing.push("the status of the members (alarms, space, versions)");
    }
    if is_refused(|report| report.members.is_none()) {
        missing.push("the list of the members");
    }
    if missing.is_empty() {
        return Diagnostic::good(RIGHTS_ID, "the user may read the status and the list of the members");
    }
    Diagnostic::new(
        RIGHTS_ID,
        Severity::Unknown,
        format!("this user may not look at {}", missing.join(" and ")),
        "run leasehold doctor as a user with the role root: newer releases of etcd tell only such a user",
    )
}

/// Whether the endpoint is on this machine.
fn is_loopback(endpoint: &Endpoint) -> bool {
    endpoint.host == "localhost" || endpoint.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_for_everybody_is_reported() {
        assert_eq!(access(None, false, true).severity, Severity::Warning);
        assert_eq!(access(None, true, false).severity, Severity::Good);
        assert_eq!(access(Some("u"), false, false).severity, Severity::Warning);
        assert_eq!(access(Some("u"), false, true).severity, Severity::Good);
        assert_eq!(access(Some("u"), true, false).severity, Severity::Good);
    }

    #[test]
    fn what_may_not_be_read_is_unknown() {
        let one = |change: fn(&mut MemberReport)| {
            let mut report = MemberReport::example(|_| ());
            change(&mut report);
            rights(&[("a:1".to_owned(), report)])
        };
        assert_eq!(one(|_| ()).severity, Severity::Good);
        for found in [one(|report| report.status = None), one(|report| report.members = None)] {
            assert_eq!(found.severity, Severity::Unknown);
        }
    }

    #[test]
    fn a_certificate_that_ends_soon_is_reported() {
        let day = Duration::from_secs(24 * 3600);
        let judged = |days: Option<u32>, is_encrypted: bool| {
            let certificate_end = days.map(|days| day * (100 + days));
            let report = MemberReport { certificate_end, ..MemberReport::example(|_| ()) };
            judge_certificate(&report, is_encrypted, day * 100).map(|found| found.severity)
        };
        assert_eq!(judged(Some(14), true), Some(Severity::Good));
        assert_eq!(judged(Some(13), true), Some(Severity::Warning));
        assert_eq!(judged(None, true), Some(Severity::Unknown));
        assert_eq!(judged(None, false), None);
    }
}
