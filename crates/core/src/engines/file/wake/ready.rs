//! Waits until a descriptor is readable.

use std::{
    os::fd::{AsFd, AsRawFd, RawFd},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{Interest, unix::AsyncFd},
    runtime::{Handle, Id},
};

use super::super::claims::lock;
use crate::driver::keeper::env::sleep;

/// How often a caller checks where the runtime cannot register one more descriptor.
const UNREGISTERED_INTERVAL: Duration = Duration::from_millis(10);

/// A descriptor that stays registered with the runtime in which it was last waited for: to register it for each wait
/// would cost more than the system calls of the wait itself.
#[derive(Debug)]
pub(crate) struct Ready<T: AsFd> {
    fd: Arc<T>,
    registered: Mutex<Option<(Id, Registered<T>)>>,
}

type Registered<T> = Arc<AsyncFd<Owned<T>>>;

impl<T: AsFd> Ready<T> {
    pub(crate) fn new(fd: T) -> Self {
        Self { fd: Arc::new(fd), registered: Mutex::new(None) }
    }

    pub(crate) fn get(&self) -> &T {
        &self.fd
    }

    /// Whether the runtime reports that it is readable: otherwise the caller has to check.
    pub(crate) fn is_registered(&self) -> bool {
        lock(&self.registered).is_some()
    }

    /// Returns when data arrived since the last return. The caller must then read until nothing is left. Cancel safe.
    /// Needs a tokio runtime with time and I/O.
    pub(crate) async fn readable(&self) {
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
            reason = "its successor is unsafe; `Owned` guarantees its requirement: one open descriptor"
        )]
        let fd = Arc::new(AsyncFd::with_interest(Owned(Arc::clone(&self.fd)), Interest::READABLE)?);
        *registered = Some((here, Arc::clone(&fd)));
        Ok(fd)
    }
}

/// Keeps the same descriptor open while it is registered.
#[derive(Debug)]
struct Owned<T>(Arc<T>);

impl<T: AsFd> AsRawFd for Owned<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
