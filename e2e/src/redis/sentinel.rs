//! A Redis master, two replicas and three Sentinels; one of these six processes at a time is under a fault.

use std::collections::BTreeMap;

use leasehold_core::Guarantee;
use leasehold_testkit::server::RedisSentinels;

use super::{MAX_HOLD_BACK, MAX_STOP, address_map, is_best_effort, keys_left};
use crate::{
    rng::Rng,
    served::{Served, System},
    world::{Fault, Promise},
};

/// The engine name on the command line.
pub const SENTINEL: &str = "redis-sentinel";

/// The group of Sentinels with its nodes.
pub struct Group {
    servers: RedisSentinels,
    /// The server or Sentinel under a fault.
    target: usize,
    rng: Rng,
}

impl Group {
    /// Begins a fault at the master.
    fn apply_to_master(&mut self, act: fn(&mut RedisSentinels, usize)) {
        self.target = self.servers.master();
        act(&mut self.servers, self.target);
    }

    /// Begins a fault at a random replica.
    fn apply_to_replica(&mut self, act: fn(&mut RedisSentinels, usize)) {
        let nodes = self.servers.ports().len();
        let other = 1 + self.rng.below(nodes as u64 - 1) as usize;
        self.target = (self.servers.master() + other) % nodes;
        act(&mut self.servers, self.target);
    }

    /// Begins a fault at a random Sentinel.
    fn apply_to_sentinel(&mut self, act: fn(&mut RedisSentinels, usize)) {
        self.target = self.rng.below(self.servers.sentinel_ports().len() as u64) as usize;
        act(&mut self.servers, self.target);
    }

    /// Ends a fault, and waits until the group has recovered.
    fn end(&mut self, act: fn(&mut RedisSentinels, usize)) {
        act(&mut self.servers, self.target);
        self.servers.wait_until_stable();
    }
}

/// Faults that end no hold.
const FAULTS_WITHOUT_FAILOVER: &[Fault<Served<Group>>] = &[
    Fault {
        name: "sentinel killed",
        lasts: 5..2500,
        begin: |w, _| w.system.apply_to_sentinel(RedisSentinels::kill_sentinel),
        end: |w, _| w.system.end(RedisSentinels::restart_sentinel),
    },
    Fault {
        name: "sentinel cut off",
        lasts: 100..3500,
        begin: |w, _| w.system.apply_to_sentinel(RedisSentinels::cut_sentinel),
        end: |w, _| w.system.end(RedisSentinels::heal_sentinel),
    },
    Fault {
        name: "replica killed",
        lasts: 5..2500,
        begin: |w, _| w.system.apply_to_replica(RedisSentinels::kill),
        end: |w, _| w.system.end(RedisSentinels::restart),
    },
    Fault {
        name: "replica cut off",
        lasts: 100..3500,
        begin: |w, _| w.system.apply_to_replica(RedisSentinels::cut),
        end: |w, _| w.system.end(RedisSentinels::heal),
    },
    Fault {
        name: "replica made a second master",
        lasts: 1..10,
        begin: |w, _| w.system.apply_to_replica(RedisSentinels::promote),
        end: |w, _| w.system.end(|_, _| {}),
    },
];

/// Faults that may make another node the master.
const FAULTS_WITH_FAILOVER: &[Fault<Served<Group>>] = &[
    Fault {
        name: "master killed",
        lasts: 5..4500,
        begin: |w, _| w.system.apply_to_master(RedisSentinels::kill),
        end: |w, _| w.system.end(RedisSentinels::restart),
    },
    Fault {
        name: "master stops",
        lasts: 100..4500,
        begin: |w, _| w.system.apply_to_master(RedisSentinels::pause),
        end: |w, _| w.system.end(RedisSentinels::resume),
    },
    Fault {
        name: "master cut off",
        lasts: 100..4500,
        begin: |w, _| w.system.apply_to_master(RedisSentinels::cut),
        end: |w, _| w.system.end(RedisSentinels::heal),
    },
    Fault {
        name: "fail-over as planned",
        lasts: 1..10,
        begin: |w, _| {
            w.system.servers.failover();
        },
        end: |w, _| w.system.end(|_, _| {}),
    },
    Fault {
        name: "fail-over without Sentinels",
        lasts: 1..10,
        begin: |w, _| w.system.apply_to_replica(RedisSentinels::failover_without_sentinels),
        end: |w, _| w.system.end(|_, _| {}),
    },
];

impl System for Group {
    const SCHEME: &'static str = "redis+sentinel";
    const MAX_STOP: u64 = MAX_STOP;
    const MAX_HOLD_BACK: u64 = MAX_HOLD_BACK;

    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>] {
        if promise == Promise::Exclusion { FAULTS_WITHOUT_FAILOVER } else { FAULTS_WITH_FAILOVER }
    }

    fn start(seed: u64, _: Promise) -> Self {
        Self { servers: RedisSentinels::start(), target: 0, rng: Rng::new(seed, 79) }
    }

    /// The ports of the Sentinels come first, then those of the nodes.
    fn ports(&self) -> Vec<u16> {
        self.servers.sentinel_ports().into_iter().chain(self.servers.ports()).collect()
    }

    fn url_of(&self, ports: &[u16]) -> String {
        let nodes = self.servers.ports();
        let (sentinels, proxies) = ports.split_at(self.servers.sentinel_ports().len());
        let sentinels: Vec<_> = sentinels.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let (name, map) = (self.servers.name(), address_map(&nodes, proxies));
        format!("{}://{}/{name}?map={map}", Self::SCHEME, sentinels.join(","))
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        is_best_effort(guarantee)
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let master = self.servers.master();
        keys_left(|command| self.servers.command(master, command))
    }
}
