//! A Redlock on three independent Redis masters; one master at a time is under a fault. It is killed, emptied or
//! stopped, it loses its connections, or its clock steps. Every round promises exclusion.

use std::{collections::BTreeMap, thread::sleep, time::Duration};

use leasehold_core::Guarantee;
use leasehold_testkit::server::RedisServer;

use super::{is_best_effort, send_when_loaded};
use crate::{
    rng::Rng,
    served::{Served, System},
    world::{Fault, Promise},
};

/// The engine name on the command line.
pub const REDLOCK: &str = "redlock";

/// The number of masters.
const NODES: u64 = 3;
/// By how many seconds the clocks of the nodes are ahead. So each node seems to have run for so long that it has its
/// vote from the start.
const CLOCK_AHEAD: i64 = 1_000_000;
/// By how many seconds the clock of a node is set forward or back: by more than the ttl of a lease.
const STEP: i64 = 3;
/// The longest ttl of clients, in seconds.
const MAX_TTL: u64 = 1;
/// How long a restarted node has no vote: a little more than twice the longest ttl.
const QUARANTINE: Duration = Duration::from_millis(2500);

const RESTARTED_EMPTY: &str = "node restarted empty";
const EMPTIED: &str = "node emptied";
const CLOCK_STEPS: &str = "clock of a node steps";
/// The faults by which a node loses its locks. After such a fault the node has no vote until the leases of the lost
/// locks have ended.
pub const VOTES_LOST_BY: &[&str] = &[RESTARTED_EMPTY, EMPTIED, CLOCK_STEPS];

/// The nodes.
pub struct Nodes {
    servers: Vec<RedisServer>,
    /// The node under a fault.
    target: usize,
    rng: Rng,
}

impl Nodes {
    /// Begins a fault at a random node.
    fn apply(&mut self, act: fn(&mut RedisServer)) {
        self.target = self.rng.below(NODES) as usize;
        act(&mut self.servers[self.target]);
    }

    /// Ends the fault, and waits until the node has its vote again. If another node came under a fault earlier, two of
    /// the three nodes would lack a vote, and no claim could be granted.
    fn end(&mut self, act: fn(&mut RedisServer)) {
        act(&mut self.servers[self.target]);
        sleep(QUARANTINE);
    }
}

/// The faults of a node.
const FAULTS: &[Fault<Served<Nodes>>] = &[
    Fault {
        name: RESTARTED_EMPTY,
        lasts: 5..1500,
        begin: |w, _| w.system.apply(RedisServer::kill),
        end: |w, _| w.system.end(RedisServer::restart),
    },
    Fault {
        name: EMPTIED,
        lasts: 1..10,
        begin: |w, _| w.system.apply(|server| send_when_loaded(server, &["FLUSHALL"])),
        end: |w, _| w.system.end(|_| {}),
    },
    Fault {
        name: "node stops",
        lasts: 20..2500,
        begin: |w, _| w.system.apply(|server| server.pause()),
        end: |w, _| w.system.end(|server| server.resume()),
    },
    Fault {
        name: "connections of a node killed",
        lasts: 1..10,
        begin: |w, _| {
            w.system.apply(|server| send_when_loaded(server, &["CLIENT", "KILL", "TYPE", "normal"]))
        },
        end: |w, _| w.system.end(|_| {}),
    },
    Fault {
        name: CLOCK_STEPS,
        lasts: 20..800,
        begin: |w, _| w.system.apply(|server| server.set_clock(CLOCK_AHEAD + STEP)),
        end: |w, _| w.system.end(|server| server.set_clock(CLOCK_AHEAD)),
    },
    Fault {
        name: "clock of a node stumbles",
        lasts: 20..800,
        begin: |w, _| w.system.apply(|server| server.set_clock(CLOCK_AHEAD - STEP)),
        end: |w, _| w.system.end(|server| server.set_clock(CLOCK_AHEAD)),
    },
];

impl System for Nodes {
    const SCHEME: &'static str = "redlock";
    const MAX_STOP: u64 = 2500;
    const MAX_HOLD_BACK: u64 = 1500;

    fn faults(_: Promise) -> &'static [Fault<Served<Self>>] {
        FAULTS
    }

    fn start(seed: u64, _: Promise) -> Self {
        let servers: Vec<_> = (0..NODES).map(|_| RedisServer::with_clock(&[])).collect();
        for server in &servers {
            server.set_clock(CLOCK_AHEAD);
            send_when_loaded(server, &["SET", "leasehold:{}B", "1 1000"]);
        }
        Self { servers, target: 0, rng: Rng::new(seed, 83) }
    }

    fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(RedisServer::port).collect()
    }

    fn url_of(&self, ports: &[u16]) -> String {
        let servers: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("{}?max_ttl={MAX_TTL}s", Self::url(&servers.join(",")))
    }

    fn accepts_guarantee(&self, guarantee: &Guarantee, _: Promise) -> bool {
        is_best_effort(guarantee)
    }

    fn leftovers(&self) -> BTreeMap<String, u64> {
        let keys = self.servers.iter().flat_map(|server| server.command(&["--raw", "KEYS", "*"]));
        keys.filter(|key| !key.is_empty() && !may_remain(key)).map(|key| (format!("key {key}"), 1)).collect()
    }
}

/// Whether a key is allowed to remain after all clients have ended. Such keys are newest tokens, tombstones, the list
/// of waiters that a release notifies, and the time from which on the node has its data.
fn may_remain(key: &str) -> bool {
    let kind = key.strip_prefix("leasehold:{").and_then(|rest| rest.split_once('}'));
    kind.is_some_and(|(_, kind)| kind == "B" || kind.starts_with(['T', 'D', 'W', 'V']))
}
