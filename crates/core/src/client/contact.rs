//! The contact with the servers of an engine: how long connecting may take, whether it ever succeeded, and which server
//! is connected.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
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

/// Whether a connection was ever made: before the first connection, no request can have arrived at a server. And which
/// server is connected, for events. The engine sets the state, core reads it.
#[derive(Clone, Debug, Default)]
pub struct Contact(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// A connection was made at least once.
    was_reached: AtomicBool,
    /// The error of the last attempt to connect.
    last_error: Mutex<Option<String>>,
    connected: Mutex<Connected>,
    listeners: Arc<Listeners>,
}

/// Which server is connected.
#[derive(Debug, Default)]
struct Connected {
    /// The address of the server.
    server: Option<String>,
    /// The address of the server that was connected before.
    previous: Option<String>,
}

/// A change of the connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionChange<'a> {
    Connected { server: &'a str, again: bool },
    Disconnected { server: &'a str },
    Switched { from: &'a str, to: &'a str },
}

/// Receives the changes of the connection.
pub(crate) trait Listen: Send + Sync {
    fn changed(&self, change: &ConnectionChange<'_>);
}

/// The listeners of one engine: each `Locks` on it is one.
#[derive(Default)]
struct Listeners(Mutex<Vec<Weak<dyn Listen>>>);

impl Listeners {
    /// Adds a listener, and drops those that are gone.
    fn add(&self, listener: Weak<dyn Listen>) {
        let mut listeners = self.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(listener);
    }

    fn report(&self, change: ConnectionChange<'_>) {
        // Not called under the lock: the code of users may make another `Locks` on this engine.
        let listeners: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|listener| listener.changed(&change));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Weak<dyn Listen>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listeners({})", self.lock().len())
    }
}

impl Contact {
    /// The contact with one server of several: it knows by itself whether this server was reached, and reports its
    /// connections to the listeners of this contact.
    #[must_use]
    pub fn of_one_server(&self) -> Self {
        Self(Arc::new(Inner { listeners: Arc::clone(&self.0.listeners), ..Inner::default() }))
    }

    /// Adds a listener for changes of the connection. It listens until its last `Arc` is dropped.
    pub(crate) fn listen(&self, listener: Weak<dyn Listen>) {
        self.0.listeners.add(listener);
    }

    /// As [`record_connected`](Self::record_connected), with the address of the server. Reports the connection, unless
    /// the same server is connected already.
    pub fn record_connected_to(&self, server: &str) {
        self.record_connected();
        let mut connected = self.lock_connected();
        if connected.server.as_deref() == Some(server) {
            return;
        }
        connected.server = Some(server.to_owned());
        let previous = connected.previous.replace(server.to_owned());
        drop(connected);
        self.0.listeners.report(ConnectionChange::Connected { server, again: previous.is_some() });
        if let Some(from) = previous.filter(|previous| previous != server) {
            self.0.listeners.report(ConnectionChange::Switched { from: &from, to: server });
        }
    }

    /// Records that the connection is gone. Reports this, unless it was reported before.
    pub fn record_disconnected(&self) {
        let gone = self.lock_connected().server.take();
        if let Some(server) = gone {
            self.0.listeners.report(ConnectionChange::Disconnected { server: &server });
        }
    }

    fn lock_connected(&self) -> std::sync::MutexGuard<'_, Connected> {
        self.0.connected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a connection was made. The engine must call this before it sends anything on that connection.
    pub fn record_connected(&self) {
        self.0.was_reached.store(true, Ordering::Release);
    }

    /// Records a failed attempt to connect. A server that is full counts as reached.
    pub fn record_failure(&self, fault: Fault, message: &str) {
        if fault == Fault::Retry {
            self.record_disconnected();
        }
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

    /// Stores the changes that it hears.
    #[derive(Default)]
    struct Changes(Mutex<Vec<String>>);

    impl Listen for Changes {
        fn changed(&self, change: &ConnectionChange<'_>) {
            self.0.lock().unwrap().push(format!("{change:?}"));
        }
    }

    /// A listener of this contact.
    fn heard_by(contact: &Contact) -> Arc<Changes> {
        let changes = Arc::new(Changes::default());
        let listener: Weak<Changes> = Arc::downgrade(&changes);
        contact.listen(listener);
        changes
    }

    #[test]
    fn each_listener_hears_a_change_until_it_is_dropped() {
        let contact = Contact::default();
        let (first, second) = (heard_by(&contact), heard_by(&contact));
        contact.record_connected_to("a");
        drop(first);
        contact.record_disconnected();
        let changes = ["Connected { server: \"a\", again: false }", "Disconnected { server: \"a\" }"];
        assert_eq!(*second.0.lock().unwrap(), changes);
        let _third = heard_by(&contact);
        assert_eq!(format!("{:?}", contact.0.listeners), "Listeners(2)", "the first is forgotten");
    }

    #[test]
    fn changes_of_the_connection_are_reported_once() {
        let contact = Contact::default();
        let changes = heard_by(&contact);
        contact.record_disconnected();
        contact.record_connected_to("a");
        contact.record_connected_to("a");
        contact.record_failure(Fault::Full, "too many connections");
        contact.record_failure(Fault::Retry, "refused");
        contact.record_disconnected();
        contact.record_connected_to("b");
        let node = contact.of_one_server();
        assert!(!node.was_reached());
        node.record_connected_to("c");
        assert_eq!(
            *changes.0.lock().unwrap(),
            [
                "Connected { server: \"a\", again: false }",
                "Disconnected { server: \"a\" }",
                "Connected { server: \"b\", again: true }",
                "Switched { from: \"a\", to: \"b\" }",
                "Connected { server: \"c\", again: false }",
            ]
        );
    }
}
