//! The memos that this client follows: a watch of the key of each memo and, as long as its writer holds the name, a
//! watch of the key of that hold.
//!
//! The first watch begins with the subscription. The second one begins when the client reads the memo, which core does
//! after each notification.

use std::{
    collections::HashMap,
    sync::{Mutex, Weak},
    time::Duration,
};

use leasehold_core::{Followed, Name, Notification};
use tokio::sync::Notify;

use crate::{
    client::Client,
    conn::Conn,
    keys::{self, Span},
    lock_mutex, runtime,
    watches::{WatchStart, WatchTarget},
};

/// The pause before the next attempt to connect for a follower, or to watch a memo whose watch the server ended.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// The memos that one client follows.
#[derive(Default)]
pub(crate) struct MemoFollowers {
    table: Mutex<Table>,
    /// Notified when a memo is followed and there is no connection.
    wants_connection: Notify,
}

#[derive(Default)]
struct Table {
    followed: HashMap<Name, FollowedMemo>,
    /// The names by the numbers in their watches.
    names: HashMap<u64, Name>,
    /// The largest number.
    last: u64,
    /// A memo is followed that is not watched, because there was no connection.
    has_unwatched: bool,
}

/// A memo with at least one subscription.
struct FollowedMemo {
    number: u64,
    subscriptions: usize,
}

/// One subscription, which ends with the drop of this value.
struct Subscription(Weak<Client>, Name);

impl MemoFollowers {
    pub(crate) fn is_empty(&self) -> bool {
        lock_mutex(&self.table).followed.is_empty()
    }

    /// The name that a watch with this number is for.
    fn name(&self, number: u64) -> Option<Name> {
        lock_mutex(&self.table).names.get(&number).cloned()
    }

    /// The number of a followed memo.
    fn number(&self, name: &Name) -> Option<u64> {
        lock_mutex(&self.table).followed.get(name).map(|memo| memo.number)
    }

    /// Adds a subscription. Returns the number of the memo.
    fn add(&self, name: &Name) -> u64 {
        let mut table = lock_mutex(&self.table);
        if let Some(memo) = table.followed.get_mut(name) {
            memo.subscriptions += 1;
            return memo.number;
        }
        table.last += 1;
        let number = table.last;
        table.followed.insert(name.clone(), FollowedMemo { number, subscriptions: 1 });
        table.names.insert(number, name.clone());
        number
    }

    /// Removes a subscription. Returns the number of the memo if it was the last one.
    fn remove(&self, name: &Name) -> Option<u64> {
        let mut table = lock_mutex(&self.table);
        let memo = table.followed.get_mut(name)?;
        memo.subscriptions -= 1;
        if memo.subscriptions > 0 {
            return None;
        }
        let number = table.followed.remove(name)?.number;
        table.names.remove(&number);
        Some(number)
    }
}

impl Client {
    /// Follows a memo until the returned value is dropped.
    pub(crate) fn follow_memo(&self, name: &Name) -> Followed {
        let number = self.memo_followers.add(name);
        match self.link.live() {
            Some(conn) => self.watch_memo(&conn, name, number),
            None => {
                lock_mutex(&self.memo_followers.table).has_unwatched = true;
                self.memo_followers.wants_connection.notify_one();
            }
        }
        Followed::until_dropped(Subscription(self.weak(), name.clone()))
    }

    /// Watches the key of a memo. When the watch has begun, it reports a missed change, so that its follower reads the
    /// memo.
    fn watch_memo(&self, conn: &Conn, name: &Name, number: u64) {
        let span = (keys::memo_key(self.prefix(), self.layout(), name), Vec::new());
        self.watch_for_followers(conn, (WatchTarget::Memo(number), number), (span, 0));
    }

    /// Watches a span, as read at this revision, for the followers of the memo with this number.
    fn watch_for_followers(
        &self,
        conn: &Conn,
        (target, number): (WatchTarget, u64),
        (span, read_revision): (Span, i64),
    ) {
        self.watch_target(conn, target, span, WatchStart::Now { read_revision });
        // The last subscription may have ended, with its watches, before this watch began.
        if self.memo_followers.name(number).is_none() {
            conn.watches.unwatch(target, self.now());
        }
    }

    /// Watches the key of a followed memo again, after a pause, because the server ended its watch.
    pub(crate) fn watch_memo_again(&self, number: u64) {
        let client = self.weak();
        runtime::spawn(async move {
            runtime::sleep(RETRY_AFTER).await;
            let Some(client) = client.upgrade() else { return };
            // The next connection begins with a watch of each memo.
            let Some(conn) = client.link.live() else { return };
            if let Some(name) = client.memo_followers.name(number) {
                client.watch_memo(&conn, &name, number);
            }
        });
    }

    /// Watches all followed memos on this connection, which has no watch of them.
    pub(crate) fn watch_followed_memos(&self, conn: &Conn) {
        let followed: Vec<(Name, u64)> = {
            let mut table = lock_mutex(&self.memo_followers.table);
            table.has_unwatched = false;
            table.followed.iter().map(|(name, memo)| (name.clone(), memo.number)).collect()
        };
        followed.iter().for_each(|(name, number)| self.watch_memo(conn, name, *number));
    }

    /// Connects as soon as a memo is followed and there is no connection. Never returns.
    pub(crate) async fn connect_for_followers(&self) {
        loop {
            while !lock_mutex(&self.memo_followers.table).has_unwatched {
                self.memo_followers.wants_connection.notified().await;
            }
            match self.link.conn().await {
                Ok(conn) => self.watch_followed_memos(&conn),
                Err(_) => runtime::sleep(RETRY_AFTER).await,
            }
        }
    }

    /// Watches, for a followed memo, the span in which the end of its writer's hold is seen, as read at this revision;
    /// `None`: the writer does not hold the name. Does nothing for a memo that is not followed.
    pub(crate) fn watch_memo_hold(
        &self,
        conn: &Conn,
        name: &Name,
        (span, read_revision): (Option<Span>, i64),
    ) {
        let Some(number) = self.memo_followers.number(name) else { return };
        let target = WatchTarget::MemoHold(number);
        match span {
            Some(span) => self.watch_for_followers(conn, (target, number), (span, read_revision)),
            None => conn.watches.unwatch(target, self.now()),
        }
    }

    /// Lets the followers of a memo read it.
    pub(crate) fn notify_memo_followers(&self, number: u64) {
        if let Some(name) = self.memo_followers.name(number) {
            self.mailbox.push(Notification::Memo { name });
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Self(client, name) = self;
        let Some(client) = client.upgrade() else { return };
        if let Some(number) = client.memo_followers.remove(name)
            && let Some(conn) = client.link.live()
        {
            let now = client.now();
            conn.watches.unwatch(WatchTarget::Memo(number), now);
            conn.watches.unwatch(WatchTarget::MemoHold(number), now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold_core::Env;
    use leasehold_testkit::{
        rig::{PATIENCE, local},
        server::EtcdServer,
    };

    use super::*;
    use crate::{config::Config, engine::EtcdEngine, wire::WatchResponse};

    #[test]
    fn a_memo_is_followed_until_its_last_subscription_ends() {
        let followers = MemoFollowers::default();
        let [a, b] = ["a", "b"].map(|name| Name::new(name).unwrap());
        let number = followers.add(&a);
        assert_eq!(followers.add(&a), number);
        assert_ne!(followers.add(&b), number);
        assert_eq!((followers.name(number), followers.number(&a)), (Some(a.clone()), Some(number)));
        assert_eq!(followers.remove(&a), None);
        assert_eq!(followers.remove(&a), Some(number));
        assert_eq!((followers.name(number), followers.number(&a)), (None, None));
        assert!(!followers.is_empty());
        followers.remove(&b);
        assert!(followers.is_empty() && followers.add(&a) > number, "a late event is for nobody");
    }

    /// A client with a connection to a server of its own, on which it follows the memo of "a".
    struct Following {
        client: Arc<Client>,
        conn: Arc<Conn>,
        number: u64,
        followed: Followed,
        _server: EtcdServer,
    }

    impl Following {
        async fn start() -> Self {
            let server = EtcdServer::start(&["--heartbeat-interval=10", "--election-timeout=100"]);
            let config = Config::new(vec![local(server.port())]);
            let client = EtcdEngine::new(config, &Env::system()).client;
            let conn = client.link.conn().await.unwrap();
            let followed = client.follow_memo(&name());
            let number = client.memo_followers.number(&name()).unwrap();
            let this = Self { client, conn, number, followed, _server: server };
            this.hint().await;
            this
        }

        /// Waits until the followers are told to read the memo.
        async fn hint(&self) {
            let hinted = async {
                let is_hint = |hint: &Notification| matches!(hint, Notification::Memo { .. });
                while !self.client.mailbox.read().await.iter().any(is_hint) {}
            };
            runtime::within(PATIENCE, hinted).await.expect("a notification comes");
        }
    }

    fn name() -> Name {
        Name::new("a").unwrap()
    }

    #[tokio::test]
    async fn a_memo_whose_watch_the_server_ended_is_watched_again() {
        let following = Following::start().await;
        let (client, watches) = (&following.client, &following.conn.watches);
        let target = WatchTarget::Memo(following.number);
        assert!(watches.has(target));
        let ended = WatchResponse { watch_id: 1, canceled: true, ..WatchResponse::default() };
        assert!(watches.receive(ended, &**client));
        assert!(!watches.has(target), "not at once");
        following.hint().await;
        // The new watch has begun.
        following.hint().await;
        assert!(watches.has(target));
    }

    #[tokio::test]
    async fn a_watch_that_begins_after_the_last_subscription_has_ended_does_not_stay() {
        let Following { client, conn, number, followed, _server } = Following::start().await;
        for target in [WatchTarget::Memo(number), WatchTarget::MemoHold(number)] {
            client.watch_for_followers(&conn, (target, number), ((b"k".to_vec(), Vec::new()), 1));
            assert!(conn.watches.has(target), "as long as the memo is followed");
        }
        drop(followed);
        for target in [WatchTarget::Memo(number), WatchTarget::MemoHold(number)] {
            assert!(!conn.watches.has(target));
            client.watch_for_followers(&conn, (target, number), ((b"k".to_vec(), Vec::new()), 1));
            assert!(!conn.watches.has(target), "{target:?}");
        }
    }
}
