//! Handles the server's pushes, in the task that reads the connection. The listener of one server composes what its
//! pushes need: the claims that wait, the server's clock, its process, and the requests in flight.

use std::sync::Arc;

use leasehold_core::{ClaimId, Instant, Loss, Mailbox, Notification};

mod demand;
mod message;
mod push_handler;
mod server_process;
mod server_time;
mod waiting_claims;

pub(crate) use push_handler::{PushHandler, PushSender};

use crate::identity::Identity;
use demand::Demand;
use message::{Message, name_of};
use server_process::ServerProcess;
use server_time::ServerTime;
use waiting_claims::WaitingClaims;

/// Receives the pushes of one server for one client, and knows the clock and the process of that server.
pub(crate) struct PushListener {
    /// The prefix of the lock keys.
    prefix: String,
    /// Whether the messages on this connection may have been published by other servers: the nodes of a Redis Cluster
    /// relay messages to each other.
    is_relayed: bool,
    /// Collects the notifications for the keeper.
    pub(crate) mailbox: Arc<Mailbox>,
    /// The clock of the server.
    pub(crate) time: ServerTime,
    /// The process that answers for the server.
    pub(crate) process: ServerProcess,
    /// The requests in flight to the server.
    pub(crate) demand: Demand,
    /// The claims that wait at the server.
    pub(crate) claims: WaitingClaims,
}

impl PushListener {
    /// The listener for one server.
    pub(crate) fn new(prefix: &str, mailbox: Arc<Mailbox>) -> Arc<Self> {
        Self::build(prefix, mailbox, false)
    }

    /// The listener for one node of a Redis Cluster, whose servers relay published messages to each other.
    pub(crate) fn of_cluster_node(prefix: &str, mailbox: Arc<Mailbox>) -> Arc<Self> {
        Self::build(prefix, mailbox, true)
    }

    /// A listener that knows nothing of its server yet.
    fn build(prefix: &str, mailbox: Arc<Mailbox>, is_relayed: bool) -> Arc<Self> {
        Arc::new(Self {
            prefix: prefix.to_owned(),
            is_relayed,
            mailbox,
            time: ServerTime::default(),
            // In a cluster some nodes have no slots, so none of our holds can be there.
            process: ServerProcess::new(!is_relayed),
            demand: Demand::default(),
            claims: WaitingClaims::default(),
        })
    }

    /// Records the process to which a new connection leads. Reports doubt if the last connection led to another
    /// process.
    pub(crate) fn identified(&self, identity: &Identity) {
        if self.process.connected(identity) {
            tracing::debug!("another server, or one that was restarted: holds are in doubt");
            self.mailbox.push(Notification::Doubt);
        }
    }

    /// Records a new connection, begun at `sent` and made at `now`. `floor` is the server's time, which it reported
    /// between these two moments. Reports doubt if the clock is further ahead than expected: then the machine was
    /// restarted, or the server is on another machine.
    pub(crate) fn connected(&self, sent: Instant, now: Instant, floor: u64) {
        self.learn(sent, now, floor);
        self.claims.clear_watches();
        self.time.set_floor(floor);
    }

    /// Learns the server's time from an answer that came at `now` to a request sent at `sent`. Called only for
    /// successful answers: the client may get an error before the answers to earlier requests.
    pub(crate) fn learn(&self, sent: Instant, now: Instant, server_micros: u64) {
        self.process.answered(sent, now);
        if let Some(ahead) = self.time.learn(sent, now, server_micros) {
            tracing::warn!(?ahead, "the server's clock stepped forward: holds are in doubt");
            self.mailbox.push(Notification::Doubt);
        }
    }

    /// Records whether the claim waits for notifications.
    pub(crate) fn set_waiting(&self, claim: ClaimId, waits: bool) {
        if !waits {
            self.claims.remove(claim);
        } else if self.claims.add(claim) {
            self.demand.notify_first_wait();
        }
    }

    /// Whether the pulse is needed: a claim waits for notifications, or a request waits for its answer.
    pub(crate) fn is_wanted(&self) -> bool {
        self.demand.has_requests() || !self.claims.is_empty()
    }

    /// Makes the claims that watch this lock of another program ask again, because the lock changed.
    pub(crate) fn recheck_watchers(&self, lock: &str) {
        let watchers = self.claims.take_watchers(lock);
        let Some(name) = name_of(lock, &self.prefix) else { return };
        for id in watchers {
            self.mailbox.push(Notification::Recheck { name: name.clone(), id });
        }
    }

    /// Handles a message that a script of leasehold published on this server, received at `now`.
    pub(crate) fn receive_leasehold_message(&self, message: &[u8], now: Instant) {
        self.deliver(message, self.process.is_trusted(now));
    }

    /// Passes a message on to the keeper. `is_datable`: whether the time in a pushed grant can be used, because it is
    /// by the clock of this server, and no other server can have replaced this server.
    fn deliver(&self, message: &[u8], is_datable: bool) {
        let Some(message) = Message::parse(message, &self.prefix) else { return };
        self.mailbox.push(match message {
            Message::Granted { name, id, grant, granted_at } => {
                self.set_waiting(id, false);
                let since = if is_datable { self.time.granted_since(granted_at) } else { None };
                Notification::Granted { name, id, grant, since }
            }
            Message::Broken { name, id } => Notification::Lost { name, id, loss: Loss::Broken },
            Message::Recheck { name, id } => Notification::Recheck { name, id },
            Message::Memo { name } => Notification::Memo { name },
        });
    }
}

impl PushHandler for PushListener {
    fn receive(&self, message: &[u8]) {
        self.deliver(message, !self.is_relayed);
    }

    fn invalidated(&self, lock: Option<&str>) {
        match lock {
            Some(lock) => self.recheck_watchers(lock),
            // All waiting claims ask again, because any lock may have changed.
            None => self.mailbox.push(Notification::AskAll),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const GRANTED: &[u8] = b"granted 000102030405060708090a0b0c0d0e0f 17 3 2000 5000000 l lock:a b";

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn notifications(listener: &PushListener) -> Vec<Notification> {
        leasehold_testkit::dropper::poll_once(Box::pin(listener.mailbox.read())).unwrap_or_default()
    }

    fn reports_doubt(listener: &PushListener) -> bool {
        matches!(notifications(listener)[..], [Notification::Doubt])
    }

    #[test]
    fn only_a_grant_of_a_trusted_server_is_dated() {
        let listener = PushListener::of_cluster_node("lock:", Arc::default());
        listener.process.set_trust_period(Duration::from_secs(1));
        let is_dated =
            || matches!(notifications(&listener)[..], [Notification::Granted { since: Some(_), .. }]);
        listener.learn(at(3000), at(3001), 4_000_000);
        listener.receive_leasehold_message(GRANTED, at(4000));
        assert!(is_dated());
        listener.receive_leasehold_message(GRANTED, at(4001));
        assert!(!is_dated(), "the server may have been replaced");
        listener.receive(GRANTED);
        let notifications = notifications(&listener);
        assert!(
            matches!(notifications[..], [Notification::Granted { since: None, .. }]),
            "passed on by another server"
        );
    }

    #[test]
    fn a_clock_step_puts_holds_in_doubt_also_on_a_new_connection() {
        let listener = PushListener::new("lock:", Arc::default());
        listener.learn(at(1000), at(1001), 50_000_000);
        assert!(!reports_doubt(&listener));
        listener.learn(at(2000), at(2001), 52_000_000);
        assert!(reports_doubt(&listener));
        listener.connected(at(3000), at(3001), 53_000_000);
        assert!(!reports_doubt(&listener), "the same server after a moment");
        listener.connected(at(4000), at(4001), 99_000_000);
        assert!(reports_doubt(&listener), "another server, far ahead");
    }

    #[test]
    fn another_process_puts_holds_in_doubt() {
        let listener = PushListener::new("lock:", Arc::default());
        for (run_id, doubted) in [("one", false), ("two", true)] {
            listener.identified(&Identity { run_id: Some(run_id.to_owned()), ..Identity::default() });
            assert_eq!(reports_doubt(&listener), doubted, "{run_id}");
        }
    }

    #[test]
    fn a_grant_ends_the_wait_of_its_claim() {
        let listener = PushListener::new("lock:", Arc::default());
        let id = ClaimId::read("000102030405060708090a0b0c0d0e0f").unwrap();
        listener.set_waiting(id, true);
        assert!(listener.is_wanted());
        listener.receive(GRANTED);
        assert!(!listener.is_wanted());
    }
}
