//! What the network keeps for one client: its connection, its counters, and the cuts that affect it.

use std::time::Duration;

use leasehold_core::Instant;
use tokio::sync::mpsc;

use crate::server::{Notification, Reply};

/// What the network keeps for one client.
pub(super) struct ClientEndpoint {
    /// The messages to the client.
    pub(super) inbox: mpsc::UnboundedSender<Delivery>,
    /// How many requests the client has sent.
    pub(super) requests: u64,
    /// How many notifications were sent to the client.
    pub(super) notifications: u64,
    /// How many messages of any kind were sent to the client.
    pub(super) replies: u64,
    /// Until this time no message passes to the server.
    pub(super) cut_up: Instant,
    /// Until this time no message passes to the client.
    pub(super) cut_down: Instant,
    pub(super) conn: Conn,
}

impl ClientEndpoint {
    pub(super) fn new(inbox: mpsc::UnboundedSender<Delivery>) -> Self {
        let never = Instant::from_nanos(0);
        Self {
            inbox,
            requests: 0,
            notifications: 0,
            replies: 0,
            cut_up: never,
            cut_down: never,
            conn: Conn::default(),
        }
    }
}

/// A connection that keeps the order of its messages. When one message is lost, all later messages of the same
/// direction are lost too.
#[derive(Default)]
pub(super) struct Conn {
    pub(super) number: u64,
    /// When the newest message to the server arrives.
    pub(super) up: Option<Instant>,
    /// When the newest message to the client arrives.
    pub(super) down: Option<Instant>,
    /// Whether all later messages to the server are lost.
    pub(super) up_broken: bool,
    /// Whether all later messages to the client are lost.
    pub(super) down_broken: bool,
}

/// A message that a client receives.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// The answer to the request with this number, and the reading of the server's clock.
    Reply { number: u64, clock: Duration, reply: Reply },
    /// The request with this number was refused because the server is down.
    Refused { number: u64 },
    /// A notification.
    Notification(Notification),
    /// This connection broke.
    Reset { conn: u64 },
}

/// The time at which a message arrives that must not overtake the previous message on its connection. Stores this time
/// as the `last` one.
pub(super) fn in_order(last: &mut Option<Instant>, arrival: Instant) -> Instant {
    let arrival = last.map_or(arrival, |last| arrival.max(last.after(Duration::from_nanos(1))));
    *last.insert(arrival)
}
