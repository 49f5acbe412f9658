//! What lets bytes pass, or not.

use std::{
    io::{Read, Write},
    net::Shutdown,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::sleep,
    time::Duration,
};

use socket2::Socket;

/// Lets bytes pass, or not.
#[derive(Default)]
pub(super) struct Gate {
    passage: Mutex<Passage>,
    changed: Condvar,
    holds: AtomicBool,
}

/// What happens to bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Passage {
    #[default]
    Open,
    /// They wait.
    Held,
    /// They vanish, and the connection with them.
    Lost,
}

impl Gate {
    pub(super) fn set(&self, passage: Passage) {
        *self.lock() = passage;
        self.changed.notify_all();
    }

    /// Whether there are bytes that wait.
    pub(super) fn holds(&self) -> bool {
        self.holds.load(Ordering::SeqCst)
    }

    /// Waits while bytes are held; whether they pass then.
    pub(super) fn pass(&self) -> bool {
        let mut passage = self.lock();
        while *passage == Passage::Held {
            self.holds.store(true, Ordering::SeqCst);
            passage = self.changed.wait(passage).unwrap_or_else(PoisonError::into_inner);
        }
        self.holds.store(false, Ordering::SeqCst);
        *passage == Passage::Open
    }

    fn lock(&self) -> MutexGuard<'_, Passage> {
        self.passage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies until the end of `from`, then ends `to`.
pub(super) fn pump(mut from: Socket, mut to: Socket, gate: &Gate, delay: Duration) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if !gate.pass() {
            return;
        }
        sleep(delay);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    if gate.pass() {
        let _ = to.shutdown(Shutdown::Write);
    }
}
