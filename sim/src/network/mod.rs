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
    plan::{Fault, Plan, Protocol},
    rng::Rng,
    scheduler::{Group, Scheduler},
    server::Machine,
};
use client_endpoint::ClientEndpoint;
pub(crate) use client_endpoint::Delivery;

/// The percentage of messages that are slow.
const SLOW_PERCENT: u64 = 2;
/// How many times longer slow messages take than other messages.
const SLOWNESS: u64 = 10;

/// The numbers of the independent streams of random numbers.
mod stream {
    /// The delays of messages to the server.
    pub(super) const UPLINK: u64 = 0;
    /// The delays of messages to clients.
    pub(super) const DOWNLINK: u64 = 1;
    /// Which sides notice a broken connection.
    pub(super) const BREAK: u64 = 2;
    /// The delays until a client notices a broken connection.
    pub(super) const RESET: u64 = 3;
}

/// The network, and the server behind it.
pub(crate) struct Network {
    journal: Arc<Journal>,
    protocol: Protocol,
    seed: u64,
    /// The least and the largest delay of a message.
    delay: (Duration, Duration),
    inner: Mutex<NetworkState>,
}

/// The state of the network.
struct NetworkState {
    machine: Machine,
    /// The clients.
    endpoints: BTreeMap<Group, ClientEndpoint>,
    /// The clients that the server knows to be gone.
    disconnected: BTreeSet<Group>,
    /// The faults of single requests, by client and number.
    requests: BTreeMap<(Group, u64), Fault>,
    /// The faults of single notifications, by client and number.
    notifications: BTreeMap<(Group, u64), Fault>,
    /// For each claim, two times. The first is the latest time from which its lease counts: the time at which the
    /// request was sent by which the server last granted or renewed the claim, or the time at which the server granted
    /// the claim by itself. The second is the first time plus the time by which the server's clock was set back since
    /// then.
    lease_start: BTreeMap<ClaimId, (Instant, Instant)>,
    /// Until when every second message to each client is late, and by how much.
    lag: (Instant, Duration),
    /// Until when the server is stalled.
    stalled_until: Instant,
    /// Until when the server is down.
    down_until: Instant,
}

impl Network {
    /// The network of a plan. `groups` are the groups of its clients.
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
            machine: Machine::new(plan.protocol, plan.bug, plan.forgets()),
            endpoints: BTreeMap::new(),
            disconnected: BTreeSet::new(),
            requests,
            notifications,
            lease_start: BTreeMap::new(),
            lag: (Instant::from_nanos(0), Duration::ZERO),
            stalled_until: Instant::from_nanos(0),
            down_until: Instant::from_nanos(0),
        };
        Arc::new(Self {
            journal,
            protocol: plan.protocol,
            seed: plan.seed,
            delay: plan.delay,
            inner: Mutex::new(inner),
        })
    }

    /// Connects a client to the network. Messages to the client arrive at the returned receiver.
    pub(crate) fn plug_in(&self, client: Group) -> mpsc::UnboundedReceiver<Delivery> {
        let (inbox, deliveries) = mpsc::unbounded_channel();
        self.lock().endpoints.insert(client, ClientEndpoint::new(inbox));
        deliveries
    }

    /// Disconnects a client. Messages in flight to the client are lost.
    pub(crate) fn unplug(&self, client: Group) {
        self.lock().endpoints.remove(&client);
    }

    /// Calls `read` with the machine of the server.
    pub(crate) fn server<R>(&self, read: impl FnOnce(&mut Machine) -> R) -> R {
        read(&mut self.lock().machine)
    }

    /// The two times from which the lease of a claim counts: see [`NetworkState`]. The second time includes the time by
    /// which the server's clock was set back; the lease cannot count from any later time. A lease that lapsed before
    /// the clock was set back counts from the first time.
    pub(crate) fn lease_start(&self, claim: ClaimId) -> Option<(Instant, Instant)> {
        self.lock().lease_start.get(&claim).copied()
    }

    /// The journal of the run.
    pub(crate) const fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Whether messages of one connection arrive in the order in which they were sent.
    fn keeps_order(&self) -> bool {
        self.protocol == Protocol::Push
    }

    /// The delay of the `nth` message of a client in this direction, see [`stream`].
    fn message_delay(&self, client: Group, way: u64, nth: u64) -> Duration {
        let mut rng = Rng::of(&[self.seed, client.number().into(), way, nth]);
        let nanos = |time: Duration| time.as_nanos() as u64;
        let message_delay = rng.among(nanos(self.delay.0)..=nanos(self.delay.1));
        Duration::from_nanos(if rng.percent(SLOW_PERCENT) { message_delay * SLOWNESS } else { message_delay })
    }

    fn scheduler(&self) -> &Arc<Scheduler> {
        self.journal.scheduler()
    }

    fn lock(&self) -> MutexGuard<'_, NetworkState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
