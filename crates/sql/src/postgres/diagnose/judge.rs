//! Judges the facts of a PostgreSQL server for operators. Pure.

use std::time::Duration;

use leasehold_core::{Diagnostic, Fault, Severity, judge_certificate};

use super::{Subject, facts::Facts, ids};
use crate::{
    database::Failed,
    diagnose::{age, clear_text, micros},
    postgres::{
        error::{POOLER_FOUND, POOLER_NEEDS},
        row_hold::SETTINGS_DROPPED,
        session::NOT_PINNED,
        stream::Cover,
    },
};

/// The oldest version with which the tables can be created.
const OLDEST: i32 = 130_000;
/// The oldest version that still gets corrections.
const MAINTAINED: i32 = 140_000;

/// A server that cannot be asked, beside others that can.
pub(super) fn unreachable(failed: &Failed) -> Diagnostic {
    let found = format!("cannot be used: {failed}");
    let advice = "repair this server, or take it out of the URL: only the other servers serve";
    Diagnostic::new(ids::ID_SERVER, Severity::Warning, found, advice)
}

/// A look that failed.
pub(super) fn failed(id: &'static str, failed: &Failed) -> Diagnostic {
    let severity = match failed.fault {
        Fault::Denied | Fault::Misconfigured => Severity::Broken,
        _ => Severity::Unknown,
    };
    Diagnostic::new(id, severity, failed.message.clone(), "")
}

pub(super) fn version(facts: &Facts) -> Diagnostic {
    let (id, found) = (ids::ID_VERSION, format!("PostgreSQL {}", facts.version));
    match facts.version_number {
        ..OLDEST => {
            let advice = "upgrade the server: the tables of leasehold need version 13 or newer";
            Diagnostic::new(id, Severity::Broken, found, advice)
        }
        OLDEST..MAINTAINED => {
            let advice = "upgrade the server: this version gets no corrections any more";
            Diagnostic::new(id, Severity::Warning, found, advice)
        }
        _ => Diagnostic::good(id, found),
    }
}

/// Whether names can be locked on the server.
pub(super) fn role(facts: &Facts) -> Diagnostic {
    let id = ids::ID_ROLE;
    if facts.in_recovery {
        return Diagnostic::good(id, "a replica: it is used only to look, when no primary answers");
    }
    if facts.reads_only {
        let advice = "set default_transaction_read_only=off for the user of the locks, or name the primary";
        return Diagnostic::new(
            id,
            Severity::Broken,
            "default_transaction_read_only is on: the server refuses to write",
            advice,
        );
    }
    Diagnostic::good(id, "a primary: names can be locked")
}

/// How many servers of the URL accept writes. Addresses of one server count once.
pub(super) fn primaries(count: usize) -> Diagnostic {
    let id = ids::ID_PRIMARIES;
    match count {
        0 => Diagnostic::new(
            id,
            Severity::Broken,
            "every server that answers is a replica: nothing can be locked",
            "name the primary in the URL",
        ),
        1 => Diagnostic::good(id, "one server of the URL is a primary"),
        count => Diagnostic::new(
            id,
            Severity::Broken,
            format!(
                "{count} servers of the URL accept writes: programs on different servers do not exclude each other"
            ),
            "stop all but one, or name only one in the URL of every program",
        ),
    }
}

/// Whether others can read along, and when the certificate expires. `now` is the time of this machine, since 1970.
pub(super) fn cover(cover: Cover, now: Duration) -> Diagnostic {
    let id = ids::ID_TLS;
    match cover {
        Cover::Local => Diagnostic::good(id, "the connection stays on this machine"),
        Cover::Encrypted { certificate_end } => judge_certificate(id, "server", certificate_end, now),
        Cover::Clear => {
            clear_text(id, "add sslmode=verify-full to the URL, and give the server a certificate")
        }
    }
}

/// What is between this process and the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// The server itself answers.
    None,
    /// A pooler that gives each client a session of its own.
    BySession,
    /// A pooler that gives one session to several clients in turn, or of which this does not matter.
    Shared,
    /// A pooler of which this could not be found out, for this reason.
    Unknown(String),
}

/// Whether locks can be used through what is between this process and the server. A pooler that locks cannot be used
/// through causes the errors of all other requests.
pub(super) fn pooler(pooling: &Pooling, subject: &Subject, has_listen_url: bool) -> Diagnostic {
    let id = ids::ID_POOLER;
    if *pooling == Pooling::None {
        return Diagnostic::good(id, "the server itself answers, without a pooler");
    }
    let found = "a pooler answers in place of the server";
    let broken = |why: &str, advice: &str| {
        Diagnostic::new(id, Severity::Broken, format!("{found}: {why}"), advice).causing(POOLER_FOUND)
    };
    match (subject, pooling) {
        (Subject::Tables, _) if has_listen_url => {
            Diagnostic::good(id, format!("{found}, and listen_url= leads past it"))
        }
        (Subject::Tables, _) => broken("notifications do not pass through it", POOLER_NEEDS),
        // The guarantee tells that the pooler can end the session.
        (Subject::Sessions, Pooling::BySession) => {
            Diagnostic::good(id, format!("{found}, and gives each client a session of its own"))
        }
        (Subject::Sessions, Pooling::Unknown(why)) => Diagnostic::new(
            id,
            Severity::Unknown,
            format!("{found}, and it is not known whether each client gets a session of its own: {why}"),
            "name the server itself in the URL",
        ),
        (Subject::Sessions, _) => broken(
            "it gives one session of the server to several clients, and hold=session needs a session of its own",
            "name the server itself in the URL, or set pool_mode = session",
        )
        .causing(NOT_PINNED),
        (Subject::RowHolds(..), _) => {
            broken("hold=row needs a session of the server with settings", "name the server itself in the URL")
                .causing(SETTINGS_DROPPED)
        }
        (Subject::ForeignTable(_), _) => {
            Diagnostic::good(id, format!("{found}, which is allowed with this layout"))
        }
    }
}

/// Whether the server ends sessions that are idle, as that of a waiting client is.
pub(super) fn idle_sessions(facts: &Facts, subject: &Subject) -> Diagnostic {
    let id = ids::ID_IDLE_SESSIONS;
    let limit = facts.idle_session_millis.unwrap_or(0);
    if limit == 0 {
        return Diagnostic::good(id, "the server ends no idle session");
    }
    let limit = age(micros(limit.saturating_mul(1000)));
    if !matches!(subject, Subject::Tables) {
        let found = format!("idle_session_timeout is {limit}, and the sessions of leasehold do without it");
        return Diagnostic::good(id, found);
    }
    Diagnostic::new(
        id,
        Severity::Warning,
        format!("idle_session_timeout is {limit}: the server ends the sessions of waiting clients"),
        format!(
            "run: ALTER ROLE {} SET idle_session_timeout = 0. Until then a waiting client connects again each time, and \
             may be told of its grant late",
            facts.user
        ),
    )
}

pub(super) fn autovacuum(facts: &Facts) -> Diagnostic {
    let id = ids::ID_AUTOVACUUM;
    if facts.has_autovacuum {
        return Diagnostic::good(id, "autovacuum removes old versions of rows");
    }
    Diagnostic::new(
        id,
        Severity::Warning,
        "autovacuum or track_counts is off: every renewal leaves an old version of a row, and requests become slow",
        "set autovacuum=on and track_counts=on",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::ClockReading;

    fn facts() -> Facts {
        Facts {
            version: "15.1".to_owned(),
            version_number: 150_001,
            in_recovery: false,
            reads_only: false,
            process: 7,
            announced_process: Some(7),
            clock: ClockReading { sent: 0, server: 0, received: 0 },
            user: "u".to_owned(),
            sees_others: true,
            idle_session_millis: None,
            identity: "1 2".to_owned(),
            has_autovacuum: true,
        }
    }

    #[test]
    fn old_versions_are_told() {
        for (version_number, severity) in [
            (129_999, Severity::Broken),
            (130_000, Severity::Warning),
            (139_999, Severity::Warning),
            (140_000, Severity::Good),
            (180_000, Severity::Good),
        ] {
            let told = version(&Facts { version_number, ..facts() });
            assert_eq!(told.severity, severity, "{version_number}");
        }
    }

    #[test]
    fn a_connection_in_clear_text_is_told() {
        let judged = |how| cover(how, Duration::ZERO).severity;
        assert_eq!(judged(Cover::Clear), Severity::Warning);
        assert_eq!(judged(Cover::Local), Severity::Good);
        let encrypted = |days: u64| {
            let certificate_end = Some(Duration::from_secs(days * 24 * 3600));
            cover(Cover::Encrypted { certificate_end }, Duration::ZERO)
        };
        let good = encrypted(15);
        assert!(good.severity == Severity::Good && good.found.ends_with("expires in 15 days"), "{good:?}");
        assert_eq!(encrypted(13).severity, Severity::Warning);
    }

    #[test]
    fn a_pooler_is_judged_by_what_the_locks_need() {
        let (good, broken) = (Severity::Good, Severity::Broken);
        for (subject, has_listen_url, by_session, shared) in [
            (Subject::Tables, false, broken, broken),
            (Subject::Tables, true, good, good),
            (Subject::Sessions, false, good, broken),
            (Subject::RowHolds("t".into(), false), false, broken, broken),
            (Subject::ForeignTable("t".into()), false, good, good),
        ] {
            for (pooling, severity) in
                [(Pooling::None, good), (Pooling::BySession, by_session), (Pooling::Shared, shared)]
            {
                let told = pooler(&pooling, &subject, has_listen_url);
                assert_eq!(told.severity, severity, "{subject:?} {told:?}");
                let is_cause = told.is_cause_of("postgres engine: it is a pooler: do this");
                assert_eq!(is_cause, severity == broken, "{told:?}");
                let is_of_rows = matches!(subject, Subject::RowHolds(..)) && severity == broken;
                let is_cause =
                    told.is_cause_of(&format!("the session has x=1 and not 2: {SETTINGS_DROPPED}"));
                assert_eq!(is_cause, is_of_rows, "{told:?}");
            }
        }
        let unsure = pooler(&Pooling::Unknown("no answer".into()), &Subject::Sessions, false);
        assert_eq!(unsure.severity, Severity::Unknown);
    }

    #[test]
    fn an_end_of_idle_sessions_is_told_where_sessions_do_not_prevent_it() {
        for (idle_session_millis, subject, severity) in [
            (None, Subject::Tables, Severity::Good),
            (Some(0), Subject::Tables, Severity::Good),
            (Some(60_000), Subject::Tables, Severity::Warning),
            (Some(60_000), Subject::Sessions, Severity::Good),
        ] {
            let told = idle_sessions(&Facts { idle_session_millis, ..facts() }, &subject);
            assert_eq!(told.severity, severity, "{told:?}");
        }
    }

    #[test]
    fn several_primaries_exclude_nobody() {
        let severities = [0, 1, 2, 3].map(|count| primaries(count).severity);
        assert_eq!(severities, [Severity::Broken, Severity::Good, Severity::Broken, Severity::Broken]);
    }
}
