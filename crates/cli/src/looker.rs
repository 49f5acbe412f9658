//! Asks the engine again and again who holds and who waits, for `watch` and `top`.

use std::{pin::Pin, task::Poll, time::Duration};

use leasehold::{Error, Locks, View};
use leasehold_ops::{Leases, pause_after_look};

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
    /// The shortest pause between an answer and the next request. It is counted from the answer, so that a slow engine
    /// is not asked without a pause.
    pause: Duration,
    /// When the leases were renewed, as far as the looks show it.
    leases: Leases,
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
    pub(crate) fn new(locks: Locks, names: Names, pause: Duration) -> Self {
        Self { locks, names, pause, leases: Leases::new(), state: State::Pausing(Duration::ZERO) }
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
        let Poll::Ready(mut answer) = event_loop.poll(request.as_mut()) else { return None };
        if let Ok(views) = &mut answer {
            self.leases.next(views, *at, now());
        }
        let look = Look { at: *at, answer };
        self.state = State::Pausing(now() + pause_after(self.pause, &look, now()));
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

/// The pause after a look whose answer came at `now`. An engine that does not answer has no load by looks, and is asked
/// again soon.
fn pause_after(wanted: Duration, look: &Look, now: Duration) -> Duration {
    match look.answer {
        Ok(_) => pause_after_look(wanted, now.saturating_sub(look.at)),
        Err(_) => wanted,
    }
}

async fn ask(locks: Locks, names: Names) -> Result<Vec<View>, Error> {
    match names {
        Names::Prefix(prefix) => locks.list(&prefix).await,
        Names::Exactly(name) => Ok(vec![locks.show(&name).await?]),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::ErrorKind;

    use super::*;

    #[test]
    fn a_slow_answer_is_followed_by_a_long_pause_and_an_outage_is_not() {
        let secs = Duration::from_secs;
        let pause = |answer| pause_after(secs(1), &Look { at: secs(100), answer }, secs(104));
        assert_eq!(pause(Ok(Vec::new())), secs(12));
        assert_eq!(pause(Err(Error::new(ErrorKind::Unreachable, "no answer"))), secs(1));
    }
}
