//! Three servers, of which one at a time has trouble.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::ZookeeperEnsemble;

use super::{HELD, STOPPED, leftovers};
use crate::{
    cluster_under_fault::ClusterUnderFault,
    rng::Rng,
    served::{Served, System},
    world::{Fault, Promise},
};

/// What it is called where an engine is chosen.
pub const ENSEMBLE: &str = "zookeeper-ensemble";

/// Three servers.
pub type Ensemble = ClusterUnderFault<ZookeeperEnsemble>;

/// For how long one is cut off at most: longer than a session, and than a server takes to find out.
const CUT_OFF: u64 = 7000;

/// What may happen.
const FAULTS: &[Fault<Served<Ensemble>>] = &[
    Ensemble::LEADER_KILLED,
    Ensemble::LEADER_STOPS,
    Ensemble::leader_cut_off(CUT_OFF),
    Ensemble::any_cut_off("server cut off", CUT_OFF),
    Ensemble::any_stops("server stops"),
];

impl System for Ensemble {
    const SCHEME: &'static str = "zookeeper";
    const STOPPED: u64 = STOPPED;
    const HELD: u64 = HELD;

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
        guarantee.level == Level::LeaseBounded && !guarantee.to_string().contains("one server")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        leftovers(&self.servers.four_letters(self.servers.leader(), "dump"))
    }
}
