//! One ZooKeeper server, which loses no acknowledged write when its process is stopped or killed.

use std::collections::BTreeMap;

use leasehold_core::Guarantee;
use leasehold_testkit::server::ZookeeperServer;

use super::{MAX_HOLD_BACK, MAX_STOP, is_unforced, leftovers};
use crate::{
    served::{Served, System},
    world::{Fault, Promise},
};

/// The only server.
pub struct One(ZookeeperServer);

impl System for One {
    const SCHEME: &'static str = "zookeeper";
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
        ]
    }

    fn start(_: u64, _: Promise) -> Self {
        // The server soon deletes unused container nodes, so that clients find them missing.
        Self(ZookeeperServer::start(&["-Dznode.container.checkIntervalMs=700"]))
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.0.port()]
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        is_unforced(guarantee) && guarantee.to_string().contains("one server")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        leftovers(&self.0.four_letter_command("dump"))
    }
}
