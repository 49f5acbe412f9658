//! The notifications of a connection to its client.

use leasehold_core::Instant;

use crate::{watches::Target, wire::Event};

/// Receives pushed notifications.
pub(crate) trait PushHandler: Send + Sync {
    /// A watched key changed.
    fn on_event(&self, target: Target, event: &Event);

    /// A change may have been missed before the watch started: the handler has to read the key again.
    fn on_missed(&self, target: Target);

    /// The server ended the watch: later changes are not reported.
    fn on_watch_ended(&self, target: Target);

    /// The answer to a keep-alive sent at `sent`: the lease lasts `seconds` from then; 0: it has ended.
    fn on_kept_alive(&self, lease: i64, sent: Instant, seconds: u64);

    /// A new connection is open: changes in between were not reported.
    fn on_reconnected(&self);

    /// Whether this client depends on the server now, apart from requests in flight.
    fn needs_server(&self) -> bool;
}
