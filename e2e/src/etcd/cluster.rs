//! Three servers, of which one at a time has trouble.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::EtcdCluster;

use super::{HELD, STOPPED, things};
use crate::{
    rng::Rng,
    served::{Served, System},
    world::{Fault, Promise},
};

/// What it is called where an engine is chosen.
pub const CLUSTER: &str = "etcd-cluster";

/// Three servers.
pub struct Three {
    cluster: EtcdCluster,
    /// Which of them has trouble.
    struck: usize,
    rng: Rng,
}

/// Where a server is stopped and goes on, an old etcd promises no exclusion: such a leader ends leases that the next one keeps
/// alive.
#[must_use]
pub const fn promise_of(seed: u64) -> Promise {
    if seed.is_multiple_of(2) { Promise::Fence } else { Promise::Exclusion }
}

impl Three {
    fn strike_leader(&mut self, act: fn(&mut EtcdCluster, usize)) {
        self.struck = self.cluster.leader();
        act(&mut self.cluster, self.struck);
    }

    fn strike_any(&mut self, act: fn(&mut EtcdCluster, usize)) {
        self.struck = self.rng.below(self.cluster.ports().len() as u64) as usize;
        act(&mut self.cluster, self.struck);
    }

    fn end(&mut self, act: fn(&mut EtcdCluster, usize)) {
        act(&mut self.cluster, self.struck);
    }
}

/// What may happen where exclusion is promised.
const LOSES_ONE: &[Fault<Served<Three>>] = &[
    Fault {
        name: "leader killed",
        lasts: 5..2500,
        begin: |w, _| w.system.strike_leader(EtcdCluster::kill),
        end: |w, _| w.system.end(EtcdCluster::restart),
    },
    Fault {
        name: "leader cut off",
        lasts: 100..3500,
        begin: |w, _| w.system.strike_leader(EtcdCluster::cut),
        end: |w, _| w.system.end(EtcdCluster::heal),
    },
    Fault {
        name: "node cut off",
        lasts: 100..3500,
        begin: |w, _| w.system.strike_any(EtcdCluster::cut),
        end: |w, _| w.system.end(EtcdCluster::heal),
    },
];

/// And where it is not.
const STOPS_ONE: &[Fault<Served<Three>>] = &[
    Fault {
        name: "leader stops",
        lasts: 100..4500,
        begin: |w, _| w.system.strike_leader(EtcdCluster::pause),
        end: |w, _| w.system.end(EtcdCluster::resume),
    },
    Fault {
        name: "node stops",
        lasts: 100..4500,
        begin: |w, _| w.system.strike_any(EtcdCluster::pause),
        end: |w, _| w.system.end(EtcdCluster::resume),
    },
];

impl System for Three {
    const SCHEME: &'static str = "etcd";
    const STOPPED: u64 = STOPPED;
    const HELD: u64 = HELD;

    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>] {
        if promise == Promise::Exclusion { LOSES_ONE } else { STOPS_ONE }
    }

    fn start(seed: u64) -> Self {
        Self { cluster: EtcdCluster::start(), struck: 0, rng: Rng::new(seed, 78) }
    }

    fn ports(&self) -> Vec<u16> {
        self.cluster.ports().to_vec()
    }

    fn deserves(&self, said: &Guarantee, promise: Promise) -> bool {
        promise == Promise::Exclusion || said.level == Level::BestEffort && said.to_string().contains("17465")
    }

    fn things(&self) -> BTreeMap<String, u64> {
        things(|arguments| self.cluster.command(self.cluster.leader(), arguments))
    }
}
