//! What an operator should know about the nodes of a Redlock, beside what the [guarantee](super::guarantee) finds.

use leasehold_core::{Diagnostic, EngineError, Severity};

use super::{agreement::tolerance, engine::RedlockEngine};
use crate::{
    diagnose::{self, REPORT_TIMEOUT, ServerReport, widest_lead},
    identity::ServerKind,
    runtime,
};

const NODE_ID: &str = "redlock-node";
const VOTES_ID: &str = "redlock-votes";
const CLOCKS_ID: &str = "redlock-clocks";

impl RedlockEngine {
    /// The diagnostics about all nodes.
    pub(super) async fn diagnose_now(&self) -> Result<Vec<Diagnostic>, EngineError> {
        self.wait_until_ready().await?;
        let without_vote = self.nodes_without_vote().await?;
        let reads = self.nodes.iter().map(async |node| {
            let conn = node.conn().ok_or_else(|| node.unavailable())?;
            let report = ServerReport::read(&conn, ServerKind::RedlockNode);
            let report = runtime::within(REPORT_TIMEOUT, report).await;
            report.unwrap_or_else(|| Err(node.unavailable())).map_err(|error| node.with_name(&error))
        });
        let answers = futures_util::future::join_all(reads).await;
        let (mut all, mut reports) = (Vec::new(), Vec::new());
        for (index, (node, report)) in self.nodes.iter().zip(answers).enumerate() {
            let about_node = match report {
                Ok(report) => {
                    let mut about_node = diagnose::judge(&report, ServerKind::RedlockNode);
                    about_node.push(self.judge_vote(without_vote.contains(&index)));
                    reports.push((node.address.clone(), report));
                    about_node
                }
                Err(error) => vec![Diagnostic::new(
                    NODE_ID,
                    Severity::Warning,
                    format!("it gives no vote, so fewer others may fail: {}", error.message),
                    "start the node, or put another one in its place in the URL of every client",
                )],
            };
            all.extend(about_node.into_iter().map(|found| of_minority(found).of_server(&node.address)));
        }
        all.extend(diagnose::judge_versions_between(&reports));
        all.extend(self.judge_clocks(&reports));
        Ok(all)
    }

    /// Whether the node has a vote.
    fn judge_vote(&self, is_without_vote: bool) -> Diagnostic {
        if !is_without_vote {
            return Diagnostic::good(VOTES_ID, "it has had its data for long enough to vote");
        }
        let quarantine = self.quarantine();
        Diagnostic::new(
            VOTES_ID,
            Severity::Warning,
            format!(
                "it has no vote until {quarantine:?} after it was started or emptied (max_ttl makes this time)"
            ),
            "wait, and do not restart other nodes before that",
        )
    }

    /// That the clocks of the nodes agree. The guarantee reports clocks that do not.
    fn judge_clocks(&self, reports: &[(String, ServerReport)]) -> Option<Diagnostic> {
        let allowed = tolerance(self.config.max_ttl);
        let (difference, ..) = widest_lead(reports)?;
        let found = format!("the clocks of the nodes are within {allowed:?} of each other");
        (difference <= allowed).then(|| Diagnostic::good(CLOCKS_ID, found))
    }
}

/// A node that cannot be used is a warning as long as it is one of a minority.
fn of_minority(found: Diagnostic) -> Diagnostic {
    let severity = found.severity.min(Severity::Warning);
    Diagnostic::new(found.id, severity, found.found, found.advice)
}
