//! The connection of a client whose wire keeps the order: made when first needed, made again when it breaks, and found broken
//! when the server is silent for too long. As `leasehold-redis` does it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{EngineError, Fault, Notification};
use tokio::sync::Notify;

use super::interface::NetworkInterface;
use crate::server::Request;

/// How long connecting may take.
const DIAL_LIMIT: Duration = Duration::from_millis(600);
/// The pause after a failed attempt to connect, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// While somebody waits for the server, its clock is asked so often.
const PULSE: Duration = Duration::from_millis(400);
/// A server that answers nothing for so long is taken for gone.
const SILENCE: Duration = Duration::from_millis(800);

/// The state of the connection.
#[derive(Default)]
pub(super) struct Link {
    state: Mutex<LinkState>,
    /// Rings when somebody wants a connection.
    wanted: Notify,
    /// Rings when an attempt to connect has ended.
    dialed: Notify,
    /// Rings when the connection is gone.
    broken: Notify,
}

#[derive(Default)]
struct LinkState {
    /// The newest connection.
    number: u64,
    up: bool,
}

impl Link {
    /// This connection broke.
    pub(super) fn broke(&self, conn: u64) {
        if self.up() == Some(conn) {
            self.broken.notify_one();
        }
    }

    /// A newer connection was begun than this.
    pub(super) fn is_past(&self, conn: u64) -> bool {
        conn < self.lock().number
    }

    fn up(&self) -> Option<u64> {
        let state = self.lock();
        state.up.then_some(state.number)
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetworkInterface {
    /// The connection; waits for one attempt to make it if there is none.
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

    /// Keeps the connection from when it is first wanted.
    pub(super) async fn keep_connected(self: Arc<Self>) {
        self.link.wanted.notified().await;
        let (mut pause, mut made) = (FIRST_PAUSE, false);
        loop {
            let conn = self.dial().await;
            self.link.lock().up = conn.is_some();
            if made && conn.is_some() {
                self.mailbox.push(Notification::AskAll);
            }
            self.link.dialed.notify_waiters();
            let Some(conn) = conn else {
                self.host.nap(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            };
            (pause, made) = (FIRST_PAUSE, true);
            tokio::select! {
                biased;
                () = self.link.broken.notified() => {}
                () = self.pulse(conn) => {}
            }
            self.link.lock().up = false;
            self.give_up(conn);
        }
    }

    async fn dial(&self) -> Option<u64> {
        let conn = {
            let mut state = self.link.lock();
            state.number += 1;
            state.number
        };
        tokio::select! {
            biased;
            said = self.call(conn, Request::Hello) => said.is_ok().then_some(conn),
            () = self.host.nap(DIAL_LIMIT) => None,
        }
    }

    /// While somebody waits, asks the server for its time; ends when it does not answer.
    async fn pulse(&self, conn: u64) {
        loop {
            self.host.nap(PULSE).await;
            if !self.is_wanted() {
                continue;
            }
            let said = tokio::select! {
                biased;
                said = self.call(conn, Request::Time) => said.ok(),
                () = self.host.nap(SILENCE) => None,
            };
            if said.is_none() {
                return;
            }
        }
    }
}
