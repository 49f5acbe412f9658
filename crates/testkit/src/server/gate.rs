//! A gate that passes, holds or drops bytes.

use std::{
    io::{Read, Write},
    net::Shutdown,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use socket2::Socket;

/// A gate that passes, holds or drops bytes.
#[derive(Default)]
pub(super) struct Gate {
    passage: Mutex<Passage>,
    /// Notified when `passage` was changed.
    changed: Condvar,
    /// Whether bytes wait at the gate.
    is_holding: AtomicBool,
}

/// The state of a gate.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Passage {
    #[default]
    Open,
    /// Bytes wait.
    Held,
    /// Bytes are dropped, and the connection ends.
    Lost,
}

impl Gate {
    /// Changes the state of the gate.
    pub(super) fn set(&self, passage: Passage) {
        *self.lock() = passage;
        self.changed.notify_all();
    }

    /// Whether bytes are held now.
    pub(super) fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::SeqCst)
    }

    /// Waits while the gate holds bytes. Returns true if the bytes pass, and false if they are dropped.
    pub(super) fn wait_to_pass(&self) -> bool {
        let mut passage = self.lock();
        while *passage == Passage::Held {
            self.is_holding.store(true, Ordering::SeqCst);
            passage = self.changed.wait(passage).unwrap_or_else(PoisonError::into_inner);
        }
        self.is_holding.store(false, Ordering::SeqCst);
        *passage == Passage::Open
    }

    fn lock(&self) -> MutexGuard<'_, Passage> {
        self.passage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies bytes through the gate until the end of `from`, and adds their number to `passed`. Each block is delayed by
/// `delay`. Then closes `to` for writing.
pub(super) fn pump(mut from: Socket, mut to: Socket, gate: &Gate, delay: Duration, passed: &AtomicU64) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !gate.wait_to_pass() {
            return;
        }
        sleep(delay);
        // Counted before they are written, so that a client that has its answer finds the answer counted.
        passed.fetch_add(length as u64, Ordering::SeqCst);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    if gate.wait_to_pass() {
        let _ = to.shutdown(Shutdown::Write);
    }
}
