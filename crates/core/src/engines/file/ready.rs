//! Waiting for a descriptor that has something to read.

use std::{
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{Handle, Id},
};

use super::claims::lock;
use crate::driver::keeper::env::sleep;

/// The pace of looking where the runtime has no room for one more descriptor.
const UNREGISTERED_INTERVAL: Duration = Duration::from_millis(10);

/// A descriptor that stays registered with the runtime in which it was last waited for: registering it for each wait
/// would cost more than the wait's own system calls.
#[derive(Debug)]
pub(super) struct Ready<T: AsFd> {
    fd: Arc<T>,
    registered: Mutex<Option<(Id, Registered<T>)>>,
}

type Registered<T> = Arc<AsyncFd<Owned<T>>>;

impl<T: AsFd> Ready<T> {
    pub(super) fn new(fd: T) -> Self {
        Self { fd: Arc::new(fd), registered: Mutex::new(None) }
    }

    pub(super) fn get(&self) -> &T {
        &self.fd
    }

    /// Whether the runtime tells what comes: else it is to be looked for.
    pub(super) fn is_registered(&self) -> bool {
        lock(&self.registered).is_some()
    }

    /// Returns when something came since this returned last. Whoever is told must read until nothing is left. Cancel
    /// safe. Needs a tokio runtime with time and I/O.
    pub(super) async fn readable(&self) {
        let Ok(fd) = self.register() else { return sleep(UNREGISTERED_INTERVAL).await };
        match fd.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => sleep(UNREGISTERED_INTERVAL).await,
        }
    }

    fn register(&self) -> std::io::Result<Registered<T>> {
        let here = Handle::current().id();
        let mut registered = lock(&self.registered);
        if let Some((id, fd)) = &*registered
            && *id == here
        {
            return Ok(Arc::clone(fd));
        }
        *registered = None;
        #[expect(
            deprecated,
            reason = "its successor is unsafe; `Owned` keeps what that asks for: one open descriptor"
        )]
        let fd = Arc::new(AsyncFd::with_interest(Owned(Arc::clone(&self.fd)), Interest::READABLE)?);
        *registered = Some((here, Arc::clone(&fd)));
        Ok(fd)
    }
}

/// Keeps the descriptor open, and the same, for as long as it is registered.
#[derive(Debug)]
struct Owned<T>(Arc<T>);

impl<T: AsFd> AsRawFd for Owned<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
