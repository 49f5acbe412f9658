//! What an operator should know about the servers, their clocks, and the rights of this user, beside what the
//! [guarantee](crate::guarantee) finds. Reads only; each file judges one subject, from the report of a server.
//! `docs/doctor.md` explains each id.

use std::time::Duration;

use leasehold_core::{Diagnostic, EngineError, Fault, Severity};

use crate::{RedisEngine, identity::ServerKind, reach::ServerConn, runtime};

mod access;
mod clients;
mod clock;
mod cluster;
mod memory;
mod persistence;
mod replicas;
mod report;
mod rights;
mod sentinels;
mod slow;
mod version;

use clock::judge_between as judge_clocks_between;
pub(crate) use clock::widest_lead;
pub(crate) use report::ServerReport;
pub(crate) use version::judge_between as judge_versions_between;

/// The id of a server that cannot be asked.
const SERVER_ID: &str = "redis-server";
/// How long to wait for the report of one server.
pub(crate) const REPORT_TIMEOUT: Duration = Duration::from_secs(3);

impl RedisEngine {
    /// The diagnostics about every server of the URL.
    pub(crate) async fn diagnose_now(&self) -> Result<Vec<Diagnostic>, EngineError> {
        let kind = self.reach.kind();
        let (mut all, mut reports, mut first_error) = (Vec::new(), Vec::new(), None);
        let servers = self.reach.all_conns().await?;
        let reads = servers.into_iter().map(async |ServerConn { address, conn, has_locks }| {
            let report = match conn {
                Ok(conn) if has_locks => {
                    let report = ServerReport::read(&conn, kind);
                    let report = runtime::within(REPORT_TIMEOUT, report).await;
                    report.unwrap_or_else(|| Err(late(&address))).map(Some)
                }
                Ok(_) => Ok(None),
                Err(error) => Err(error),
            };
            (address, report, has_locks)
        });
        for (address, report, has_locks) in futures_util::future::join_all(reads).await {
            match report {
                Ok(Some(report)) => reports.push((address, report)),
                Ok(None) => {}
                Err(error) => {
                    all.push(away(&error, has_locks).of_server(address));
                    first_error.get_or_insert(error);
                }
            }
        }
        if reports.is_empty() {
            return Err(first_error.unwrap_or_else(|| EngineError::new(Fault::Retry, "no server is known")));
        }
        let is_one = kind == ServerKind::Single;
        for (address, report) in &reports {
            let found = judge(report, kind).into_iter();
            all.extend(found.map(|found| if is_one { found } else { found.of_server(address) }));
        }
        all.extend(judge_versions_between(&reports));
        all.extend(judge_clocks_between(&reports));
        if let Some(sentinels) = self.reach.sentinels() {
            all.extend(sentinels.with_new_reports(sentinels::judge).await);
        }
        Ok(all)
    }
}

/// The diagnostics about one server.
pub(crate) fn judge(report: &ServerReport, kind: ServerKind) -> Vec<Diagnostic> {
    let mut all = Vec::new();
    all.extend(rights::judge(report));
    all.extend(version::judge(report));
    all.extend(persistence::judge(report, kind));
    all.extend(memory::judge(report));
    all.extend(replicas::judge(report, kind));
    all.extend(cluster::judge(report));
    all.extend(clients::judge(report));
    all.extend(slow::judge(report));
    all.push(clock::judge(report));
    all.extend(access::judge(report));
    all
}

/// The error of a server that does not answer in time.
fn late(address: &str) -> EngineError {
    EngineError::new(Fault::Retry, format!("{address} did not answer within {REPORT_TIMEOUT:?}"))
}

/// The diagnostic about a server of several that cannot be asked.
fn away(error: &EngineError, has_locks: bool) -> Diagnostic {
    let reason = &error.message;
    if has_locks {
        return Diagnostic::new(
            SERVER_ID,
            Severity::Broken,
            format!("the server cannot be asked, so the locks in its slots cannot be used: {reason}"),
            "start the server, or let one of its replicas take over",
        );
    }
    Diagnostic::new(
        SERVER_ID,
        Severity::Warning,
        format!("a server of the URL cannot be asked: {reason}"),
        "start the server, or name another one in the URL: a client finds the others only through servers that answer",
    )
}
