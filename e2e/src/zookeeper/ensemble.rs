//! An ensemble of three ZooKeeper servers; one server at a time is under a fault.

use std::collections::BTreeMap;

use leasehold_core::Guarantee;
use leasehold_testkit::server::ZookeeperEnsemble;

use super::{MAX_HOLD_BACK, MAX_STOP, is_unforced, leftovers};
use crate::{
    cluster_under_fault::ClusterUnderFault,
    rng::Rng,
    served::{Served, System},
    world::{Fault, Promise},
};

/// The engine name on the command line.
pub const ENSEMBLE: &str = "zookeeper-ensemble";

/// Three servers.
pub type Ensemble = ClusterUnderFault<ZookeeperEnsemble>;

/// The longest time in milliseconds for which a server is cut off: longer than a session, and longer than the server
/// takes to notice that it is cut off.
const CUT_OFF: u64 = 7000;

/// The faults.
const FAULTS: &[Fault<Served<Ensemble>>] = &[
    Ensemble::LEADER_KILLED,
    Ensemble::LEADER_STOPS,
    Ensemble::leader_cut_off(CUT_OFF),
    Ensemble::any_cut_off("server cut off", CUT_OFF),
    Ensemble::any_stops("server stops"),
];

impl System for Ensemble {
    const SCHEME: &'static str = "zookeeper";
    const MAX_STOP: u64 = MAX_STOP;
    const MAX_HOLD_BACK: u64 = MAX_HOLD_BACK;

    fn faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        FAULTS
    }

    fn start(seed: u64, _: Promise) -> Self {
        let servers = ZookeeperEnsemble::start_with(&["-Dznode.container.checkIntervalMs=700"]);
        Self::new(servers, Rng::new(seed, 79))
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.ports().to_vec()
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        is_unforced(guarantee) && !guarantee.to_string().contains("one server")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        leftovers(&self.servers.four_letter_command(self.servers.leader(), "dump"))
    }
}
