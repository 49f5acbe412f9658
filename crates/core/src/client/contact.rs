//! The first contact with the servers of an engine: how long connecting may take, and whether it ever succeeded.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{EngineError, Fault};

/// How long to try servers that were never reached, by default.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The time limit of one attempt to connect, if there is one server. Shorter than the time limit of a request, so that
/// the request can report why connecting failed.
pub const LONGEST_DIAL: Duration = Duration::from_secs(3);
/// The time limit of one attempt to connect, if there are several servers.
const LONGEST_DIAL_OF_MANY: Duration = Duration::from_millis(1500);

/// The time limit of an attempt to connect to one of `servers` servers, when all of them together have
/// `connect_timeout`. With a `connect_timeout` of zero only [`LONGEST_DIAL`], or the shorter limit for several
/// servers, applies.
#[must_use]
pub fn dial_limit(connect_timeout: Duration, servers: usize) -> Duration {
    let longest = if servers > 1 { LONGEST_DIAL_OF_MANY } else { LONGEST_DIAL };
    if connect_timeout.is_zero() {
        return longest;
    }
    let share_of_one = connect_timeout / u32::try_from(servers.max(1)).unwrap_or(u32::MAX);
    share_of_one.clamp(Duration::from_millis(1), longest)
}

/// Whether a connection was ever made: before the first connection, no request can have arrived at a server. The engine
/// sets the state, core reads it.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// A connection was made at least once.
    was_reached: AtomicBool,
    /// The error of the last attempt to connect.
    last_error: Mutex<Option<String>>,
}

impl Contact {
    /// Records that a connection was made. The engine must call this before it sends anything on that connection.
    pub fn record_connected(&self) {
        self.0.was_reached.store(true, Ordering::Release);
    }

    /// Records a failed attempt to connect. A server that is full counts as reached.
    pub fn record_failure(&self, fault: Fault, message: &str) {
        if fault == Fault::Full {
            self.record_connected();
        } else if !self.was_reached() {
            *self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(message.to_owned());
        }
    }

    /// Whether a connection was made at least once.
    pub(crate) fn was_reached(&self) -> bool {
        self.0.was_reached.load(Ordering::Acquire)
    }

    /// The error for servers that were not reached within `tried_for`: the last error of an attempt to connect, if any.
    pub(crate) fn unreachable_error(&self, tried_for: Duration) -> EngineError {
        let last_error = self.0.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        EngineError::new(
            Fault::Retry,
            last_error.unwrap_or_else(|| format!("not connected within {tried_for:?}")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_share_the_connect_timeout() {
        let millis = Duration::from_millis;
        for (timeout, servers, limit) in [
            (millis(5000), 1, millis(3000)),
            (millis(1000), 1, millis(1000)),
            (millis(500), 1, millis(500)),
            (millis(60_000), 1, millis(3000)),
            (millis(5000), 3, millis(1500)),
            (millis(900), 3, millis(300)),
            (millis(5000), 5, millis(1000)),
            (millis(1), 64, millis(1)),
            (Duration::ZERO, 1, millis(3000)),
            (Duration::ZERO, 2, millis(1500)),
            (Duration::MAX, 1, millis(3000)),
            (millis(700), 0, millis(700)),
        ] {
            assert_eq!(dial_limit(timeout, servers), limit, "{timeout:?} for {servers}");
        }
    }

    #[test]
    fn the_newest_failure_is_reported_until_the_first_contact() {
        let contact = Contact::default();
        assert!(contact.unreachable_error(CONNECT_TIMEOUT).message.contains("not connected within 5s"));
        contact.record_failure(Fault::Retry, "one");
        contact.clone().record_failure(Fault::Retry, "two");
        assert_eq!(
            (contact.unreachable_error(CONNECT_TIMEOUT).message.as_str(), contact.was_reached()),
            ("two", false)
        );
        contact.record_connected();
        contact.record_failure(Fault::Retry, "three");
        assert!(contact.was_reached() && contact.unreachable_error(CONNECT_TIMEOUT).message == "two");
    }

    #[test]
    fn a_full_server_counts_as_reached() {
        let contact = Contact::default();
        contact.record_failure(Fault::Full, "too many connections");
        assert!(contact.was_reached());
    }
}
