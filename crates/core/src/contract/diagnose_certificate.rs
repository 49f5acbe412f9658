//! Judges when the certificate of a server expires. Pure.

use std::time::Duration;

use super::diagnostic::{Diagnostic, Severity};

/// A certificate that expires within this time is reported: the usual services renew at a third of the lifetime, which
/// is 30 days of 90.
const MIN_CERTIFICATE_LIFE: Duration = Duration::from_secs(14 * DAY);
const DAY: u64 = 24 * 3600;

/// The diagnostic `id` about an encrypted connection. `end` is the moment after which the certificate of the other side
/// is no longer valid, `None` if it cannot be read; `now` is the time of this machine; both since 1970. `whose` is the
/// noun for the other side: `server`, `member`.
#[must_use]
pub fn judge_certificate(id: &'static str, whose: &str, end: Option<Duration>, now: Duration) -> Diagnostic {
    let Some(end) = end else {
        let found = "the connection is encrypted; when the certificate expires cannot be read";
        return Diagnostic::new(
            id,
            Severity::Unknown,
            found,
            format!("look at the certificate of the {whose}"),
        );
    };
    if end < now {
        let days = (now - end).as_secs() / DAY;
        let found = format!(
            "the connection is encrypted, but the certificate of the {whose} expired {days} days ago"
        );
        let advice = "renew the certificate: clients that verify it cannot connect";
        return Diagnostic::new(id, Severity::Warning, found, advice);
    }
    let left = end - now;
    let days = left.as_secs() / DAY;
    let found =
        format!("the connection is encrypted, and the certificate of the {whose} expires in {days} days");
    if left >= MIN_CERTIFICATE_LIFE {
        return Diagnostic::good(id, found);
    }
    let advice = "renew the certificate: when it has expired, nobody can connect";
    Diagnostic::new(id, Severity::Warning, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_ends_soon_or_has_ended_is_a_warning() {
        let days = |days: u64| Duration::from_secs(days * DAY);
        for (end, severity, words) in [
            (Some(114), Severity::Good, "the certificate of the server expires in 14 days"),
            (Some(113), Severity::Warning, "expires in 13 days"),
            (Some(100), Severity::Warning, "expires in 0 days"),
            (Some(97), Severity::Warning, "the certificate of the server expired 3 days ago"),
            (None, Severity::Unknown, "cannot be read"),
        ] {
            let found = judge_certificate("x-tls", "server", end.map(days), days(100));
            assert_eq!((found.id, found.severity), ("x-tls", severity), "{found:?}");
            assert!(found.found.contains(words), "{found:?}");
            assert_eq!(found.advice.is_empty(), severity == Severity::Good, "{found:?}");
        }
    }
}
