//! Three servers, of which one at a time has trouble.

use std::collections::BTreeMap;

use leasehold_core::{Guarantee, Level};
use leasehold_testkit::server::ZookeeperEnsemble;

use super::{HELD, STOPPED, things};
use crate::{
    rng::Rng,
    served::{Served, System},
    world::{Fault, Promise},
};

/// What it is called where an engine is chosen.
pub const ENSEMBLE: &str = "zookeeper-ensemble";

/// Three servers.
pub struct Ensemble {
    servers: ZookeeperEnsemble,
    /// Which of them has trouble.
    struck: usize,
    rng: Rng,
}

impl Ensemble {
    fn strike_leader(&mut self, act: fn(&mut ZookeeperEnsemble, usize)) {
        self.struck = self.servers.leader();
        act(&mut self.servers, self.struck);
    }

    fn strike_any(&mut self, act: fn(&mut ZookeeperEnsemble, usize)) {
        self.struck = self.rng.below(self.servers.ports().len() as u64) as usize;
        act(&mut self.servers, self.struck);
    }

    fn end(&mut self, act: fn(&mut ZookeeperEnsemble, usize)) {
        act(&mut self.servers, self.struck);
    }
}

/// What may happen.
const FAULTS: &[Fault<Served<Ensemble>>] = &[
    Fault {
        name: "leader killed",
        lasts: 5..2500,
        begin: |w, _| w.system.strike_leader(ZookeeperEnsemble::kill),
        end: |w, _| w.system.end(ZookeeperEnsemble::restart),
    },
    Fault {
        name: "leader stops",
        lasts: 100..4500,
        begin: |w, _| w.system.strike_leader(ZookeeperEnsemble::pause),
        end: |w, _| w.system.end(ZookeeperEnsemble::resume),
    },
    Fault {
        name: "leader cut off",
        lasts: 100..7000,
        begin: |w, _| w.system.strike_leader(ZookeeperEnsemble::cut),
        end: |w, _| w.system.end(ZookeeperEnsemble::heal),
    },
    // Longer than a session, and than a server takes to find out.
    Fault {
        name: "server cut off",
        lasts: 100..7000,
        begin: |w, _| w.system.strike_any(ZookeeperEnsemble::cut),
        end: |w, _| w.system.end(ZookeeperEnsemble::heal),
    },
    Fault {
        name: "server stops",
        lasts: 100..4500,
        begin: |w, _| w.system.strike_any(ZookeeperEnsemble::pause),
        end: |w, _| w.system.end(ZookeeperEnsemble::resume),
    },
];

impl System for Ensemble {
    const SCHEME: &'static str = "zookeeper";
    const STOPPED: u64 = STOPPED;
    const HELD: u64 = HELD;

    fn faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        FAULTS
    }

    fn start(seed: u64) -> Self {
        let servers = ZookeeperEnsemble::start_with(&["-Dznode.container.checkIntervalMs=700"]);
        Self { servers, struck: 0, rng: Rng::new(seed, 79) }
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.ports().to_vec()
    }

    fn deserves(&self, said: &Guarantee, _: Promise) -> bool {
        said.level == Level::LeaseBounded && !said.to_string().contains("one server")
    }

    fn things(&self) -> BTreeMap<String, u64> {
        things(&self.servers.four_letters(self.servers.leader(), "dump"))
    }
}
