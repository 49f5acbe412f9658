//! Asks the engine again and again who holds and who waits, for `watch` and `top`: at once when the engine tells that
//! something changed, and at a steady pace.

use std::{
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use leasehold::{Error, Locks, Notices, View, engine::Watched};
use leasehold_ops::{FirstSeen, Leases, pause_after_look, pause_before_noticed_look};

use crate::event_loop::{EventLoop, now};

/// An answer of the engine.
pub(crate) struct Look {
    /// When the request left, by the clock of [`now`].
    pub(crate) at: Duration,
    pub(crate) answer: Result<Vec<View>, Error>,
}

/// Looks at the names, with a pause between two looks. At most one request is under way.
pub(crate) struct Looker {
    locks: Locks,
    names: Watched,
    /// The shortest pause between an answer and the next request, if nothing is known to have changed. It is counted
    /// from the answer, so that a slow engine is not asked without a pause.
    pause: Duration,
    /// When the leases were renewed, as far as the looks show it.
    leases: Leases,
    /// How long holds and waits have been seen.
    first_seen: FirstSeen,
    /// Tells of changes, from the first answer on.
    notices: Option<Notices>,
    /// A notice came after the last request left.
    is_noticed: bool,
    state: State,
}

enum State {
    /// The next request leaves at `due`; after a notice of a change, at `soonest`.
    Pausing {
        soonest: Duration,
        due: Duration,
    },
    Asking {
        at: Duration,
        request: Pin<Box<dyn Future<Output = Result<Vec<View>, Error>>>>,
    },
}

impl Looker {
    /// The first look is due at once.
    pub(crate) fn new(locks: Locks, names: Watched, pause: Duration) -> Self {
        Self {
            locks,
            names,
            pause,
            leases: Leases::new(),
            first_seen: FirstSeen::new(),
            notices: None,
            is_noticed: false,
            state: State::Pausing { soonest: Duration::ZERO, due: Duration::ZERO },
        }
    }

    /// The next answer, if there is one. Sends the next request when it is due.
    pub(crate) fn poll(&mut self, event_loop: &EventLoop) -> Option<Look> {
        if let Some(notices) = &mut self.notices {
            self.is_noticed |= event_loop.poll(pin!(notices.changed())).is_ready();
        }
        if self.idle().is_some_and(|idle| idle.is_zero()) {
            self.is_noticed = false;
            self.state =
                State::Asking { at: now(), request: Box::pin(ask(self.locks.clone(), self.names.clone())) };
        }
        let State::Asking { at, request } = &mut self.state else { return None };
        let Poll::Ready(mut answer) = event_loop.poll(request.as_mut()) else { return None };
        if let Ok(views) = &mut answer {
            self.leases.next(views, *at, now());
            self.first_seen.next(views, *at, now());
            let subscribe = || self.locks.notices(self.names.clone());
            let notices = self.notices.get_or_insert_with(subscribe);
            self.is_noticed |= event_loop.poll(pin!(notices.changed())).is_ready();
        }
        let look = Look { at: *at, answer };
        self.state = pause_after(self.pause, &look, now());
        Some(look)
    }

    /// Whether the engine tells each change at present.
    #[cfg(feature = "top")]
    pub(crate) fn is_pushed(&self) -> bool {
        self.notices.as_ref().is_some_and(Notices::are_pushed)
    }

    /// Makes the next look due now.
    #[cfg(feature = "top")]
    pub(crate) fn hurry(&mut self) {
        if let State::Pausing { due, .. } = &mut self.state {
            *due = Duration::ZERO;
        }
    }

    /// How long nothing is to do, unless the event loop wakes. `None`: until it wakes.
    pub(crate) fn idle(&self) -> Option<Duration> {
        match self.state {
            State::Pausing { soonest, due } => {
                let next = if self.is_noticed { soonest.min(due) } else { due };
                Some(next.saturating_sub(now()))
            }
            State::Asking { .. } => None,
        }
    }
}

/// The pause after a look whose answer came at `now`. An engine that does not answer has no load by looks, and is asked
/// again soon.
fn pause_after(wanted: Duration, look: &Look, now: Duration) -> State {
    let took = now.saturating_sub(look.at);
    let pause = match look.answer {
        Ok(_) => pause_after_look(wanted, took),
        Err(_) => wanted,
    };
    State::Pausing { soonest: now + pause_before_noticed_look(took), due: now + pause }
}

async fn ask(locks: Locks, names: Watched) -> Result<Vec<View>, Error> {
    match names {
        Watched::Prefix(prefix) => locks.list(&prefix).await,
        Watched::Name(name) => Ok(vec![locks.show(name.as_str()).await?]),
    }
}

#[cfg(test)]
mod tests {
    use leasehold::ErrorKind;

    use super::*;

    #[test]
    fn a_slow_answer_is_followed_by_a_long_pause_and_an_outage_is_not() {
        let secs = Duration::from_secs;
        let pauses = |answer, end| match pause_after(secs(1), &Look { at: secs(100), answer }, secs(end)) {
            State::Pausing { soonest, due } => [soonest, due],
            State::Asking { .. } => panic!("it pauses"),
        };
        assert_eq!(pauses(Ok(Vec::new()), 104), [119, 116].map(secs));
        let error = Error::new(ErrorKind::Unreachable, "no answer");
        assert_eq!(pauses(Err(error), 101), [110, 102].map(secs));
        let [soonest, due] = pauses(Ok(Vec::new()), 100);
        assert_eq!((soonest, due), (Duration::from_millis(100_100), secs(101)));
    }
}
