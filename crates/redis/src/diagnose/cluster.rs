//! The state of a cluster, as one of its nodes reports it.

use leasehold_core::{Diagnostic, Severity};

use super::ServerReport;
use crate::keys::SLOTS;

const ID: &str = "redis-cluster";

pub(super) fn judge(report: &ServerReport) -> Option<Diagnostic> {
    let field = |name: &str| report.cluster.get(name).map_or("", String::as_str);
    let number = |name: &str| field(name).parse::<usize>().unwrap_or(0);
    if report.cluster.is_empty() {
        return None;
    }
    let advice = "see CLUSTER NODES, and start the nodes that are down or give their slots to other nodes";
    let (missing, failed) =
        (SLOTS.saturating_sub(number("cluster_slots_assigned")), number("cluster_slots_fail"));
    if field("cluster_state") != "ok" {
        let found = format!(
            "the cluster is down by the report of this node: {missing} slots have no node, {failed} a node that failed"
        );
        return Some(Diagnostic::new(ID, Severity::Broken, found, advice));
    }
    if missing + failed > 0 {
        let found = format!(
            "{missing} slots have no node and {failed} a node that failed: names in them cannot be locked"
        );
        return Some(Diagnostic::new(ID, Severity::Broken, found, advice));
    }
    let suspected = number("cluster_slots_pfail");
    if suspected > 0 {
        let found = format!("the node of {suspected} slots does not answer this node");
        return Some(Diagnostic::new(ID, Severity::Warning, found, advice));
    }
    let timeout = report.setting("cluster-node-timeout");
    let timeout = timeout.map_or(String::new(), |timeout| format!(", cluster-node-timeout {timeout} ms"));
    let found = format!("all slots have a node, {} nodes share them{timeout}", number("cluster_size"));
    Some(Diagnostic::good(ID, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_without_a_node_are_reported() {
        let judged = |changes: &[(&str, &str)]| {
            let mut report = ServerReport::example(&[]);
            let fields =
                [("cluster_state", "ok"), ("cluster_slots_assigned", "16384"), ("cluster_size", "3")];
            let all = fields.iter().chain(changes);
            report.cluster = all.map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
            judge(&report).unwrap().severity
        };
        assert_eq!(judge(&ServerReport::example(&[])), None, "it is no node of a cluster");
        assert_eq!(judged(&[]), Severity::Good);
        assert_eq!(judged(&[("cluster_state", "fail")]), Severity::Broken);
        assert_eq!(judged(&[("cluster_slots_assigned", "16383")]), Severity::Broken);
        assert_eq!(judged(&[("cluster_slots_fail", "1")]), Severity::Broken);
        assert_eq!(judged(&[("cluster_slots_pfail", "1")]), Severity::Warning);
    }
}
