//! The notifications of a connection to its client.

use leasehold_core::Instant;

use crate::{watches::WatchTarget, wire::Event};

/// Receives pushed notifications.
pub(crate) trait PushHandler: Send + Sync {
    /// Handles a change of a watched key.
    fn on_event(&self, target: WatchTarget, event: &Event);

    /// Reads the key again, because a change may have been missed before the watch started.
    fn on_missed(&self, target: WatchTarget);

    /// Handles the end of a watch by the server: later changes are not reported.
    fn on_watch_ended(&self, target: WatchTarget);

    /// Handles a refusal of a watch that the server does not name.
    fn on_watch_refused(&self);

    /// Handles the answer to a keep-alive that was sent at `sent`: if `seconds` is 0, the lease has ended; otherwise it
    /// lasts for `seconds` from `sent` on.
    fn on_kept_alive(&self, lease: i64, sent: Instant, seconds: u64);

    /// Handles a new connection: changes since the last connection broke were not reported.
    fn on_reconnected(&self);

    /// Whether this client depends on the server now, apart from requests in flight.
    fn needs_server(&self) -> bool;
}
