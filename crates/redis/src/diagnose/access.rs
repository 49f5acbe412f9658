//! Who can reach the server, and who can read along: the password, the encryption, and the certificate.

use leasehold_core::{Diagnostic, Severity, judge_certificate};

use super::ServerReport;
use crate::access::Path;

const USER_ID: &str = "redis-user";
const TLS_ID: &str = "redis-tls";

pub(super) fn judge(report: &ServerReport) -> Vec<Diagnostic> {
    [Some(user(report)), encryption(report)].into_iter().flatten().collect()
}

/// Who else can use the server.
fn user(report: &ServerReport) -> Diagnostic {
    let user = report.user.as_deref().unwrap_or("default");
    let access = &report.access;
    if access.has_password {
        return Diagnostic::good(USER_ID, format!("logged in as {user}, with a password"));
    }
    match access.path {
        Path::Socket => {
            Diagnostic::good(USER_ID, format!("logged in as {user}, by a socket of this machine"))
        }
        // In protected mode a server without a password accepts connections of its own machine only.
        Path::Loopback if report.setting("protected-mode") == Some("yes") => {
            Diagnostic::good(USER_ID, format!("logged in as {user}, from this machine only (protected mode)"))
        }
        Path::Loopback | Path::Network => Diagnostic::new(
            USER_ID,
            Severity::Warning,
            format!(
                "logged in as {user} without a password: whoever reaches the server can take and delete locks"
            ),
            "set a password (requirepass), or better the users of redis.acl",
        ),
    }
}

/// Whether others can read along, and when the certificate expires.
fn encryption(report: &ServerReport) -> Option<Diagnostic> {
    let access = &report.access;
    if !access.is_encrypted {
        let found = "the connection is not encrypted: whoever reads along on the network sees the password";
        let advice = "write rediss:// in the URL, and set up TLS on the server";
        let is_risk = access.path == Path::Network && access.has_password;
        return is_risk.then(|| Diagnostic::new(TLS_ID, Severity::Warning, found, advice));
    }
    Some(judge_certificate(TLS_ID, "server", access.certificate_end, report.clocks.ours_after))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::access::Access;

    fn judged(access: Access, protected_mode: &str) -> Vec<(&'static str, Severity)> {
        let report = ServerReport::example(&[("protected-mode", protected_mode)]);
        let found = judge(&ServerReport { access, ..report });
        found.into_iter().map(|found| (found.id, found.severity)).collect()
    }

    fn access(path: Path, has_password: bool) -> Access {
        Access { path, has_password, is_encrypted: false, certificate_end: None }
    }

    #[test]
    fn a_server_for_everybody_is_reported() {
        let (good, warning) = ((USER_ID, Severity::Good), (USER_ID, Severity::Warning));
        assert_eq!(judged(access(Path::Loopback, true), "no"), [good]);
        assert_eq!(judged(access(Path::Loopback, false), "yes"), [good]);
        assert_eq!(judged(access(Path::Socket, false), "no"), [good]);
        assert_eq!(judged(access(Path::Loopback, false), "no"), [warning]);
        assert_eq!(judged(access(Path::Network, false), "yes"), [warning]);
        assert_eq!(judged(access(Path::Network, true), "yes"), [good, (TLS_ID, Severity::Warning)]);
    }

    #[test]
    fn a_certificate_that_ends_soon_is_reported() {
        let days = |days: u64| Some(Duration::from_secs(days * 24 * 3600 + 100));
        for (certificate_end, severity) in
            [(days(15), Severity::Good), (days(13), Severity::Warning), (None, Severity::Unknown)]
        {
            let access = Access { is_encrypted: true, certificate_end, ..access(Path::Network, true) };
            assert_eq!(judged(access, "yes")[1], (TLS_ID, severity));
        }
    }
}
