//! What a connection tells its client.

use leasehold_core::Instant;

use crate::{watches::Target, wire::Event};

/// Hears what comes without a request.
pub(crate) trait PushHandler: Send + Sync {
    /// Something happened to a key that is watched.
    fn on_event(&self, target: Target, event: &Event);

    /// Between the last look at it and the begin of its watch something may have happened: somebody has to look once more.
    fn on_missed(&self, target: Target);

    /// The server watches it no longer: what happens now is not told.
    fn on_watch_ended(&self, target: Target);

    /// The lease, asked to be kept alive at `sent`, lives for so many seconds; for none: it is gone.
    fn on_kept_alive(&self, lease: i64, sent: Instant, seconds: u64);

    /// A new connection was made: what happened meanwhile was not told.
    fn on_reconnected(&self);

    /// Something of this client depends on the server now, beside requests.
    fn needs_server(&self) -> bool;
}
