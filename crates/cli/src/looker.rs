//! Asks the engine again and again who holds and who waits, for `watch` and `top`.

use std::{pin::Pin, task::Poll, time::Duration};

use leasehold::{Error, Locks, View};

use crate::event_loop::{EventLoop, now};

/// The names to look at.
#[derive(Clone, Debug)]
pub(crate) enum Names {
    /// All that begin with this.
    Prefix(String),
    /// This one.
    Exactly(String),
}

/// An answer of the engine.
pub(crate) struct Look {
    /// When the request left, by the clock of [`now`].
    pub(crate) at: Duration,
    pub(crate) answer: Result<Vec<View>, Error>,
}

/// Looks at the names, with a pause between two looks. At most one request is under way.
pub(crate) struct Looker {
    locks: Locks,
    names: Names,
    /// The pause between an answer and the next request. It is counted from the answer, so that a slow engine is not
    /// asked without a pause.
    pause: Duration,
    state: State,
}

enum State {
    /// The next request leaves at this time.
    Pausing(Duration),
    Asking {
        at: Duration,
        request: Pin<Box<dyn Future<Output = Result<Vec<View>, Error>>>>,
    },
}

impl Looker {
    /// The first look is due at once.
    pub(crate) const fn new(locks: Locks, names: Names, pause: Duration) -> Self {
        Self { locks, names, pause, state: State::Pausing(Duration::ZERO) }
    }

    /// The next answer, if there is one. Sends the next request when it is due.
    pub(crate) fn poll(&mut self, event_loop: &EventLoop) -> Option<Look> {
        if let State::Pausing(due) = self.state
            && now() >= due
        {
            self.state =
                State::Asking { at: now(), request: Box::pin(ask(self.locks.clone(), self.names.clone())) };
        }
        let State::Asking { at, request } = &mut self.state else { return None };
        let Poll::Ready(answer) = event_loop.poll(request.as_mut()) else { return None };
        let look = Look { at: *at, answer };
        self.state = State::Pausing(now() + self.pause);
        Some(look)
    }

    /// Makes the next look due now.
    #[cfg(feature = "top")]
    pub(crate) fn hurry(&mut self) {
        if let State::Pausing(due) = &mut self.state {
            *due = Duration::ZERO;
        }
    }

    /// How long nothing is to do, unless the event loop wakes. `None`: until it wakes.
    pub(crate) fn idle(&self) -> Option<Duration> {
        match self.state {
            State::Pausing(due) => Some(due.saturating_sub(now())),
            State::Asking { .. } => None,
        }
    }
}

async fn ask(locks: Locks, names: Names) -> Result<Vec<View>, Error> {
    match names {
        Names::Prefix(prefix) => locks.list(&prefix).await,
        Names::Exactly(name) => Ok(vec![locks.show(&name).await?]),
    }
}
