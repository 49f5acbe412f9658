//! One etcd server, which loses no acknowledged write when its process is stopped or killed.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::{EtcdServer, etcd_command};

use super::{MAX_HOLD_BACK, MAX_STOP, leftovers};
use crate::{
    served::{Served, System},
    world::{Fault, Promise},
};

/// The fault that loses no answer.
pub(super) const COMPACTED: &str = "compacted";

/// The only server.
pub struct Alone(EtcdServer);

impl Alone {
    /// Compacts the history of the server up to the current revision. A client may then want to start a watch at a
    /// compacted revision, which the server refuses.
    fn compact(&self) {
        let reply = self.0.command(&["get", "nothing", "-w=fields"]);
        let revision = reply.iter().find_map(|line| line.strip_prefix("\"Revision\" : "));
        // It is no error that a second compaction at the same revision fails.
        drop(revision.map(|revision| etcd_command(self.0.port(), &["compact", revision])));
    }
}

impl System for Alone {
    const SCHEME: &'static str = "etcd";
    const MAX_STOP: u64 = MAX_STOP;
    const MAX_HOLD_BACK: u64 = MAX_HOLD_BACK;

    fn faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        &[
            Fault {
                name: "server stops",
                lasts: 20..3000,
                begin: |w, _| w.system.0.pause(),
                end: |w, _| w.system.0.resume(),
            },
            Fault {
                name: "server restarts",
                lasts: 5..300,
                begin: |w, _| w.system.0.kill(),
                end: |w, _| w.system.0.restart(),
            },
            Fault { name: COMPACTED, lasts: 1..10, begin: |w, _| w.system.compact(), end: |_, _| {} },
        ]
    }

    fn start(_: u64, _: Promise) -> Self {
        Self(EtcdServer::start(&[]))
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        guarantee.level == Level::LeaseBounded && guarantee.to_string().contains("one member")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        leftovers(|arguments| self.0.command(arguments))
    }
}
