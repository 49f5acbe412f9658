//! One node: its connection, what is known of its clock and process, and its pending releases.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use leasehold_core::{ClaimId, Clock, Contact, EngineError, Fault, InFlight, Instant, Mailbox};

use super::{
    offset::{ClockLead, ClockOffset},
    pending_releases::PendingReleases,
};
use crate::{
    config::Config,
    conn::Conn,
    error::Refused,
    lock_mutex,
    outbox::{Destination, Items, Values},
    reach::{Client, OneServer},
    runtime,
    scripts::Script,
    servers::Servers,
};

/// The shortest time between the end of an attempt to connect and the next attempt.
const MIN_DIAL_INTERVAL: Duration = Duration::from_millis(20);

/// One of the servers of the Redlock.
pub(super) struct Node {
    /// The address, for messages.
    pub(super) address: String,
    /// What the connection needs: the configuration, the clock, the channel for notifications.
    pub(super) client: Arc<Client>,
    /// The connection, which is made again when it breaks.
    link: OneServer,
    /// The requests that can still arrive at the node after their claim ended.
    pub(super) in_flight: InFlight,
    /// How far the clock of the node is ahead of ours.
    clock_offset: Mutex<ClockOffset>,
    /// The number of the connection on which an answer was late and no answer has come since then; 0 if there is none.
    /// Claims do not wait for a node with such a connection.
    late_connection: AtomicU64,
    /// Whether an attempt to connect is running in the background.
    is_dialing: AtomicBool,
    /// Whether a connection to a server of the right kind was made at some time.
    was_connected: AtomicBool,
    /// How the last attempt to connect ended.
    dial_state: Mutex<DialState>,
    /// Releases that could not be sent yet.
    pub(super) pending_releases: PendingReleases,
}

/// The result of the last attempt to connect.
#[derive(Default)]
struct DialState {
    /// The error of the last attempt to connect, if it failed.
    error: Option<EngineError>,
    /// The earliest time of the next attempt.
    next_dial_at: Option<Instant>,
}

/// When a request to a node was sent, and when its answer came.
#[derive(Clone, Copy)]
pub(super) struct RoundTrip {
    pub(super) sent: Instant,
    pub(super) answered: Instant,
}

impl Node {
    /// A node without a connection yet. `node_count` nodes share the time limit for connecting.
    pub(super) fn new(
        config: &Config,
        node_count: usize,
        id: ClaimId,
        clock: &Arc<dyn Clock>,
        mailbox: &Arc<Mailbox>,
        contact: &Contact,
    ) -> Arc<Self> {
        let (address, server) = match &config.servers {
            Servers::One(address) => (address.to_string(), config.server(address.clone(), node_count)),
            other => unreachable!("nodes are judged when they are named: {other:?}"),
        };
        let client = Client::with_mailbox(config.clone(), id, Arc::clone(clock), Arc::clone(mailbox));
        let link = OneServer::independent(&client, server, contact);
        let (in_flight, late_connection, is_dialing, was_connected, dial_state, pending_releases) =
            Default::default();
        let clock_offset = Mutex::default();
        Arc::new(Self {
            address,
            client,
            link,
            in_flight,
            clock_offset,
            late_connection,
            is_dialing,
            was_connected,
            dial_state,
            pending_releases,
        })
    }

    /// The connection, if there is one and it answers in time; otherwise `None`.
    pub(super) fn responsive_conn(&self) -> Option<Arc<Conn>> {
        self.link.live_conn().filter(|conn| self.late_connection.load(Ordering::Relaxed) != conn.number)
    }

    /// The connection, if there is one, even if it answers late.
    pub(super) fn conn(&self) -> Option<Arc<Conn>> {
        self.link.live_conn()
    }

    /// The reason why the node cannot be asked.
    pub(super) fn unavailable(&self) -> EngineError {
        if self.link.live_conn().is_some() {
            return self.with_name(&EngineError::new(Fault::Retry, "answers late"));
        }
        match &lock_mutex(&self.dial_state).error {
            Some(error) => self.with_name(error),
            None => self.with_name(&EngineError::new(Fault::Retry, "not connected")),
        }
    }

    /// The error, with the address of this node in its message.
    pub(super) fn with_name(&self, error: &EngineError) -> EngineError {
        let is_named = error.message.contains(&self.address);
        let message =
            if is_named { error.message.clone() } else { format!("{}: {}", self.address, error.message) };
        EngineError::new(error.fault, message)
    }

    /// Connects and waits for the result.
    pub(super) async fn connect(&self) -> Result<(), EngineError> {
        let result = self.link.conn().await;
        let mut dial_state = lock_mutex(&self.dial_state);
        dial_state.next_dial_at = Some(self.client.clock.now().after(MIN_DIAL_INTERVAL));
        match result {
            Ok(_) => {
                dial_state.error = None;
                self.was_connected.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                dial_state.error = Some(error.without_source());
                Err(self.with_name(&error))
            }
        }
    }

    /// Connects in the background. Does nothing if there is a connection, if an attempt is running, or if the last
    /// attempt ended less than [`MIN_DIAL_INTERVAL`] ago.
    pub(super) fn dial(self: &Arc<Self>) {
        let too_soon = lock_mutex(&self.dial_state)
            .next_dial_at
            .is_some_and(|next_dial_at| self.client.clock.now() < next_dial_at);
        if self.link.live_conn().is_some() || too_soon || self.is_dialing.swap(true, Ordering::AcqRel) {
            return;
        }
        let node = Arc::clone(self);
        runtime::detach(async move {
            let _ = node.connect().await;
            node.is_dialing.store(false, Ordering::Release);
        });
    }

    /// The error of a node that is a server of the wrong kind, and never was one of the right kind.
    pub(super) fn wrong_kind_error(&self) -> Option<EngineError> {
        if self.was_connected.load(Ordering::Acquire) {
            return None;
        }
        let dial_state = lock_mutex(&self.dial_state);
        let error = dial_state.error.as_ref().filter(|error| error.fault == Fault::Misconfigured);
        error.map(|error| self.with_name(error))
    }

    /// Runs a script on the node.
    pub(super) async fn ask(
        &self,
        conn: &Conn,
        script: Script,
        items: Items,
    ) -> Result<(Values, RoundTrip), EngineError> {
        let clock = &self.client.clock;
        let sent = clock.now();
        let reply = conn.run(Destination::default(), script, items).await;
        // Every answer shows that the node is responsive, even if the answer is an error.
        if !reply.as_ref().is_err_and(Refused::is_unknown) {
            let _ =
                self.late_connection.compare_exchange(conn.number, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        match reply {
            Ok(reply) => Ok((reply, RoundTrip { sent, answered: clock.now() })),
            Err(Refused::Demoted(error)) => {
                Err(self.with_name(&self.link.handle_demotion(conn.number, error)))
            }
            Err(refused) => Err(self.with_name(&EngineError::from(refused))),
        }
    }

    /// Marks the connection as late: claims do not wait for its answers until an answer comes on it.
    pub(super) fn mark_late(&self, connection: u64) {
        self.late_connection.store(connection, Ordering::Relaxed);
    }

    /// Learns from the node's time in an answer; returns how far the node's clock is ahead, if that is known.
    pub(super) fn learn(&self, round_trip: RoundTrip, node_micros: u64) -> Option<ClockLead> {
        let mut clock_offset = lock_mutex(&self.clock_offset);
        clock_offset.learn(round_trip.sent, round_trip.answered, node_micros);
        clock_offset.clock_lead(round_trip.answered)
    }

    /// How far the node's clock is ahead, if that is known.
    pub(super) fn clock_lead(&self, now: Instant) -> Option<ClockLead> {
        lock_mutex(&self.clock_offset).clock_lead(now)
    }

    /// For how long from now the node's votes do not count, because its clock stepped forward; `None` if they count.
    pub(super) fn suspended_for(&self, now: Instant, max_ttl: Duration) -> Option<Duration> {
        lock_mutex(&self.clock_offset).suspended_for(now, max_ttl)
    }

    /// The process of the newest connection: its run id, and when it was started, by its own clock in microseconds.
    pub(super) fn run_id_and_start(&self) -> Option<(String, u64)> {
        self.link.listener().process.run_id_and_start()
    }

    /// Records whether the claim waits: while claims wait, the pulse asks the node for its time.
    pub(super) fn set_waiting(&self, claim: ClaimId, waits: bool) {
        self.link.listener().set_waiting(claim, waits);
    }

    /// Makes a broken connection again, in the background. Never returns.
    pub(super) async fn mend(&self) {
        self.link.mend().await;
    }
}
