//! Three masters and their replicas, of which one at a time has trouble, while slots move.

use std::collections::BTreeMap;

use leasehold_core::Guarantee;
use leasehold_testkit::server::{RedisCluster, RedisFailover};

use super::{HELD, STOPPED, is_best_effort, keys_left, map};
use crate::{
    rng::Rng,
    served::{Served, System},
    task::LOCKS,
    world::{Fault, Promise},
};

/// What it is called where an engine is chosen.
pub const CLUSTER: &str = "redis-cluster";
/// What keys of locks begin with.
const PREFIX: &str = "lock:";

/// The cluster.
pub struct Cluster {
    servers: RedisCluster,
    /// Which of them has trouble.
    target: usize,
    /// The slot that is between two of them.
    open: Option<u16>,
    rng: Rng,
}

impl Cluster {
    /// The slot of a lock that clients want.
    fn slot(&mut self) -> u16 {
        let lock = self.rng.pick(&LOCKS);
        self.servers.slot(&format!("{PREFIX}{lock}"))
    }

    fn nodes(&self, masters: bool) -> Vec<usize> {
        let nodes = 0..self.servers.ports().len();
        nodes.filter(|&node| self.servers.is_master(node) == masters).collect()
    }

    /// Strikes the owner of such a slot. Now and then a slot of another moves meanwhile.
    fn apply_to_owner(&mut self, act: fn(&mut RedisCluster, usize)) {
        let slot = self.slot();
        self.target = self.servers.owner(slot);
        act(&mut self.servers, self.target);
        self.migrate_meanwhile();
    }

    fn apply_to_replica(&mut self, act: fn(&mut RedisCluster, usize)) {
        let replicas = self.nodes(false);
        self.target = *self.rng.pick(&replicas);
        act(&mut self.servers, self.target);
    }

    /// Makes a replica a master. One that cannot become it is left as it is.
    fn promote(&mut self, how: RedisFailover) {
        let replicas = self.nodes(false);
        let replica = *self.rng.pick(&replicas);
        drop(self.servers.failover(replica, how));
        self.migrate_meanwhile();
    }

    /// Moves such a slot to another master.
    fn migrate(&mut self) {
        let slot = self.slot();
        let owner = self.servers.owner(slot);
        let others: Vec<_> = self.nodes(true).into_iter().filter(|&node| node != owner).collect();
        let to = *self.rng.pick(&others);
        self.servers.migrate_slot(slot, to).expect("keys that nobody made under ASKING stand in no way");
    }

    /// Begins to move such a slot, with the first of its keys.
    fn open(&mut self) {
        let slot = self.slot();
        let owner = self.servers.owner(slot);
        let others: Vec<_> = self.nodes(true).into_iter().filter(|&node| node != owner).collect();
        let to = *self.rng.pick(&others);
        self.open = Some(slot);
        // What a node refuses while others are in trouble is done at the end.
        let _ = self.servers.open_slot(slot, to).and_then(|()| self.servers.move_keys(slot, 1));
    }

    /// Now and then moves such a slot between masters that have no trouble, as far as it goes.
    fn migrate_meanwhile(&mut self) {
        let masters = self.nodes(true);
        let slot = self.slot();
        let owner = masters.iter().find_map(|&node| self.servers.owner_by(node, slot));
        let others: Vec<_> = masters.iter().copied().filter(|&node| Some(node) != owner).collect();
        let is_there = owner.is_some_and(|owner| masters.contains(&owner));
        if self.rng.below(2) == 0 || !is_there || others.is_empty() {
            return;
        }
        let to = *self.rng.pick(&others);
        self.open = self.servers.migrate_slot(slot, to).is_err().then_some(slot);
    }

    /// Ends the move of the slot that is open.
    fn close(&mut self) {
        let Some(slot) = self.open.take() else { return };
        loop {
            match self.servers.move_keys(slot, usize::MAX) {
                Ok(0) => break,
                Ok(_) => {}
                // It was not begun everywhere, or one of the two was replaced meanwhile, who forgets it then.
                Err(complaint) if ["not open", "MOVED"].iter().any(|what| complaint.contains(what)) => {
                    let slot = slot.to_string();
                    let words = ["CLUSTER", "SETSLOT", &slot, "STABLE"];
                    self.nodes(true).into_iter().for_each(|node| drop(self.servers.command(node, &words)));
                    return;
                }
                Err(complaint) => panic!("slot {slot} stays open: {complaint}"),
            }
        }
        self.servers.close_slot(slot).expect("a cluster that is whole agrees");
    }

    /// Ends it. The next fault meets a cluster that is whole again.
    fn end(&mut self, act: fn(&mut RedisCluster, usize)) {
        act(&mut self.servers, self.target);
        self.servers.settle();
        self.close();
        self.servers.settle();
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
    begin: |w, _| w.system.open(),
    end: |w, _| w.system.end(|_, _| {}),
};

/// What harms no hold.
const LOSES_OTHERS: &[Fault<Served<Cluster>>] = &[
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

/// What makes another node the owner of slots, or may.
const LOSES_OWNER: &[Fault<Served<Cluster>>] = &[
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
    const STOPPED: u64 = STOPPED;
    const HELD: u64 = HELD;

    fn faults(promise: Promise) -> &'static [Fault<Served<Self>>] {
        if promise == Promise::Exclusion { LOSES_OTHERS } else { LOSES_OWNER }
    }

    fn start(seed: u64, _: Promise) -> Self {
        Self { servers: RedisCluster::start(), target: 0, open: None, rng: Rng::new(seed, 80) }
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.ports()
    }

    fn url_of(&self, ports: &[u16]) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{}://{}?map={}", Self::SCHEME, hosts.join(","), map(&self.servers.ports(), ports))
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        is_best_effort(guarantee)
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let left = |node: usize| {
            // A move that came to nothing leaves keys where nobody looks for them.
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
