//! The diagnostics of PostgreSQL: what an operator should know of every server of the URL, of the path to it, and of
//! the rights of the user. They use connections of their own, with the login of the URL, and change nothing.

mod ask;
mod facts;
pub(crate) mod ids;
mod judge;
mod listen;
mod tables;

use std::collections::HashSet;

use leasehold_core::{Diagnostic, Fault, Severity};
use tokio_postgres::config::Host;

use self::{ask::Asker, facts::Facts, judge::Pooling};
use super::{config::Config, pool::Pool};
use crate::{client::within_request_timeout, database::Failed, diagnose};

/// What the locks are, for which a server is looked at.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// Rows in tables of leasehold.
    Tables,
    /// Advisory locks of a session.
    Sessions,
    /// Rows in a table of another program, which the user's search path finds by this quoted name.
    ForeignTable(String),
    /// Rows in such a table that a transaction keeps locked. Whether rows are created.
    RowHolds(String, bool),
}

/// Looks at every server of the URL, and at the tables of leasehold, by the connections of a client.
///
/// # Errors
/// That of the first server, if no server can be asked.
pub(crate) async fn of_tables(pool: &Pool) -> Result<Vec<Diagnostic>, Failed> {
    let mut told = diagnose(&pool.config, &Subject::Tables).await?;
    let tables = diagnose::tables(ids::ID_TABLES, pool.has_tables().await.as_ref());
    if !told.iter().any(|diagnostic| diagnostic.is_cause_of(&tables.found)) {
        told.push(tables);
    }
    Ok(told)
}

/// Looks at every server of the URL.
///
/// # Errors
/// That of the first server, if no server can be asked.
pub(crate) async fn diagnose(config: &Config, subject: &Subject) -> Result<Vec<Diagnostic>, Failed> {
    let hosts: Vec<_> = config.server.hosts_with_ports().collect();
    let (mut told, mut primaries, mut first_failure) = (Vec::new(), HashSet::new(), None);
    let mut has_server = false;
    for (host, port) in &hosts {
        let server = address(host, *port);
        match look_at(config, subject, host, *port).await {
            Ok((facts, diagnostics)) => {
                has_server = true;
                // The tables and the locks are looked at where they are used: on the first primary.
                if !facts.in_recovery {
                    primaries.insert(facts.identity);
                }
                told.extend(diagnostics.into_iter().map(|diagnostic| diagnostic.of_server(&*server)));
            }
            Err(failed) => {
                told.push(judge::unreachable(&failed).of_server(server));
                first_failure.get_or_insert(config.with_address(failed));
            }
        }
    }
    if let Some(failed) = first_failure.filter(|_| !has_server) {
        return Err(failed);
    }
    if hosts.len() > 1 || primaries.is_empty() {
        told.push(judge::primaries(primaries.len()));
    }
    if let Some(listen) = &config.listen {
        told.extend(listen::diagnose(config, listen, &primaries).await);
    }
    Ok(told)
}

/// Looks at one server.
async fn look_at(
    config: &Config,
    subject: &Subject,
    host: &Host,
    port: u16,
) -> Result<(Facts, Vec<Diagnostic>), Failed> {
    let asker = Asker::dial(&config.server, host, port, config.dial_limit()).await?;
    let facts = within_request_timeout(Facts::read(&asker)).await?;
    let mut told = vec![
        judge::version(&facts),
        judge::role(&facts),
        facts.clock.judge(ids::ID_CLOCK),
        judge::cover(asker.cover, diagnose::micros(facts.clock.received)),
        judge::pooler(
            &pooling(config, subject, &asker, &facts, (host, port)).await,
            subject,
            config.listen.is_some(),
        ),
        judge::idle_sessions(&facts, subject),
        or_unknown(ids::ID_CONNECTIONS, tables::connections(&asker).await),
        or_unknown(ids::ID_TRANSACTIONS, tables::transactions(&asker, &facts).await),
    ];
    if !facts.in_recovery {
        told.push(or_unknown(ids::ID_REPLICAS, tables::replicas(&asker, &facts).await));
        told.extend(of_subject(config, subject, &asker, &facts).await);
    }
    Ok((facts, told))
}

/// What is between this process and the server. Behind a pooler the process that serves a request is not the process
/// that was announced at the login. Whether the pooler shares sessions is found out only for locks that need to know.
async fn pooling(
    config: &Config,
    subject: &Subject,
    asker: &Asker,
    facts: &Facts,
    (host, port): (&Host, u16),
) -> Pooling {
    if facts.announced_process == Some(facts.process) {
        return Pooling::None;
    }
    if !matches!(subject, Subject::Sessions) {
        return Pooling::Shared;
    }
    let check = async {
        let second = Asker::dial(&config.server, host, port, config.dial_limit()).await?;
        within_request_timeout(asker.check_not_shared(facts.process, &second)).await
    };
    match check.await {
        Ok(()) => Pooling::BySession,
        Err(failed) if failed.fault == Fault::Misconfigured => Pooling::Shared,
        Err(failed) => Pooling::Unknown(failed.message),
    }
}

/// What is told of the tables or the keys that are the locks.
async fn of_subject(config: &Config, subject: &Subject, asker: &Asker, facts: &Facts) -> Vec<Diagnostic> {
    match subject {
        Subject::Sessions => vec![or_unknown(ids::ID_LOCK_ROOM, tables::lock_room(asker).await)],
        Subject::Tables => {
            let mut told = tables::of_leasehold(config, asker, facts)
                .await
                .unwrap_or_else(|failed| vec![judge::failed(ids::ID_RIGHTS, &failed)]);
            told.push(judge::autovacuum(facts));
            told
        }
        Subject::ForeignTable(table) => {
            let rights = ["SELECT", "INSERT", "UPDATE", "DELETE"];
            tables::of_program(asker, facts, table, &rights, true)
                .await
                .unwrap_or_else(|failed| vec![judge::failed(ids::ID_RIGHTS, &failed)])
        }
        Subject::RowHolds(table, creates) => {
            let rights: &[&str] =
                if *creates { &["SELECT", "UPDATE", "INSERT"] } else { &["SELECT", "UPDATE"] };
            tables::of_program(asker, facts, table, rights, false)
                .await
                .unwrap_or_else(|failed| vec![judge::failed(ids::ID_RIGHTS, &failed)])
        }
    }
}

/// The diagnostic, or that it could not be found out.
fn or_unknown(id: &'static str, diagnostic: Result<Diagnostic, Failed>) -> Diagnostic {
    diagnostic.unwrap_or_else(|failed| {
        Diagnostic::new(id, Severity::Unknown, format!("the server did not tell: {failed}"), "")
    })
}

/// The address of one server, for messages.
fn address(host: &Host, port: u16) -> String {
    match host {
        Host::Tcp(name) => format!("{name}:{port}"),
        #[cfg(unix)]
        Host::Unix(directory) => directory.display().to_string(),
    }
}
