//! A cluster of three etcd servers; one server at a time is under a fault.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::EtcdCluster;

use super::{MAX_HOLD_BACK, MAX_STOP, leftovers};
use crate::{
    cluster_under_fault::ClusterUnderFault,
    rng::Rng,
    served::{Served, System},
    world::{Fault, Promise},
};

/// The engine name on the command line.
pub const CLUSTER: &str = "etcd-cluster";

/// Three servers.
pub type Three = ClusterUnderFault<EtcdCluster>;

/// The promise of the round with this seed. In rounds with even seeds, servers are stopped and resumed. Such a round
/// promises no exclusion, because a resumed leader of an older etcd may end leases that the next leader has renewed
/// (etcd's pull request 17465). Other rounds promise exclusion.
#[must_use]
pub const fn promise_of(seed: u64) -> Promise {
    if seed.is_multiple_of(2) { Promise::Fence } else { Promise::Exclusion }
}

/// The faults of a round with a promise of exclusion.
const FAULTS_WITH_EXCLUSION: &[Fault<Served<Three>>] =
    &[Three::LEADER_KILLED, Three::leader_cut_off(3500), Three::any_cut_off("node cut off", 3500)];

/// The faults of a round without a promise of exclusion.
const FAULTS_WITHOUT_EXCLUSION: &[Fault<Served<Three>>] =
    &[Three::LEADER_STOPS, Three::any_stops("node stops")];

impl System for Three {
    const SCHEME: &'static str = "etcd";
    const MAX_STOP: u64 = MAX_STOP;
    const MAX_HOLD_BACK: u64 = MAX_HOLD_BACK;

    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>] {
        if promise == Promise::Exclusion { FAULTS_WITH_EXCLUSION } else { FAULTS_WITHOUT_EXCLUSION }
    }

    fn start(seed: u64, _: Promise) -> Self {
        Self::new(EtcdCluster::start(), Rng::new(seed, 78))
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.ports().to_vec()
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, promise: Promise) -> bool {
        promise == Promise::Exclusion
            || guarantee.level == Level::BestEffort && guarantee.to_string().contains("17465")
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        leftovers(|arguments| self.servers.command(self.servers.leader(), arguments))
    }
}
