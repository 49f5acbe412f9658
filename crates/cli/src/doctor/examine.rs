//! Looks at one engine as its users see it. It creates nothing but the hold of a scratch name, which it releases.

use std::time::{Duration, Instant};

use leasehold::{Diagnostic, Error, ErrorKind, Guarantee, Locks, Severity, View};

use super::{Examination, causes, scratch, times};
use crate::{engines, source::Origin};

/// The words of servers that refuse a connection because all are in use: PostgreSQL (server, role and database) and
/// MySQL.
const FULL_SERVER_WORDS: [&str; 4] = [
    "remaining connection slots",
    "too many clients already",
    "too many connections for",
    "Too many connections",
];

/// What the user chose.
pub(crate) struct Options {
    /// The ttl of the user's holds.
    pub(crate) ttl: Duration,
    /// The name to lock; `None` for a name that nobody uses.
    pub(crate) scratch_name: Option<String>,
}

/// Looks at the engine of these locks.
pub(crate) fn examine(locks: &Locks, origin: &Origin, options: &Options) -> Examination {
    let engine = locks.profile().engine;
    let mut findings = vec![of_origin(engine, origin)];
    let begin = Instant::now();
    let reached = locks.ping_blocking();
    let is_reached = reached.is_ok();
    findings.push(of_reach(engine, reached.as_ref().err(), begin.elapsed()));
    findings.extend(reached.as_ref().err().and_then(|error| of_full_server(engine, error)));
    if reached.as_ref().is_err_and(Error::is_unreachable) {
        // Every other question would wait as long, and fail for the same reason.
        return Examination { engine, is_reached, guarantee: None, findings, times: None };
    }
    let guarantee = locks.guarantee_blocking();
    findings.extend(of_guarantee(&guarantee));
    match locks.diagnose_blocking() {
        Ok(diagnostics) => findings.extend(diagnostics),
        Err(error) => findings.push(Diagnostic::new(
            "diagnosis",
            Severity::Unknown,
            format!("the servers cannot be looked at: {error}"),
            "mend what the message names, then run doctor again",
        )),
    }
    let tried = scratch::lock_and_release(locks, options);
    findings.extend(tried.findings);
    findings.push(of_list(&locks.list_blocking("")));
    if let Some(times) = tried.times.as_ref().filter(|times| times.cycles() > 0) {
        findings.push(times.finding(locks.profile(), options.ttl));
        findings.push(times::advice(locks.profile(), options.ttl, times.slowest_request()));
    }
    let reach_error = reached.err().map(|error| error.to_string());
    causes::leave_out_consequences(&mut findings, engine, reach_error.as_deref());
    Examination { engine, is_reached, guarantee: guarantee.ok(), findings, times: tried.times }
}

/// The examination of an engine that refused to be opened, for a reason other than a wrong URL.
pub(crate) fn unopened(url: &str, origin: &Origin, error: &Error) -> Examination {
    let engine = engines::name_of(url);
    let findings = vec![of_origin(engine, origin), of_reach(engine, Some(error), Duration::ZERO)];
    Examination { engine, is_reached: false, guarantee: None, findings, times: None }
}

/// Where the URL came from.
fn of_origin(engine: &str, origin: &Origin) -> Diagnostic {
    if *origin == Origin::Default {
        let found = "no URL is given, so locks are files of this user on this machine";
        let advice = "give --url or LEASEHOLD_URL, if other users or machines are to be excluded";
        return Diagnostic::new("url", Severity::Warning, found, advice);
    }
    Diagnostic::good("url", format!("the {engine} engine, by {origin}"))
}

/// Whether the engine answers.
fn of_reach(engine: &str, error: Option<&Error>, took: Duration) -> Diagnostic {
    let Some(error) = error else {
        return Diagnostic::good("reach", format!("{engine} answers, after {}", times::shown(took)));
    };
    let advice = match error.kind() {
        _ if of_full_server(engine, error).is_some() => {
            "the server runs and has no free connection: see the line below"
        }
        ErrorKind::Unreachable | ErrorKind::Unknown => {
            "check the host, the port, the network, and that the server runs"
        }
        ErrorKind::Denied => "check the user, the password, and the rights of this user",
        _ => "mend what the message names",
    };
    Diagnostic::new("reach", Severity::Broken, error.to_string(), advice)
}

/// The finding for a server that runs and has no free connection, by the words of its refusal. `docs/doctor.md`
/// explains the ids: the engine has the same ones for servers that can be asked.
fn of_full_server(engine: &str, error: &Error) -> Option<Diagnostic> {
    let id = match engine {
        "postgres" => "postgres-connections",
        "mysql" => "mysql-connections",
        _ => return None,
    };
    let message = error.to_string();
    let is_full = FULL_SERVER_WORDS.iter().any(|words| message.contains(words));
    let advice = "allow more connections (max_connections, or the limit of the role or the database), or let \
                  programs use fewer: find who has them";
    is_full.then(|| Diagnostic::new(id, Severity::Broken, "no connection of the server is free", advice))
}

/// The level, and each setting that lowers it.
fn of_guarantee(guarantee: &Result<Guarantee, Error>) -> Vec<Diagnostic> {
    match guarantee {
        Ok(guarantee) if guarantee.findings.is_empty() => {
            vec![Diagnostic::good("guarantee", format!("no setting lowers the level {}", guarantee.level))]
        }
        Ok(guarantee) => {
            let warning = |finding: &leasehold::Finding| {
                let found = format!("{} is {}: {}", finding.what, finding.found, finding.risk);
                Diagnostic::new("guarantee", Severity::Warning, found, format!("wanted: {}", finding.wanted))
            };
            guarantee.findings.iter().map(warning).collect()
        }
        Err(error) => {
            let (found, advice) = match error.is_denied() {
                true => ("this user may not read what decides the level", "grant the right that"),
                false => ("what decides the level cannot be read", "mend what"),
            };
            vec![Diagnostic::new(
                "guarantee",
                Severity::Unknown,
                format!("{found}: {error}"),
                format!("{advice} the message names; until then count on best effort"),
            )]
        }
    }
}

/// Whether this user can list names, and whether all of them can be read.
fn of_list(listed: &Result<Vec<View>, Error>) -> Diagnostic {
    let views = match listed {
        Ok(views) => views,
        Err(error) => {
            let advice = "do what the message names: `leasehold list`, `top` and `serve` need it";
            return Diagnostic::new(
                "list",
                Severity::Warning,
                format!("names cannot be listed: {error}"),
                advice,
            );
        }
    };
    let mut unreadable = views.iter().filter_map(|view| Some((&view.name, view.problem.as_ref()?)));
    let Some((name, problem)) = unreadable.next() else {
        return Diagnostic::good(
            "list",
            format!("this user can list names: {} are held or waited for", views.len()),
        );
    };
    Diagnostic::new(
        "list",
        Severity::Warning,
        format!(
            "{} names cannot be read and block their claims, the first is {name:?}: {problem}",
            unreadable.count() + 1
        ),
        "mend what the message names: `leasehold list` shows all of them",
    )
}

#[cfg(test)]
mod tests {
    use leasehold::{Level, Name};

    use super::*;

    #[test]
    fn the_default_engine_is_a_warning() {
        assert_eq!(of_origin("file", &Origin::Default).severity, Severity::Warning);
        let found = of_origin("redis", &Origin::Variable);
        assert_eq!(
            (found.severity, found.found.as_str()),
            (Severity::Good, "the redis engine, by LEASEHOLD_URL")
        );
    }

    #[test]
    fn a_server_without_a_free_connection_is_not_called_unreachable_alone() {
        let full = Error::new(
            ErrorKind::Unreachable,
            "postgres engine: remaining connection slots are reserved for roles with the SUPERUSER attribute",
        );
        let found = of_full_server("postgres", &full).unwrap();
        assert_eq!((found.id, found.severity), ("postgres-connections", Severity::Broken));
        assert!(!of_reach("postgres", Some(&full), Duration::ZERO).advice.contains("the network"));
        let away = Error::new(ErrorKind::Unreachable, "postgres engine: connection refused");
        assert!(of_full_server("postgres", &away).is_none());
        assert!(of_reach("postgres", Some(&away), Duration::ZERO).advice.contains("the network"));
    }

    #[test]
    fn each_finding_of_the_guarantee_is_a_warning() {
        let locks = Locks::connect("memory:").unwrap();
        let mut guarantee = locks.guarantee_blocking().unwrap();
        assert_eq!(of_guarantee(&Ok(guarantee.clone()))[0].severity, Severity::Good);
        guarantee.lower("appendfsync", "everysec", "always", "a crash forgets a second");
        assert_eq!(guarantee.level, Level::BestEffort);
        let found = of_guarantee(&Ok(guarantee)).remove(0);
        assert_eq!((found.id, found.severity), ("guarantee", Severity::Warning));
        assert_eq!(found.found, "appendfsync is everysec: a crash forgets a second");
        assert_eq!(found.advice, "wanted: always");
        for (kind, advice) in [
            (ErrorKind::Denied, "grant the right that the message names"),
            (ErrorKind::Misconfigured, "mend what the message names"),
        ] {
            let told = of_guarantee(&Err(Error::new(kind, "no"))).remove(0);
            assert!(told.severity == Severity::Unknown && told.advice.starts_with(advice), "{told:?}");
        }
    }

    #[test]
    fn an_unreadable_name_is_a_warning() {
        let mut views = vec![View::free(Name::new("a").unwrap(), "k".into())];
        assert_eq!(of_list(&Ok(views.clone())).severity, Severity::Good);
        views[0].problem = Some("no record".into());
        let found = of_list(&Ok(views));
        assert_eq!(found.severity, Severity::Warning);
        assert!(
            found.found.starts_with("1 names cannot be read") && found.found.ends_with("no record"),
            "{found:?}"
        );
    }
}
