//! The request to break a hold, which is sent again while the holder is asked to stop.

use std::{pin::Pin, task::Poll, time::Duration};

use leasehold::{Broken, Error, Locks};
use leasehold_ops::pause_before_next_break;

use crate::event_loop::{EventLoop, now};

type Request = Pin<Box<dyn Future<Output = Result<Broken, Error>>>>;

/// A hold that is being broken.
pub(crate) struct Breaking {
    locks: Locks,
    pub(crate) name: String,
    pub(crate) token: u64,
    /// When the first request was sent.
    begin: Duration,
    state: State,
}

enum State {
    Asking(Request),
    /// The next request leaves at this time.
    Pausing(Duration),
}

impl Breaking {
    pub(crate) fn start(locks: &Locks, name: String, token: u64) -> Self {
        let state = State::Pausing(Duration::ZERO);
        Self { locks: locks.clone(), name, token, begin: now(), state }
    }

    /// The result, once there is one.
    pub(crate) fn poll(&mut self, event_loop: &EventLoop) -> Option<Result<Broken, Error>> {
        if let State::Pausing(due) = self.state
            && now() >= due
        {
            let (locks, name, token) = (self.locks.clone(), self.name.clone(), self.token);
            self.state = State::Asking(Box::pin(async move { locks.break_hold(&name, token, false).await }));
        }
        let State::Asking(request) = &mut self.state else { return None };
        let Poll::Ready(result) = event_loop.poll(request.as_mut()) else { return None };
        match pause_before_next_break(&result, now().saturating_sub(self.begin)) {
            Some(pause) => {
                self.state = State::Pausing(now() + pause);
                None
            }
            None => Some(result),
        }
    }

    /// How long nothing is to do, unless the event loop wakes. `None`: until it wakes.
    pub(crate) fn idle(&self) -> Option<Duration> {
        match self.state {
            State::Pausing(due) => Some(due.saturating_sub(now())),
            State::Asking(_) => None,
        }
    }
}
