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

use super::super::claims::lock_mutex;
use crate::driver::keeper::env::sleep;

/// The interval at which a caller checks the descriptor where the runtime cannot register one more.
const UNREGISTERED_INTERVAL: Duration = Duration::from_millis(10);

/// A descriptor that stays registered with the runtime in which it was last waited for: to register it for each wait
/// would cost more than the system calls of the wait itself.
#[derive(Debug)]
pub(crate) struct ReadableFd<T: AsFd> {
    fd: Arc<T>,
    /// The runtime with which the descriptor is registered, and the registration.
    registered: Mutex<Option<(Id, Registered<T>)>>,
}

type Registered<T> = Arc<AsyncFd<SharedFd<T>>>;

impl<T: AsFd> ReadableFd<T> {
    pub(crate) fn new(fd: T) -> Self {
        Self { fd: Arc::new(fd), registered: Mutex::new(None) }
    }

    pub(crate) fn get(&self) -> &T {
        &self.fd
    }

    /// Whether the runtime reports when the descriptor becomes readable: otherwise the caller has to check.
    pub(crate) fn is_registered(&self) -> bool {
        lock_mutex(&self.registered).is_some()
    }

    /// Returns when data has arrived after the last return of this function. The caller must then read until nothing is
    /// left. Cancel safe. Needs a tokio runtime with time and I/O.
    pub(crate) async fn readable(&self) {
        let Ok(fd) = self.register() else { return sleep(UNREGISTERED_INTERVAL).await };
        match fd.readable().await {
            Ok(mut guard) => guard.clear_ready(),
            Err(_) => sleep(UNREGISTERED_INTERVAL).await,
        }
    }

    /// The registration with the current runtime, made if there is none.
    fn register(&self) -> std::io::Result<Registered<T>> {
        let current_runtime = Handle::current().id();
        let mut registered = lock_mutex(&self.registered);
        if let Some((runtime, fd)) = &*registered
            && *runtime == current_runtime
        {
            return Ok(Arc::clone(fd));
        }
        *registered = None;
        #[expect(
            deprecated,
            reason = "its successor is unsafe; `Owned` guarantees its requirement: one open descriptor"
        )]
        let fd = Arc::new(AsyncFd::with_interest(SharedFd(Arc::clone(&self.fd)), Interest::READABLE)?);
        *registered = Some((current_runtime, Arc::clone(&fd)));
        Ok(fd)
    }
}

/// Keeps the same descriptor open while it is registered.
#[derive(Debug)]
struct SharedFd<T>(Arc<T>);

impl<T: AsFd> AsRawFd for SharedFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}
