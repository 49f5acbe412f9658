//! The layout of Curator's `LeaderLatch`: every participant of an election has a node `_c_<uuid>-latch-<number>`, and
//! the one with the smallest number leads. The data of the node is the id of the participant, as text
//! (<https://github.com/apache/curator/blob/apache-curator-5.4.0/curator-recipes/src/main/java/org/apache/curator/framework/recipes/leader/LeaderLatch.java>).
//!
//! A participant of Curator watches the data of the node ahead, and after a change of that data it watches nothing any
//! more: it would not notice the deletion. So in this layout no node is ever changed. What other layouts store in the
//! data is in the name of the node, where Curator looks only at what follows `latch-`; and a hold cannot be broken
//! without force.

use std::time::Duration;

use leasehold_core::{Actor, Claim, EngineError, Fault};

use crate::{
    claim::ClaimContext,
    client::Client,
    config::Layout,
    keys::{is_latch, latch_hold_time},
    record::{self, Record},
    wire::{Create, NodeKind},
};

/// Why the hold of a latch cannot be broken without force.
const CHANGE_REFUSED: &str = "with layout=latch it can be broken only with --force: a change of its node would take the \
    notification of the next leader away from Curator";

impl Client {
    /// The request for the node of a claim in the queue.
    pub(crate) fn node_of(&self, claim: &Claim, context: &ClaimContext) -> Create {
        let (record, is_try) = (self.record(claim, context), !claim.may_queue);
        let (path, data) = if self.config.layout == Layout::Latch {
            // Curator shows the data as the id of the participant, so the data is the text of the owner alone.
            let (participant, _) = Actor::split(&record.owner);
            let data = participant.as_bytes().to_vec();
            (context.dir.latch_prefix(claim.id, is_try, record.hold_time), data)
        } else {
            let path = context.dir.node_prefix(claim.id, claim.mode, is_try, self.config.layout);
            (path, record.text())
        };
        Create { path, data, acl: self.acl.clone(), kind: NodeKind::Sequential }
    }
}

/// The record of a node with this name and this data; `None` if another program wrote it.
pub(crate) fn read_record(name: &str, data: &[u8]) -> Option<Record> {
    if !is_latch(name) {
        return Record::read(data);
    }
    let hold_time: Duration = latch_hold_time(name)?;
    Some(Record { broken: false, hold_time, id: None, owner: std::str::from_utf8(data).ok()?.to_owned() })
}

/// Whether the holder of the node with this name and this data has to release it.
pub(crate) fn is_broken(name: &str, data: &[u8]) -> bool {
    !is_latch(name) && record::is_broken(data)
}

/// The error for a node that must not be changed; `None` for other nodes.
pub(crate) fn change_refused(name: &str) -> Option<EngineError> {
    is_latch(name).then(|| EngineError::new(Fault::Denied, CHANGE_REFUSED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_latch_is_an_owner_and_nothing_else() {
        let name = "_c_abababab-abab-abab-abab-abababababab-leasehold-1500-latch-0000000007";
        let mutex = "_c_abababab-abab-abab-abab-abababababab-lock-0000000007";
        for data in ["", "10.0.0.7:80", "__REVOKE__", "leasehold 1 broken 5 me"] {
            let record = read_record(name, data.as_bytes()).unwrap();
            assert_eq!((&*record.owner, record.broken, record.id), (data, false, None));
            assert_eq!(record.hold_time, Duration::from_millis(1500));
            assert!(!is_broken(name, data.as_bytes()), "{data}");
            let curators = name.replace("leasehold-1500-", "");
            assert_eq!(read_record(&curators, data.as_bytes()), None, "{data}");
        }
        assert!(is_broken(mutex, b"__REVOKE__") && is_broken(mutex, b"leasehold 1 broken 5 me"));
        assert!(change_refused(name).is_some() && change_refused(mutex).is_none());
    }
}
