//! The memos that this client follows. A background task watches the node of each memo and the node of the hold that
//! wrote it. A watch ends with its first event, and is then set again; after that the follower is notified.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{DEFAULT_TTL, Followed, Name, Notification, run_with_restarts};
use tokio::sync::Notify;

use crate::{
    client::Client,
    conn::Conn,
    engine::REQUEST_TIMEOUT,
    error::Failed,
    lock_mutex,
    memo_record::MemoRecord,
    memos::none_if_missing,
    runtime,
    sessions::SessionSlot,
    watches::{PendingWatch, WatchTarget, Watches},
    wire::{ErrorCode, GetData, WatchExists},
};

/// The pause before a watch that could not be set is set again.
const RETRY: Duration = Duration::from_secs(1);

/// The memos that one client follows.
#[derive(Default)]
pub(crate) struct MemoFollowers {
    table: Mutex<Table>,
    /// Notified when the task has to look at the table.
    work: Notify,
    /// Notified when there is the first work.
    first_work: Notify,
    is_running: AtomicBool,
}

#[derive(Default)]
struct Table {
    followed: HashMap<Name, FollowedMemo>,
    /// The names by the numbers of their watches.
    names: HashMap<u64, Name>,
    last_number: u64,
}

/// A memo with at least one subscription.
struct FollowedMemo {
    subscriptions: usize,
    /// Identifies its watches.
    number: u64,
    /// Counts the events, so that an event is noticed that arrives while the watches are being set.
    events: u64,
    /// The watches; `None` if they have to be set.
    set: Option<SetWatches>,
}

/// Watches that are set. They are removed when this value is dropped.
struct SetWatches {
    watches: Watches,
    target: WatchTarget,
    paths: Vec<String>,
}

impl Drop for SetWatches {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| self.watches.stop_watching(path, self.target));
    }
}

/// Watches that are to be set.
struct DueWatch {
    name: Name,
    number: u64,
    events: u64,
}

/// One subscription, which ends with the drop of this value.
struct Subscription(Arc<MemoFollowers>, Name);

impl MemoFollowers {
    /// Follows a memo until the returned value is dropped.
    pub(crate) fn follow(self: &Arc<Self>, name: &Name) -> Followed {
        let mut table = self.lock();
        let number = table.last_number + 1;
        let new = FollowedMemo { subscriptions: 0, number, events: 0, set: None };
        let memo = table.followed.entry(name.clone()).or_insert(new);
        memo.subscriptions += 1;
        // The new subscription gets a notification of its own, when the watches are set again.
        memo.set_again();
        if memo.number == number {
            table.last_number = number;
            table.names.insert(number, name.clone());
        }
        drop(table);
        self.wake();
        Followed::until_dropped(Subscription(Arc::clone(self), name.clone()))
    }

    /// Handles an event of the watches with this number.
    pub(crate) fn changed(&self, number: u64) {
        let mut table = self.lock();
        let Some(name) = table.names.get(&number).cloned() else { return };
        table.followed.get_mut(&name).into_iter().for_each(FollowedMemo::set_again);
        drop(table);
        self.wake();
    }

    /// Sets all watches again: some ended with their connection.
    pub(crate) fn watch_again(&self) {
        let mut table = self.lock();
        if table.followed.is_empty() {
            return;
        }
        table.followed.values_mut().for_each(FollowedMemo::set_again);
        drop(table);
        self.wake();
    }

    /// Makes the task look at the table, and end if the client is gone.
    pub(crate) fn wake(&self) {
        self.work.notify_one();
        self.first_work.notify_one();
    }

    /// Completes when the task is to be started, one time.
    async fn begun(&self) {
        if self.is_running.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
        self.first_work.notified().await;
        self.is_running.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock_mutex(&self.table)
    }

    fn is_empty(&self) -> bool {
        self.lock().followed.is_empty()
    }

    /// The watches that are to be set.
    fn due(&self) -> Vec<DueWatch> {
        let table = self.lock();
        let due = table.followed.iter().filter(|(_, memo)| memo.set.is_none());
        due.map(|(name, memo)| DueWatch { name: name.clone(), number: memo.number, events: memo.events })
            .collect()
    }

    /// Records watches that were set. False if nobody follows the memo any more.
    fn record(&self, due: &DueWatch, set: SetWatches) -> bool {
        let mut table = self.lock();
        let Some(memo) = table.followed.get_mut(&due.name).filter(|memo| memo.number == due.number) else {
            return false;
        };
        // After an event in between, the watches are to be set again.
        if memo.events == due.events {
            memo.set = Some(set);
        }
        true
    }
}

impl FollowedMemo {
    fn set_again(&mut self) {
        self.events += 1;
        self.set = None;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Self(followers, name) = self;
        let mut table = followers.lock();
        let Some(memo) = table.followed.get_mut(name) else { return };
        memo.subscriptions -= 1;
        if memo.subscriptions == 0 {
            let number = memo.number;
            table.followed.remove(name);
            table.names.remove(&number);
        }
        drop(table);
        followers.wake();
    }
}

impl Client {
    /// The notifications for core. Also starts the task of the followed memos when there is the first one.
    pub(crate) async fn notifications(&self) -> Vec<Notification> {
        tokio::select! {
            biased;
            notifications = self.mailbox.read() => notifications,
            () = self.followers.begun() => {
                let (client, followers) = (Weak::clone(&self.weak_self), Arc::clone(&self.followers));
                let start = move || follow_memos(Weak::clone(&client), Arc::clone(&followers));
                runtime::spawn(run_with_restarts("followed memos", start, || (), runtime::sleep));
                Vec::new()
            }
        }
    }

    /// Sets all watches that are to be set. False if some could not be set.
    async fn set_memo_watches(&self, session_slot: &mut Option<SessionSlot>) -> bool {
        if self.followers.is_empty() {
            *session_slot = None;
            return true;
        }
        let mut are_set = true;
        for due in self.followers.due() {
            let set = runtime::within(REQUEST_TIMEOUT, self.set_memo_watch(session_slot, &due)).await;
            match set {
                Some(Ok(set)) => {
                    if self.followers.record(&due, set) {
                        self.mailbox.push(Notification::Memo { name: due.name });
                    }
                }
                Some(Err(failed)) => {
                    tracing::debug!(?failed, name = %due.name, "its memo is not watched yet");
                    are_set = false;
                }
                None => are_set = false,
            }
        }
        are_set
    }

    /// Watches one memo, and the hold that wrote it.
    async fn set_memo_watch(
        &self,
        session_slot: &mut Option<SessionSlot>,
        due: &DueWatch,
    ) -> Result<SetWatches, Failed> {
        let usable = session_slot.take().filter(|slot| !slot.session().state.has_ended());
        let slot = match usable {
            Some(slot) => slot,
            None => self.take_session_slot(DEFAULT_TTL, 0)?,
        };
        let conn = session_slot.insert(slot).session().conn().await?;
        self.watch_memo(&conn, due).await
    }

    async fn watch_memo(&self, conn: &Conn, due: &DueWatch) -> Result<SetWatches, Failed> {
        let (place, target) = (self.memo_place(&due.name), WatchTarget::Memo(due.number));
        let memo_watch = PendingWatch::new(&conn.watches, &place.node, target);
        let (exists, data) = (
            conn.send(&WatchExists { path: &place.node }),
            conn.send(&GetData { path: &place.node, watch: false }),
        );
        // The node is watched also if it does not exist.
        none_if_missing(exists.answer().await)?;
        let record = if_readable(data.answer().await)?.and_then(|(data, _)| MemoRecord::read(&data));
        let mut paths = vec![place.node.clone()];
        if let Some(record) = record {
            let holder = self.dir(&due.name).child_path(&record.holder);
            let holder_watch = PendingWatch::new(&conn.watches, &holder, target);
            if if_readable(conn.send(&GetData { path: &holder, watch: true }).answer().await)?.is_some() {
                holder_watch.confirm();
                paths.push(holder);
            }
        }
        memo_watch.confirm();
        Ok(SetWatches { watches: conn.watches.clone(), target, paths })
    }
}

/// `None` if the node does not exist, or this login has no right to read it.
fn if_readable<T>(answer: Result<T, Failed>) -> Result<Option<T>, Failed> {
    match answer {
        Err(failed) if failed.is(ErrorCode::NO_AUTH) => Ok(None),
        answer => none_if_missing(answer),
    }
}

/// Watches the followed memos until the client is gone.
async fn follow_memos(client: Weak<Client>, followers: Arc<MemoFollowers>) {
    let mut session_slot = None;
    loop {
        let are_set = {
            let Some(client) = client.upgrade() else { return };
            client.set_memo_watches(&mut session_slot).await
        };
        if are_set {
            followers.work.notified().await;
        } else {
            runtime::within(RETRY, followers.work.notified()).await;
        }
    }
}
