//! Sends events to `tracing` and to the observers of one `Locks`.

use std::{
    cell::Cell,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    Error, Fault, GuardEnd, Instant, Loss, Mode, Name, Token,
    client::contact::{ConnectionChange, Listen},
    contract::observe::{Event, Observe, Verb},
    driver::shared::Shared,
};

thread_local! {
    /// Whether this thread is calling an observer.
    static IN_OBSERVER: Cell<bool> = const { Cell::new(false) };
}

/// Whether an observer is being called on this thread. It may be the thread or the task of the keeper, so a blocking
/// call here could wait for itself.
pub(crate) fn is_in_observer() -> bool {
    IN_OBSERVER.get()
}

/// The observers of one `Locks`.
pub(crate) struct Observer {
    /// The name of the engine.
    engine: &'static str,
    observers: Vec<Arc<dyn Observe>>,
}

impl Observer {
    pub(crate) const fn new(engine: &'static str, observers: Vec<Arc<dyn Observe>>) -> Self {
        Self { engine, observers }
    }

    /// Whether anybody observes: only then is a clock read for an event alone.
    pub(crate) const fn is_observed(&self) -> bool {
        !self.observers.is_empty()
    }

    /// Sends the event to `tracing` and to the observers.
    fn event(&self, event: &Event<'_>) {
        trace(event);
        let was_in_observer = IN_OBSERVER.replace(true);
        for observer in &self.observers {
            // Whatever state the panic left belongs to the observer.
            if catch_unwind(AssertUnwindSafe(|| observer.event(event))).is_err() {
                tracing::error!(engine = self.engine, "an observer panicked");
            }
        }
        IN_OBSERVER.set(was_in_observer);
    }

    pub(crate) fn wait_begun(&self, name: &Name, mode: Mode) {
        self.event(&Event::WaitBegun { engine: self.engine, name, mode });
    }

    pub(crate) fn queued(&self, name: &Name, mode: Mode, ahead: Option<u32>) {
        self.event(&Event::Queued { engine: self.engine, name, mode, ahead });
    }

    pub(crate) fn granted(&self, granted: &Granted<'_>) {
        let &Granted { name, mode, token, waited, contended, local } = granted;
        self.event(&Event::Granted { engine: self.engine, name, mode, token, waited, contended, local });
    }

    pub(crate) fn cancelled(&self, name: &Name, mode: Mode, waited: Duration, contended: bool) {
        self.event(&Event::Cancelled { engine: self.engine, name, mode, waited, contended });
    }

    pub(crate) fn refused(&self, name: &Name, mode: Mode, error: &Error, waited: Duration) {
        self.event(&Event::Refused { engine: self.engine, name, mode, error, waited });
    }

    pub(crate) fn renewed(&self, name: &Name, mode: Mode, token: Token, margin: Option<Duration>) {
        self.event(&Event::Renewed { engine: self.engine, name, mode, token, margin });
    }

    pub(crate) fn renewal_failed(&self, name: &Name, mode: Mode, token: Token, error: &str, first: bool) {
        self.event(&Event::RenewalFailed { engine: self.engine, name, mode, token, error, first });
    }

    pub(crate) fn time_changed(&self, name: &Name, mode: Mode, token: Token, change: crate::TimeChange) {
        self.event(&Event::TimeChanged { engine: self.engine, name, mode, token, change });
    }

    /// The guards with these tokens and modes lost their hold.
    pub(crate) fn lost(
        &self,
        name: &Name,
        guards: &[(Token, Mode)],
        loss: Loss,
        renewal_error: Option<&str>,
    ) {
        for &(token, mode) in guards {
            let (engine, trouble, at_release) = (self.engine, renewal_error, false);
            self.event(&Event::Lost { engine, name, mode, token, loss, trouble, at_release });
        }
    }

    /// The answer to a release reported that the hold was gone.
    pub(crate) fn lost_at_release(&self, name: &Name, mode: Mode, token: Token, loss: Loss) {
        let (engine, trouble, at_release) = (self.engine, None, true);
        self.event(&Event::Lost { engine, name, mode, token, loss, trouble, at_release });
    }

    /// A guard that was held in the mode `from` has this mode and this token now.
    pub(crate) fn converted(&self, name: &Name, (token, mode): (Token, Mode), from: Mode) {
        self.event(&Event::Converted { engine: self.engine, name, mode, token, from });
    }

    pub(crate) fn released(&self, name: &Name, mode: Mode, token: Token, held: Duration, end: GuardEnd) {
        self.event(&Event::Released { engine: self.engine, name, mode, token, held, end });
    }

    fn connection_changed(&self, change: &ConnectionChange<'_>) {
        let engine = self.engine;
        self.event(&match *change {
            ConnectionChange::Connected { server, again } => Event::Connected { engine, server, again },
            ConnectionChange::Disconnected { server } => Event::Disconnected { engine, server },
            ConnectionChange::Switched { from, to } => Event::Switched { engine, from, to },
        });
    }
}

/// The fields of [`Event::Granted`].
pub(crate) struct Granted<'a> {
    pub(crate) name: &'a Name,
    pub(crate) mode: Mode,
    pub(crate) token: Token,
    pub(crate) waited: Duration,
    pub(crate) contended: bool,
    pub(crate) local: bool,
}

impl Shared {
    /// How long a request has waited that began at `since`, for the event of its end; zero if nobody receives the
    /// event, because then no clock is read.
    pub(crate) fn waited_since(&self, since: Instant) -> Duration {
        let is_received = self.observer.is_observed() || tracing::enabled!(tracing::Level::DEBUG);
        if is_received { self.now().since(since) } else { Duration::ZERO }
    }

    /// When a request to the engine is sent, for [`report_answer`](Self::report_answer); `None` if nobody observes.
    pub(crate) fn observed_now(&self) -> Option<Instant> {
        self.observer.is_observed().then(|| self.now())
    }

    /// Reports that a request to the engine, sent at `sent_at`, was answered or failed.
    pub(crate) fn report_answer(&self, verb: Verb, sent_at: Option<Instant>, fault: Option<Fault>) {
        let Some(sent_at) = sent_at else { return };
        let (engine, took, error) = (self.profile.engine, self.now().since(sent_at), fault.map(Fault::kind));
        self.observer.event(&Event::Answered { engine, verb, took, error });
    }

    /// Observes the connections of the engine.
    pub(crate) fn observe_connections(self: &Arc<Self>) {
        let Some(contact) = &self.profile.contact else { return };
        let listener: Weak<Self> = Arc::downgrade(self);
        contact.listen(listener);
    }
}

impl Listen for Shared {
    fn changed(&self, change: &ConnectionChange<'_>) {
        self.observer.connection_changed(change);
    }
}

/// Records the event in `tracing`.
fn trace(event: &Event<'_>) {
    match *event {
        Event::WaitBegun { engine, name, mode } => tracing::trace!(engine, %name, %mode, "wait begun"),
        Event::Queued { engine, name, mode, ahead } => {
            tracing::debug!(engine, %name, %mode, ahead, "queued");
        }
        Event::Granted { engine, name, mode, token, waited, contended, local } => {
            let token = token.number;
            tracing::debug!(engine, %name, %mode, token, ?waited, contended, local, "granted");
        }
        Event::Cancelled { engine, name, mode, waited, contended } => {
            tracing::debug!(engine, %name, %mode, ?waited, contended, "cancelled");
        }
        Event::Refused { engine, name, mode, error, waited } => {
            tracing::debug!(engine, %name, %mode, %error, ?waited, "not granted");
        }
        Event::Renewed { engine, name, mode, token, margin } => {
            tracing::trace!(engine, %name, %mode, token = token.number, ?margin, "renewed");
        }
        Event::RenewalFailed { engine, name, mode, token, error, first: true } => {
            tracing::warn!(engine, %name, %mode, token = token.number, error, "renewal failed");
        }
        Event::RenewalFailed { engine, name, mode, token, error, first: false } => {
            tracing::debug!(engine, %name, %mode, token = token.number, error, "renewal failed again");
        }
        Event::TimeChanged { engine, name, mode, token, change } => {
            tracing::warn!(engine, %name, %mode, token = token.number, %change, "time changed");
        }
        Event::Lost { engine, name, mode, token, loss, trouble, at_release } => {
            tracing::warn!(engine, %name, %mode, token = token.number, %loss, trouble, at_release, "lost");
        }
        Event::Converted { engine, name, mode, token, from } => {
            tracing::debug!(engine, %name, %mode, token = token.number, %from, "converted");
        }
        Event::Released { engine, name, mode, token, held, end } => {
            tracing::debug!(engine, %name, %mode, token = token.number, ?held, ?end, "released");
        }
        // Only for observers: each request to the engine has one.
        Event::Answered { .. } => {}
        Event::Connected { engine, server, again } => tracing::debug!(engine, server, again, "connected"),
        Event::Disconnected { engine, server } => tracing::warn!(engine, server, "disconnected"),
        Event::Switched { engine, from, to } => {
            tracing::warn!(engine, from, to, "switched to another server")
        }
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observer({} observers)", self.observers.len())
    }
}
