//! The connection of a client, for a network that keeps the order of messages. The connection is made when it is first
//! needed, and is made again when it breaks. It also counts as broken when the server is silent for too long, as in
//! `leasehold-redis`.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{EngineError, Fault, Notification};
use tokio::sync::Notify;

use super::interface::NetworkInterface;
use crate::server::Request;

/// The time limit for connecting.
const DIAL_LIMIT: Duration = Duration::from_millis(600);
/// The pause after the first failed attempt to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause after a failed attempt to connect.
const MAX_PAUSE: Duration = Duration::from_millis(500);
/// The interval at which the client asks for the server's time while a request or a waiter needs the connection.
const PULSE_INTERVAL: Duration = Duration::from_millis(400);
/// If the server does not answer the question for its time within this limit, the connection counts as broken.
const SILENCE_LIMIT: Duration = Duration::from_millis(800);

/// The state of the connection.
#[derive(Default)]
pub(super) struct Link {
    state: Mutex<LinkState>,
    /// Notified when a connection is wanted.
    wanted: Notify,
    /// Notified when an attempt to connect has ended.
    dialed: Notify,
    /// Notified when the connection has broken.
    broken: Notify,
}

#[derive(Default)]
struct LinkState {
    /// The number of the newest connection.
    number: u64,
    /// Whether the newest connection is usable.
    up: bool,
}

impl Link {
    /// Marks a connection as broken.
    pub(super) fn broke(&self, conn: u64) {
        if self.up() == Some(conn) {
            self.broken.notify_one();
        }
    }

    /// Whether a newer connection than `conn` was begun.
    pub(super) fn is_past(&self, conn: u64) -> bool {
        conn < self.lock().number
    }

    /// The number of the usable connection, if there is one.
    fn up(&self) -> Option<u64> {
        let state = self.lock();
        state.up.then_some(state.number)
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkInterface {
    /// The usable connection. If there is none, waits until the next attempt to connect has ended. If this attempt
    /// fails, returns an error.
    pub(super) async fn conn(&self) -> Result<u64, EngineError> {
        let mut dialed = std::pin::pin!(self.link.dialed.notified());
        dialed.as_mut().enable();
        if let Some(conn) = self.link.up() {
            return Ok(conn);
        }
        self.link.wanted.notify_one();
        dialed.await;
        self.link.up().ok_or_else(|| EngineError::new(Fault::Retry, "cannot connect"))
    }

    /// Waits until a connection is first wanted. From then on, makes a new connection whenever the current one breaks.
    pub(super) async fn keep_connected(self: Arc<Self>) {
        self.link.wanted.notified().await;
        let (mut pause, mut was_connected) = (FIRST_PAUSE, false);
        loop {
            let conn = self.dial().await;
            self.link.lock().up = conn.is_some();
            if was_connected && conn.is_some() {
                self.mailbox.push(Notification::AskAll);
            }
            self.link.dialed.notify_waiters();
            let Some(conn) = conn else {
                self.host.nap(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
                continue;
            };
            (pause, was_connected) = (FIRST_PAUSE, true);
            tokio::select! {
                biased;
                () = self.link.broken.notified() => {}
                () = self.pulse(conn) => {}
            }
            self.link.lock().up = false;
            self.give_up(conn);
        }
    }

    /// Tries to make a connection.
    async fn dial(&self) -> Option<u64> {
        let conn = {
            let mut state = self.link.lock();
            state.number += 1;
            state.number
        };
        tokio::select! {
            biased;
            reply = self.call(conn, Request::Hello) => reply.is_ok().then_some(conn),
            () = self.host.nap(DIAL_LIMIT) => None,
        }
    }

    /// Asks the server for its time again and again, while a waiter or a request needs the connection. Returns when the
    /// server has not answered in time.
    async fn pulse(&self, conn: u64) {
        loop {
            self.host.nap(PULSE_INTERVAL).await;
            if !self.needs_connection() {
                continue;
            }
            let reply = tokio::select! {
                biased;
                reply = self.call(conn, Request::Time) => reply.ok(),
                () = self.host.nap(SILENCE_LIMIT) => None,
            };
            if reply.is_none() {
                return;
            }
        }
    }
}
