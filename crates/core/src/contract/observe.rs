//! Events for metrics and traces: sent to an observer of the user and to `tracing`.

use std::{fmt, time::Duration};

use crate::{Loss, Mode, Name, TimeChange, Token};

/// Something that happened to a lock.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A guard was granted.
    Granted {
        /// The name.
        name: &'a Name,
        /// The mode in which it is held.
        mode: Mode,
        /// The token.
        token: Token,
        /// How long the request waited.
        waited: Duration,
        /// Whether the hold was handed over inside the process, without the engine.
        local: bool,
    },
    /// A request ended without a guard.
    Refused {
        /// The name.
        name: &'a Name,
        /// The reason.
        error: &'a crate::Error,
    },
    /// A batch of renewals was answered.
    Renewed {
        /// How many holds were extended.
        extended: usize,
        /// How many renewals got no answer.
        unknown: usize,
    },
    /// A renewal found that another program had changed the time of the hold (Redis). The hold is valid. Reported again
    /// only after a renewal that found no change, or another change.
    TimeChanged {
        /// The name.
        name: &'a Name,
        /// The change.
        change: TimeChange,
    },
    /// A hold was lost.
    Lost {
        /// The name.
        name: &'a Name,
        /// The reason.
        loss: Loss,
        /// The error of the last renewal, if the hold lapsed because that renewal failed.
        trouble: Option<&'a str>,
    },
    /// A guard was released.
    Released {
        /// The name.
        name: &'a Name,
        /// How long it was held.
        held: Duration,
    },
}

/// Receives events. It is called on user threads and on the keeper's thread, so an implementation must return quickly
/// and must not take locks of this library.
pub trait Observe: Send + Sync + 'static {
    /// Receives one event.
    fn event(&self, event: &Event<'_>);
}

/// The observer of one `Locks`, if any.
#[derive(Default)]
pub(crate) struct Observer(pub(crate) Option<std::sync::Arc<dyn Observe>>);

impl Observer {
    /// Sends the event to `tracing` and to the observer.
    pub(crate) fn event(&self, event: &Event<'_>) {
        trace(event);
        if let Some(observer) = &self.0 {
            observer.event(event);
        }
    }
}

/// Records the event in `tracing`.
fn trace(event: &Event<'_>) {
    match event {
        Event::Granted { name, mode, token, waited, local } => {
            tracing::debug!(%name, %mode, token = token.number, ?waited, local, "granted");
        }
        Event::Refused { name, error } => tracing::debug!(%name, %error, "not granted"),
        Event::Renewed { extended, unknown } => tracing::trace!(extended, unknown, "renewed"),
        Event::TimeChanged { name, change } => tracing::warn!(%name, %change, "time changed"),
        Event::Lost { name, loss, trouble } => tracing::warn!(%name, %loss, trouble, "lost"),
        Event::Released { name, held } => tracing::debug!(%name, ?held, "released"),
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Observer(set)" } else { "Observer(none)" })
    }
}
