//! The network between clients and server: it delays, loses, doubles and holds back messages.

mod client_endpoint;
mod downlink;
mod faults;
mod uplink;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{ClaimId, Instant};
use tokio::sync::mpsc;

use crate::{
    journal::Journal,
    plan::{Fault, Manner, Plan},
    rng::Rng,
    scheduler::{Group, Scheduler},
    server::Machine,
};
use client_endpoint::ClientEndpoint;
pub(crate) use client_endpoint::Delivery;

/// The percentage of messages that take ten times as long.
const SLOW: u64 = 2;

/// The network, and the server behind it.
pub(crate) struct Network {
    journal: Arc<Journal>,
    manner: Manner,
    seed: u64,
    delay: (Duration, Duration),
    inner: Mutex<NetworkState>,
}

struct NetworkState {
    machine: Machine,
    ends: BTreeMap<Group, ClientEndpoint>,
    /// The clients that the server knows to be disconnected.
    deaf: BTreeSet<Group>,
    /// The faults of single requests and notifications, by client and number.
    requests: BTreeMap<(Group, u64), Fault>,
    notifications: BTreeMap<(Group, u64), Fault>,
    /// For each claim, when the last request left by which the server granted or renewed it, or when the server granted
    /// it by itself. The second time is the same, later by as much as the server's clock was set back since.
    asked: BTreeMap<ClaimId, (Instant, Instant)>,
    /// Until when every second answer is late, and by how much.
    lag: (Instant, Duration),
    /// Until when the server is stalled or down.
    still: Instant,
    down: Instant,
}

impl Network {
    /// The network of a plan whose clients have these groups.
    #[must_use]
    pub(crate) fn new(plan: &Plan, groups: &[Group], journal: Arc<Journal>) -> Arc<Self> {
        let (mut requests, mut notifications) = (BTreeMap::new(), BTreeMap::new());
        for fault in &plan.faults {
            match *fault {
                Fault::Request { client, nth, .. } => drop(requests.insert((groups[client], nth), *fault)),
                Fault::Notification { client, nth, .. } => {
                    let _ = notifications.insert((groups[client], nth), *fault);
                }
                _ => {}
            }
        }
        let inner = NetworkState {
            machine: Machine::new(plan.manner, plan.bug, plan.forgets()),
            ends: BTreeMap::new(),
            deaf: BTreeSet::new(),
            requests,
            notifications,
            asked: BTreeMap::new(),
            lag: (Instant::from_nanos(0), Duration::ZERO),
            still: Instant::from_nanos(0),
            down: Instant::from_nanos(0),
        };
        Arc::new(Self {
            journal,
            manner: plan.manner,
            seed: plan.seed,
            delay: plan.delay,
            inner: Mutex::new(inner),
        })
    }

    /// Connects a client to the network. Its messages arrive at the returned receiver.
    pub(crate) fn plug_in(&self, client: Group) -> mpsc::UnboundedReceiver<Delivery> {
        let (inbox, deliveries) = mpsc::unbounded_channel();
        self.lock().ends.insert(client, ClientEndpoint::new(inbox));
        deliveries
    }

    /// Disconnects a client: messages in flight to it are lost.
    pub(crate) fn unplug(&self, client: Group) {
        self.lock().ends.remove(&client);
    }

    /// Calls `read` with the server.
    pub(crate) fn server<R>(&self, read: impl FnOnce(&mut Machine) -> R) -> R {
        read(&mut self.lock().machine)
    }

    /// When the last request left by which the server granted or renewed a claim, or when the server granted it by
    /// itself. No lease of the claim can count from later than the second of these times, which includes the time by
    /// which the server's clock was set back since. A lease that lapsed before that counts from the first.
    pub(crate) fn asked(&self, claim: ClaimId) -> Option<(Instant, Instant)> {
        self.lock().asked.get(&claim).copied()
    }

    /// The journal of the run.
    pub(crate) const fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    fn keeps_order(&self) -> bool {
        self.manner == Manner::Push
    }

    /// How long the `nth` message of a client takes in this direction.
    fn takes(&self, client: Group, way: u64, nth: u64) -> Duration {
        let mut rng = Rng::of(&[self.seed, client.number().into(), way, nth]);
        let nanos = |time: Duration| time.as_nanos() as u64;
        let takes = rng.among(nanos(self.delay.0)..=nanos(self.delay.1));
        Duration::from_nanos(if rng.percent(SLOW) { takes * 10 } else { takes })
    }

    fn scheduler(&self) -> &Arc<Scheduler> {
        self.journal.scheduler()
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
