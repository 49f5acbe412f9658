//! The Sentinels of the URL, by their newest reports.

use leasehold_core::{Diagnostic, Severity};

use crate::reach::{SentinelAnswer, SentinelReport};

const ID: &str = "redis-sentinels";

/// A diagnostic about each Sentinel of the URL.
pub(super) fn judge(answers: &[SentinelAnswer<'_>]) -> Vec<Diagnostic> {
    let away =
        "start the Sentinel, or name another one in the URL: without a majority of them no master is found";
    let judge_one = |(endpoint, report): &SentinelAnswer<'_>| {
        let diagnostic = match report {
            SentinelReport::Named(master) => Diagnostic::good(
                ID,
                format!(
                    "the Sentinel names {} as the master, and replaces it after {:?} without an answer",
                    master.endpoint, master.down_after
                ),
            ),
            SentinelReport::UnknownGroup(groups) => Diagnostic::new(
                ID,
                Severity::Warning,
                format!("the Sentinel does not know the group of the URL (it knows {})", groups.join(", ")),
                "run SENTINEL MONITOR there, or name another Sentinel in the URL",
            ),
            SentinelReport::Failed(error) => {
                Diagnostic::new(ID, Severity::Warning, error.message.clone(), away)
            }
            SentinelReport::NotAsked => {
                Diagnostic::new(ID, Severity::Warning, "the Sentinel did not answer in time", away)
            }
        };
        diagnostic.of_server(endpoint.to_string())
    };
    answers.iter().map(judge_one).collect()
}
