//! The replicas of a master, and the master of a replica. The guarantee reports what a fail-over can lose.

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;
use crate::identity::ServerKind;

const ID: &str = "redis-replicas";

/// The most seconds since the last acknowledgement of a replica that is not reported: the server by default counts a
/// replica with a larger lag as gone (`min-replicas-max-lag`).
const MAX_LAG: u64 = 10;

pub(super) fn judge(report: &ServerReport, kind: ServerKind) -> Option<Diagnostic> {
    if report.info("role") == "slave" {
        let found = "it is a replica, and not connected to its master";
        let advice = "look at the network between the two, or name the master in the URL";
        let is_cut_off = report.info("master_link_status") != "up";
        return is_cut_off.then(|| Diagnostic::new(ID, Severity::Warning, found, advice));
    }
    let connected = report.number("connected_slaves")?;
    let needed = report.setting("min-replicas-to-write").and_then(|needed| needed.parse::<u64>().ok());
    let useful = report.number("min_slaves_good_slaves").unwrap_or(connected);
    if let Some(needed) = needed.filter(|&needed| needed > useful) {
        return Some(Diagnostic::new(
            ID,
            Severity::Broken,
            format!(
                "{useful} replicas are connected, and min-replicas-to-write is {needed}: it refuses writes"
            ),
            "start the missing replicas",
        ));
    }
    let lagging: Vec<String> = replicas(report).filter_map(Replica::trouble).collect();
    if !lagging.is_empty() {
        let found = format!("replicas are behind: {}", lagging.join("; "));
        let advice = "look at the network to them, and at their logs: a fail-over to them loses grants";
        return Some(Diagnostic::new(ID, Severity::Warning, found, advice));
    }
    match (connected, kind) {
        (0, ServerKind::SentinelMaster | ServerKind::ClusterNode) => Some(Diagnostic::new(
            ID,
            Severity::Warning,
            "no replica is connected: while this server is down, its locks cannot be used",
            "start a replica of it",
        )),
        (0, _) => Some(Diagnostic::good(ID, "no replica is connected, so no fail-over can lose a grant")),
        (_, _) => Some(Diagnostic::good(ID, format!("{connected} replicas are connected and up to date"))),
    }
}

/// What a master reports about one of its replicas.
struct Replica<'a>(&'a str);

/// The replicas of the report: the fields `slave0`, `slave1` and so on, as `ip=10.0.0.2,port=6379,state=online,lag=1`.
fn replicas(report: &ServerReport) -> impl Iterator<Item = Replica<'_>> {
    (0..).map_while(|number| report.info.get(&format!("slave{number}"))).map(|text| Replica(text))
}

impl Replica<'_> {
    fn field(&self, name: &str) -> &str {
        let mut fields = self.0.split(',').filter_map(|field| field.split_once('='));
        fields.find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// What is wrong with the replica; `None` if it follows its master.
    fn trouble(self) -> Option<String> {
        let address = format!("{}:{}", self.field("ip"), self.field("port"));
        match (self.field("state"), self.field("lag").parse::<u64>()) {
            ("online", Ok(lag)) if lag > MAX_LAG => Some(format!("{address} by {lag} s")),
            ("online", _) => None,
            (state, _) => Some(format!("{address} ({state})")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(changes: &[(&str, &str)], kind: ServerKind) -> Option<(Severity, String)> {
        judge(&ServerReport::example(changes), kind).map(|found| (found.severity, found.found))
    }

    #[test]
    fn a_missing_or_lagging_replica_is_reported() {
        let severity = |changes: &[(&str, &str)]| found(changes, ServerKind::Single).unwrap().0;
        assert_eq!(severity(&[]), Severity::Good);
        assert_eq!(found(&[], ServerKind::ClusterNode).unwrap().0, Severity::Warning);
        let one = ("connected_slaves", "1");
        let replica = |text: &'static str| [one, ("slave0", text)];
        assert_eq!(severity(&replica("ip=10.0.0.2,port=1,state=online,offset=5,lag=1")), Severity::Good);
        for (text, expected) in [
            ("ip=10.0.0.2,port=1,state=online,offset=5,lag=11", "10.0.0.2:1 by 11 s"),
            ("ip=10.0.0.2,port=1,state=wait_bgsave,offset=0,lag=0", "10.0.0.2:1 (wait_bgsave)"),
        ] {
            let (severity, text) = found(&replica(text), ServerKind::SentinelMaster).unwrap();
            assert!(severity == Severity::Warning && text.ends_with(expected), "{text}");
        }
        let needed = ("min-replicas-to-write", "1");
        assert_eq!(severity(&[needed]), Severity::Broken);
        assert_eq!(severity(&[needed, one]), Severity::Good);
        assert_eq!(severity(&[needed, one, ("min_slaves_good_slaves", "0")]), Severity::Broken);
    }

    #[test]
    fn a_replica_without_its_master_is_reported() {
        let replica = ("role", "slave");
        assert_eq!(found(&[replica, ("master_link_status", "up")], ServerKind::Single), None);
        let cut = found(&[replica, ("master_link_status", "down")], ServerKind::Single).unwrap();
        assert_eq!(cut.0, Severity::Warning);
    }
}
