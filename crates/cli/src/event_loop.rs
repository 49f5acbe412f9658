//! The event loop of every wait: it waits for signals, futures and times, on the single thread of this command.

use std::{
    cell::Cell,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout},
    sys::{
        eventfd::{EfdFlags, EventFd},
        signal::Signal,
    },
    time::{ClockId, clock_gettime},
};

use crate::signals::Signals;

/// Waits for a signal, for any future that was polled through this value, or until a time has passed.
pub(crate) struct EventLoop {
    signals: Signals,
    /// Becomes readable when a future that was polled can make progress.
    eventfd: Arc<EventFdWaker>,
    waker: Waker,
    /// A socket or pipe whose other end shows that another process lives. In the guardian that is the front; for
    /// `leader --follow` and `watch` it is the reader of the standard output, for `top` the terminal.
    peer: Option<OwnedFd>,
    peer_is_gone: Cell<bool>,
}

/// The index of the peer among the descriptors that [`EventLoop::wait`] polls.
const PEER_INDEX: usize = 2;

/// Wakes the loop from another thread.
struct EventFdWaker(EventFd);

impl Wake for EventFdWaker {
    fn wake(self: Arc<Self>) {
        // The write fails only if the counter is full, after 2^64 - 2 wakes that nobody has read. Then the loop wakes
        // anyway.
        let _ = self.0.write(1);
    }
}

impl EventLoop {
    /// A loop that reads `signals`, and watches whether the other end of `peer` is closed.
    ///
    /// # Errors
    /// An error of the operating system: it has no descriptor left.
    pub(crate) fn new(signals: Signals, peer: Option<OwnedFd>) -> Result<Self, Errno> {
        let fd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let eventfd = Arc::new(EventFdWaker(fd));
        let waker = Waker::from(Arc::clone(&eventfd));
        Ok(Self { signals, eventfd, waker, peer, peer_is_gone: Cell::new(false) })
    }

    pub(crate) const fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Polls a future once. A later [`wait`](Self::wait) returns when the future can make progress.
    pub(crate) fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(&self.waker))
    }

    /// Sleeps until a signal comes in, and returns the signal. Returns `None` if a future can make progress, if `limit`
    /// has passed, or sometimes a little earlier without a reason. The end of the peer is reported once, as SIGKILL.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> Result<Option<Signal>, Errno> {
        self.wait_for(limit, &[])
    }

    /// As [`wait`](Self::wait). Also returns `None` when one of these descriptors is readable.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn wait_for(
        &self,
        limit: Option<Duration>,
        readable: &[BorrowedFd<'_>],
    ) -> Result<Option<Signal>, Errno> {
        let peer = self.peer.as_ref().filter(|_| !self.peer_is_gone.get());
        let event = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = vec![event(self.signals.as_fd()), event(self.eventfd.0.as_fd())];
        // Without flags, the kernel reports only that the other end is closed.
        fds.extend(peer.map(|peer| PollFd::new(peer.as_fd(), PollFlags::empty())));
        let has_peer = peer.is_some();
        fds.extend(readable.iter().copied().map(event));
        match nix::poll::poll(&mut fds, timeout(limit)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
        if has_peer && fds.get(PEER_INDEX).is_some_and(|peer| peer.any() == Some(true)) {
            self.peer_is_gone.set(true);
            return Ok(Some(Signal::SIGKILL));
        }
        match self.eventfd.0.read() {
            Ok(_) | Err(Errno::EAGAIN) => self.signals.next(),
            Err(errno) => Err(errno),
        }
    }

    /// Runs a future until it completes. Returns `None` if `limit` has passed, or if a signal came in for which `stop`
    /// returned true.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn block_on<F: Future>(
        &self,
        future: F,
        limit: Option<Duration>,
        mut stop: impl FnMut(Signal) -> bool,
    ) -> Result<Option<F::Output>, Errno> {
        let mut future = std::pin::pin!(future);
        let end = limit.and_then(|limit| now().checked_add(limit));
        loop {
            if let Poll::Ready(output) = self.poll(future.as_mut()) {
                return Ok(Some(output));
            }
            let left = end.map(|end| end.saturating_sub(now()));
            if left.is_some_and(|left| left.is_zero()) || self.wait(left)?.is_some_and(&mut stop) {
                return Ok(None);
            }
        }
    }
}

/// The time since the machine booted, including the time for which it was suspended. The deadlines of locks use the
/// same clock.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).expect("Linux has this clock").into()
}

/// The limit in whole milliseconds, rounded up, so that a time that ends the wait has really passed.
fn timeout(limit: Option<Duration>) -> PollTimeout {
    let Some(limit) = limit else { return PollTimeout::NONE };
    let millis = limit.as_nanos().div_ceil(1_000_000);
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_and_bounded() {
        assert_eq!(timeout(Some(Duration::from_nanos(1))), PollTimeout::from(1_u8));
        assert_eq!(timeout(Some(Duration::ZERO)), PollTimeout::ZERO);
        assert_eq!(timeout(Some(Duration::MAX)), PollTimeout::MAX);
        assert_eq!(timeout(None), PollTimeout::NONE);
    }
}
