//! A client's end of the network: its requests in flight, and the messages that arrive for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{
    ClaimId, Clock, EngineError, Fault, InFlight, Instant, Loss, Mailbox, Notification as CoreNotification,
    ServerClock,
};
use tokio::sync::{mpsc, oneshot};

use super::{Host, link::Link};
use crate::{
    bug::Bug,
    network::{Delivery, Network},
    plan::Protocol,
    server::{Notification, Reply, Request},
};

/// How long the client library waits for an answer. This is sometimes longer than core waits, because core has less
/// time for a renewal.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_millis(700);

/// The result of a call on the network.
pub(super) type RequestResult = Result<Reply, EngineError>;

/// A client's end of the network.
pub(super) struct NetworkInterface {
    pub(super) host: Host,
    pub(super) protocol: Protocol,
    pub(super) bug: Option<Bug>,
    pub(super) mailbox: Mailbox,
    pub(super) in_flight: InFlight,
    pub(super) link: Link,
    network: Arc<Network>,
    /// What the client knows of the server's clock.
    server_clock: Mutex<ServerClock>,
    pending: Mutex<PendingCalls>,
    /// The claims that are in a queue.
    waiting: Mutex<BTreeSet<ClaimId>>,
}

/// The requests that wait for their answers.
#[derive(Default)]
struct PendingCalls {
    /// The requests, by number.
    calls: BTreeMap<u64, Call>,
    /// The number of the last request.
    last_number: u64,
}

/// A request that waits for its answer.
struct Call {
    conn: u64,
    sent: Instant,
    reply: oneshot::Sender<RequestResult>,
}

impl NetworkInterface {
    pub(super) fn new(host: Host, network: Arc<Network>, protocol: Protocol, bug: Option<Bug>) -> Self {
        Self {
            host,
            protocol,
            bug,
            mailbox: Mailbox::default(),
            in_flight: InFlight::default(),
            link: Link::default(),
            network,
            server_clock: Mutex::default(),
            pending: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.host.clock.now()
    }

    /// Sends a request on a connection and waits for its result.
    pub(super) async fn call(&self, conn: u64, request: Request) -> RequestResult {
        let (reply, answer) = oneshot::channel();
        let sent = self.now();
        let number = {
            let mut pending = lock(&self.pending);
            pending.last_number += 1;
            let number = pending.last_number;
            pending.calls.insert(number, Call { conn, sent, reply });
            number
        };
        self.network.send(self.host.group, conn, number, request);
        tokio::select! {
            biased;
            reply = answer => reply.unwrap_or_else(|_| Err(self.unknown("the connection broke"))),
            () = self.host.nap(ANSWER_LIMIT) => Err(self.unknown("no answer came in time")),
        }
    }

    /// Handles every message that arrives, until the client is unplugged from the network.
    pub(super) async fn listen(self: Arc<Self>, mut inbox: mpsc::UnboundedReceiver<Delivery>) {
        while let Some(delivery) = inbox.recv().await {
            match delivery {
                Delivery::Reply { number, clock, reply } => self.handle_reply(number, clock, reply),
                Delivery::Refused { number } => {
                    let refused = EngineError::new(Fault::Retry, "the server is down");
                    if let Some(call) = self.take_call(number) {
                        let _ = call.reply.send(Err(refused));
                    }
                }
                Delivery::Notification(notification) => self.receive(notification),
                Delivery::Reset { conn } => self.link.broke(conn),
            }
        }
    }

    /// Ends the requests that were sent on a broken connection, because they get no answer any more.
    pub(super) fn give_up(&self, conn: u64) {
        // These calls are dropped after the lock is released, because the drop wakes other tasks.
        let _gone: Vec<Call> = {
            let mut pending = lock(&self.pending);
            let calls = std::mem::take(&mut pending.calls);
            let (gone, remaining) = calls.into_iter().partition(|(_, call)| call.conn == conn);
            pending.calls = remaining;
            let gone: BTreeMap<u64, Call> = gone;
            gone.into_values().collect()
        };
    }

    /// Records whether a claim is in a queue.
    pub(super) fn note_waiting(&self, claim: ClaimId, waits: bool) {
        let mut waiting = lock(&self.waiting);
        let _ = if waits { waiting.insert(claim) } else { waiting.remove(&claim) };
    }

    /// Whether a claim waits for a notification, or a request waits for its answer.
    pub(super) fn needs_connection(&self) -> bool {
        !lock(&self.waiting).is_empty() || !lock(&self.pending).calls.is_empty()
    }

    /// Disconnects the client from the network.
    pub(super) fn unplug(&self) {
        self.network.unplug(self.host.group);
    }

    /// The error for a request whose outcome is unknown.
    pub(super) fn unknown(&self, message: &str) -> EngineError {
        let fault =
            if self.bug == Some(Bug::ReportsUnknownAsNotApplied) { Fault::Retry } else { Fault::Unknown };
        EngineError::new(fault, message)
    }

    /// Handles an answer and the server's clock in it.
    fn handle_reply(&self, number: u64, clock: Duration, reply: Reply) {
        let Some(call) = self.take_call(number) else { return };
        // Answers on an old connection, which was replaced by a newer one, are ignored.
        if self.protocol == Protocol::Push && self.link.is_past(call.conn) {
            return;
        }
        let now = self.now();
        let ahead = lock(&self.server_clock).learn(call.sent, now, clock);
        if ahead.is_some() {
            self.network.journal().doubt(self.host.group);
            self.mailbox.push(CoreNotification::Doubt);
        }
        let _ = call.reply.send(Ok(reply));
    }

    /// Passes a notification on to core.
    fn receive(&self, notification: Notification) {
        let notification = match notification {
            Notification::Granted { name, id, .. } if self.protocol == Protocol::Watch => {
                CoreNotification::Recheck { name, id }
            }
            Notification::Granted { name, id, grant, at } => {
                self.note_waiting(id, false);
                let since = if self.bug == Some(Bug::DatesByArrival) {
                    Some(self.now())
                } else {
                    lock(&self.server_clock).not_after(at)
                };
                CoreNotification::Granted { name, id, grant, since }
            }
            Notification::Broken { name, id } => CoreNotification::Lost { name, id, loss: Loss::Broken },
        };
        self.mailbox.push(notification);
    }

    /// Removes a request that waits.
    fn take_call(&self, number: u64) -> Option<Call> {
        lock(&self.pending).calls.remove(&number)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
