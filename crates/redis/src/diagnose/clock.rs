//! The clocks of the servers, against ours and against each other.

use std::time::Duration;

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;
use crate::server_clock::{MAX_CLOCK_DIFFERENCE, Side};

const CLOCK_ID: &str = "redis-clock";
const CLOCKS_ID: &str = "redis-clocks";

/// How far the clock of the server is from ours.
pub(super) fn judge(report: &ServerReport) -> Diagnostic {
    let uncertainty = report.clocks.uncertainty();
    let Some((difference, side)) = report.clocks.difference() else {
        let allowed = MAX_CLOCK_DIFFERENCE + uncertainty;
        return Diagnostic::good(CLOCK_ID, format!("its clock is within {allowed:.1?} of ours"));
    };
    let (relation, risk) = match side {
        Side::Ahead => ("ahead of", "back, which prolongs leases"),
        Side::Behind => ("behind", "forward, which ends leases early"),
    };
    Diagnostic::new(
        CLOCK_ID,
        Severity::Warning,
        format!("its clock is {difference:.1?} {relation} ours, give or take {uncertainty:.1?}"),
        format!("synchronise both clocks slowly (chrony): do not set the clock of the server {risk}"),
    )
}

/// Of several servers, the largest difference that two clocks certainly have, and the servers whose clocks are ahead
/// and behind. `None` for fewer than two servers.
pub(crate) fn widest_lead(reports: &[(String, ServerReport)]) -> Option<(Duration, &str, &str)> {
    let pairs = reports.iter().enumerate().flat_map(|(index, ahead)| {
        let others = reports.iter().enumerate().filter(move |(other, _)| *other != index);
        others.map(move |(_, behind)| (ahead, behind))
    });
    let leads = pairs.map(|((ahead, one), (behind, other))| {
        (one.clocks.lead_over(&other.clocks), ahead.as_str(), behind.as_str())
    });
    leads.max_by_key(|(lead, ..)| *lead)
}

/// How far the clocks of several servers are apart: a name that moves to another server counts by the clock there.
pub(super) fn judge_between(reports: &[(String, ServerReport)]) -> Option<Diagnostic> {
    let (difference, ahead, behind) = widest_lead(reports)?;
    if difference <= MAX_CLOCK_DIFFERENCE {
        let found = format!("the clocks of the servers are within {MAX_CLOCK_DIFFERENCE:?} of each other");
        return Some(Diagnostic::good(CLOCKS_ID, found));
    }
    Some(Diagnostic::new(
        CLOCKS_ID,
        Severity::Warning,
        format!("the clock of {ahead} is {difference:.1?} ahead of that of {behind}"),
        "synchronise the clocks of the servers (chrony): a name that goes to another server counts by that clock",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_clock::Clocks;

    fn report(ours_before: u64, server: u64, ours_after: u64) -> (String, ServerReport) {
        let report = ServerReport::example(&[]);
        let clocks = Clocks::of_millis(ours_before, server, ours_after);
        (format!("s{server}"), ServerReport { clocks, ..report })
    }

    #[test]
    fn a_clock_far_from_ours_is_reported() {
        let judged = |before, server, after| judge(&report(before, server, after).1);
        assert_eq!(judged(5000, 5900, 5000).severity, Severity::Good);
        assert_eq!(judged(5000, 9000, 8500).severity, Severity::Good, "the answer took long");
        let found = judged(5000, 9000, 6000);
        assert!(
            found.severity == Severity::Warning && found.found.contains("3.0s ahead of ours"),
            "{found:?}"
        );
        assert!(judged(5000, 2000, 5000).found.contains("3.0s behind ours"));
    }

    #[test]
    fn clocks_that_are_apart_are_reported() {
        assert_eq!(judge_between(&[report(5000, 9000, 5000)]), None);
        let together = [report(5000, 9000, 5000), report(6000, 9900, 6000)];
        assert_eq!(judge_between(&together).unwrap().severity, Severity::Good);
        for apart in [
            [report(5000, 9000, 5000), report(5000, 7000, 5000)],
            [report(5000, 7000, 5000), report(5000, 9000, 5000)],
        ] {
            let found = judge_between(&apart).unwrap();
            assert!(found.found.contains("the clock of s9000 is 2.0s ahead of that of s7000"), "{found:?}");
        }
    }
}
