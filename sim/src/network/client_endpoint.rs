//! The network's side of one client.

use std::time::Duration;

use leasehold_core::Instant;
use tokio::sync::mpsc;

use crate::server::{Notification, Reply};

/// The network's side of one client.
pub(super) struct ClientEndpoint {
    pub(super) inbox: mpsc::UnboundedSender<Delivery>,
    pub(super) requests: u64,
    pub(super) notifications: u64,
    pub(super) replies: u64,
    /// Until when nothing passes.
    pub(super) cut_up: Instant,
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

/// A connection that keeps the order: when a message is lost on it, so are all that follow.
#[derive(Default)]
pub(super) struct Conn {
    pub(super) number: u64,
    /// When the last message arrives.
    pub(super) up: Option<Instant>,
    pub(super) down: Option<Instant>,
    pub(super) up_broken: bool,
    pub(super) down_broken: bool,
}

/// What a client receives.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// The answer to the request with this number, and the server's clock.
    Reply { number: u64, clock: Duration, reply: Reply },
    /// The request with this number was not let in.
    Refused { number: u64 },
    /// News.
    Notification(Notification),
    /// This connection broke.
    Reset { conn: u64 },
}

/// When a message arrives that follows another on its connection.
pub(super) fn in_order(last: &mut Option<Instant>, arrival: Instant) -> Instant {
    let arrival = last.map_or(arrival, |last| arrival.max(last.after(Duration::from_nanos(1))));
    *last.insert(arrival)
}
