//! A Redis Cluster of three masters and their replicas. One server at a time is under a fault. Meanwhile slots move
//! between masters.

use std::collections::BTreeMap;

use leasehold_core::Guarantee;
use leasehold_testkit::server::{RedisCluster, RedisFailover};

use super::{MAX_HOLD_BACK, MAX_STOP, address_map, is_best_effort, keys_left};
use crate::{
    rng::Rng,
    served::{Served, System},
    task::LOCKS,
    world::{Fault, Promise},
};

/// The engine name on the command line.
pub const CLUSTER: &str = "redis-cluster";
/// The prefix of lock keys.
const PREFIX: &str = "lock:";

/// The cluster.
pub struct Cluster {
    servers: RedisCluster,
    /// The index of the server under a fault.
    target: usize,
    /// The slot that is migrating.
    migrating_slot: Option<u16>,
    rng: Rng,
}

impl Cluster {
    /// The slot of a random lock.
    fn slot(&mut self) -> u16 {
        let lock = self.rng.pick(&LOCKS);
        self.servers.slot(&format!("{PREFIX}{lock}"))
    }

    /// The indices of the masters if `masters` is true; otherwise the indices of the replicas.
    fn nodes(&self, masters: bool) -> Vec<usize> {
        let nodes = 0..self.servers.ports().len();
        nodes.filter(|&node| self.servers.is_master(node) == masters).collect()
    }

    /// Begins a fault at the master that owns the slot of a random lock. Sometimes the slot of another random lock
    /// moves during the fault.
    fn apply_to_owner(&mut self, act: fn(&mut RedisCluster, usize)) {
        let slot = self.slot();
        self.target = self.servers.owner(slot);
        act(&mut self.servers, self.target);
        self.migrate_meanwhile();
    }

    /// Begins a fault at a random replica.
    fn apply_to_replica(&mut self, act: fn(&mut RedisCluster, usize)) {
        let replicas = self.nodes(false);
        self.target = *self.rng.pick(&replicas);
        act(&mut self.servers, self.target);
    }

    /// Asks a replica to replace its master. The replica may refuse.
    fn promote(&mut self, how: RedisFailover) {
        let replicas = self.nodes(false);
        let replica = *self.rng.pick(&replicas);
        drop(self.servers.failover(replica, how));
        self.migrate_meanwhile();
    }

    /// Moves the slot of a random lock to another master.
    fn migrate(&mut self) {
        let slot = self.slot();
        let owner = self.servers.owner(slot);
        let others: Vec<_> = self.nodes(true).into_iter().filter(|&node| node != owner).collect();
        let to = *self.rng.pick(&others);
        self.servers
            .migrate_slot(slot, to)
            .expect("no key was created under ASKING, so the migration succeeds");
    }

    /// Begins to migrate the slot of a random lock, and moves the first key of the slot.
    fn open_migration(&mut self) {
        let slot = self.slot();
        let owner = self.servers.owner(slot);
        let others: Vec<_> = self.nodes(true).into_iter().filter(|&node| node != owner).collect();
        let to = *self.rng.pick(&others);
        self.migrating_slot = Some(slot);
        // A node may refuse while another node is under a fault. The end of the fault completes the migration.
        let _ = self.servers.open_slot(slot, to).and_then(|()| self.servers.move_keys(slot, 1));
    }

    /// Moves the slot of a random lock to another master, in about half of the calls. If the move fails because of a
    /// fault, the end of the fault completes it. Moves nothing if the slot has no master as its owner, or if there is
    /// no other master.
    fn migrate_meanwhile(&mut self) {
        let masters = self.nodes(true);
        let slot = self.slot();
        let owner = masters.iter().find_map(|&node| self.servers.owner_by(node, slot));
        let others: Vec<_> = masters.iter().copied().filter(|&node| Some(node) != owner).collect();
        let owner_is_up = owner.is_some_and(|owner| masters.contains(&owner));
        if self.rng.below(2) == 0 || !owner_is_up || others.is_empty() {
            return;
        }
        let to = *self.rng.pick(&others);
        self.migrating_slot = self.servers.migrate_slot(slot, to).is_err().then_some(slot);
    }

    /// Completes the migration of the migrating slot.
    fn complete_migration(&mut self) {
        let Some(slot) = self.migrating_slot.take() else { return };
        loop {
            match self.servers.move_keys(slot, usize::MAX) {
                Ok(0) => break,
                Ok(_) => {}
                // Either the migration did not begin at both nodes, or a node was replaced and its replacement does not
                // know of the migration. In both cases the migration is given up.
                Err(error) if ["not open", "MOVED"].iter().any(|what| error.contains(what)) => {
                    let slot = slot.to_string();
                    let words = ["CLUSTER", "SETSLOT", &slot, "STABLE"];
                    self.nodes(true).into_iter().for_each(|node| drop(self.servers.command(node, &words)));
                    return;
                }
                Err(error) => panic!("slot {slot} stays open: {error}"),
            }
        }
        self.servers.close_slot(slot).expect("a cluster without a fault agrees");
    }

    /// Ends a fault, and waits until the cluster has recovered.
    fn end(&mut self, act: fn(&mut RedisCluster, usize)) {
        act(&mut self.servers, self.target);
        self.servers.wait_until_stable();
        self.complete_migration();
        self.servers.wait_until_stable();
    }
}

const MIGRATES: Fault<Served<Cluster>> = Fault {
    name: "slot moves",
    lasts: 1..10,
    begin: |w, _| w.system.migrate(),
    end: |w, _| w.system.end(|_, _| {}),
};

const STAYS_OPEN: Fault<Served<Cluster>> = Fault {
    name: "slot stays open",
    lasts: 100..3500,
    begin: |w, _| w.system.open_migration(),
    end: |w, _| w.system.end(|_, _| {}),
};

/// Faults that end no hold.
const FAULTS_WITHOUT_FAILOVER: &[Fault<Served<Cluster>>] = &[
    MIGRATES,
    STAYS_OPEN,
    Fault {
        name: "replica killed",
        lasts: 5..2500,
        begin: |w, _| w.system.apply_to_replica(RedisCluster::kill),
        end: |w, _| w.system.end(RedisCluster::restart),
    },
    Fault {
        name: "replica stops",
        lasts: 100..3500,
        begin: |w, _| w.system.apply_to_replica(RedisCluster::pause),
        end: |w, _| w.system.end(RedisCluster::resume),
    },
    Fault {
        name: "replica cut off",
        lasts: 100..3500,
        begin: |w, _| w.system.apply_to_replica(RedisCluster::cut),
        end: |w, _| w.system.end(RedisCluster::heal),
    },
];

/// Faults that may make another node the owner of slots.
const FAULTS_WITH_FAILOVER: &[Fault<Served<Cluster>>] = &[
    MIGRATES,
    STAYS_OPEN,
    Fault {
        name: "master killed",
        lasts: 5..4500,
        begin: |w, _| w.system.apply_to_owner(RedisCluster::kill),
        end: |w, _| w.system.end(RedisCluster::restart),
    },
    Fault {
        name: "master stops",
        lasts: 100..4500,
        begin: |w, _| w.system.apply_to_owner(RedisCluster::pause),
        end: |w, _| w.system.end(RedisCluster::resume),
    },
    Fault {
        name: "master cut off",
        lasts: 100..4500,
        begin: |w, _| w.system.apply_to_owner(RedisCluster::cut),
        end: |w, _| w.system.end(RedisCluster::heal),
    },
    Fault {
        name: "fail-over as planned",
        lasts: 1..10,
        begin: |w, _| w.system.promote(RedisFailover::Plain),
        end: |w, _| w.system.end(|_, _| {}),
    },
    Fault {
        name: "fail-over by force",
        lasts: 1..10,
        begin: |w, _| w.system.promote(RedisFailover::Force),
        end: |w, _| w.system.end(|_, _| {}),
    },
    Fault {
        name: "takeover",
        lasts: 1..10,
        begin: |w, _| w.system.promote(RedisFailover::Takeover),
        end: |w, _| w.system.end(|_, _| {}),
    },
];

impl System for Cluster {
    const SCHEME: &'static str = "redis+cluster";
    const MAX_STOP: u64 = MAX_STOP;
    const MAX_HOLD_BACK: u64 = MAX_HOLD_BACK;

    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>] {
        if promise == Promise::Exclusion { FAULTS_WITHOUT_FAILOVER } else { FAULTS_WITH_FAILOVER }
    }

    fn start(seed: u64, _: Promise) -> Self {
        Self { servers: RedisCluster::start(), target: 0, migrating_slot: None, rng: Rng::new(seed, 80) }
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.ports()
    }

    fn url_of(&self, ports: &[u16]) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{}://{}?map={}", Self::SCHEME, hosts.join(","), address_map(&self.servers.ports(), ports))
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        is_best_effort(guarantee)
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let left = |node: usize| {
            // A migration that was given up leaves keys on a node that does not own the slot; no client reads these
            // keys.
            let is_own = |key: &String| {
                key.is_empty() || self.servers.owner_by(node, self.servers.slot(key)) == Some(node)
            };
            keys_left(|command| {
                let reply = self.servers.command(node, command);
                if command[0] == "KEYS" { reply.into_iter().filter(is_own).collect() } else { reply }
            })
        };
        self.nodes(true).into_iter().flat_map(left).collect()
    }
}
