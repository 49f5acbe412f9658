//! The memos that this client follows. The server has a list of the followers of each memo, in which the client enters
//! its channel again and again, and notifies them of changes. A background task sends these requests.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold_core::{ClaimId, Followed, Instant, Name, Notification, Release, Released};
use tokio::sync::Notify;

use crate::{
    error::Refused,
    keys::Keys,
    lock_mutex,
    reach::{Client, Reach},
    runtime,
    scripts::{Item, Script},
};

/// The time between two entries in the list of the server, which keeps an entry three times as long.
const REFRESH: Duration = Duration::from_secs(10);
/// The pause before a request that failed is sent again.
const RETRY: Duration = Duration::from_secs(1);
/// The longest time for the removal of an entry.
const REMOVAL_LIMIT: Duration = Duration::from_secs(1);
/// The most remembered claims that wrote a memo. The followers of more memos are not notified of the end of the hold:
/// they find it when they poll.
const MAX_WRITERS: usize = 4096;

/// The memos that one client follows, and what its task has to do for them.
#[derive(Default)]
pub(crate) struct MemoFollowers {
    table: Mutex<Table>,
    /// Notified when the table has new work for the task.
    work: Notify,
    /// Notified when there is the first work.
    first_work: Notify,
    is_running: AtomicBool,
    /// The client is dropped.
    is_closed: AtomicBool,
}

/// Ends the task of the followed memos when the client is dropped.
pub(crate) struct FollowEnd(pub(crate) Arc<MemoFollowers>);

impl Drop for FollowEnd {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Default)]
struct Table {
    followed: HashMap<Name, FollowedMemo>,
    /// The names that are followed no more, and the ids that stood for them.
    ended: Vec<(Name, ClaimId)>,
    /// The claims of this client that wrote a memo and hold still.
    writers: HashSet<ClaimId>,
    /// How many memos have been followed.
    count: u64,
}

/// A memo with at least one subscription.
struct FollowedMemo {
    subscriptions: usize,
    /// Stands for a waiting claim, so that the connection for notifications stays open and is checked.
    id: ClaimId,
    /// When the next entry is due; `None`: at once.
    due: Option<Instant>,
    /// The server has this client in its list.
    is_entered: bool,
}

/// One subscription, which ends with the drop of this value.
struct Subscription(Arc<MemoFollowers>, Name);

impl MemoFollowers {
    /// Follows a memo until the returned value is dropped.
    pub(crate) fn follow(self: &Arc<Self>, name: &Name) -> Followed {
        let mut table = self.lock();
        table.count += 1;
        // Ids of claims are random: none of them is so large.
        let id = ClaimId((u128::MAX - u128::from(table.count)).to_be_bytes());
        let new = FollowedMemo { subscriptions: 0, id, due: None, is_entered: false };
        let memo = table.followed.entry(name.clone()).or_insert(new);
        memo.subscriptions += 1;
        // Each subscription gets its first notification.
        (memo.due, memo.is_entered) = (None, false);
        drop(table);
        self.notify();
        Followed::until_dropped(Subscription(Arc::clone(self), name.clone()))
    }

    /// Remembers that a claim of this client wrote a memo.
    pub(crate) fn add_writer(&self, id: ClaimId) {
        let mut table = self.lock();
        if table.writers.len() < MAX_WRITERS {
            table.writers.insert(id);
        }
    }

    /// Forgets a claim whose hold ended with the write of its memo.
    pub(crate) fn forget_writer(&self, id: ClaimId) {
        self.lock().writers.remove(&id);
    }

    /// Forgets a claim whose hold was converted, and so writes no memos any more; false if it wrote none.
    pub(crate) fn ended_by_conversion(&self, id: ClaimId) -> bool {
        self.lock().writers.remove(&id)
    }

    /// The names of answered releases whose claims wrote a memo. Forgets these claims.
    pub(crate) fn ended_writers<'a>(&self, releases: &'a [Release], answers: &[Released]) -> Vec<&'a Name> {
        let mut table = self.lock();
        if table.writers.is_empty() {
            return Vec::new();
        }
        let is_answered = |answer: &Released| !matches!(answer, Released::Unknown(_));
        let answered = releases.iter().zip(answers).filter(|(_, answer)| is_answered(answer));
        let names = answered.map(|(release, _)| release).filter(|release| table.writers.remove(&release.id));
        names.map(|release| &release.name).collect()
    }

    /// Ends the task, after it has removed the entries of this client.
    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.work.notify_one();
    }

    /// Completes when the task is to be started, once.
    pub(crate) async fn begun(&self) {
        if self.is_running.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
        self.first_work.notified().await;
        self.is_running.store(true, Ordering::Release);
    }

    fn notify(&self) {
        self.work.notify_one();
        self.first_work.notify_one();
    }

    /// Locks the table.
    fn lock(&self) -> MutexGuard<'_, Table> {
        lock_mutex(&self.table)
    }

    /// The names whose entry is due, and the time until the next one is.
    fn due(&self, now: Instant) -> (Vec<(Name, ClaimId)>, Duration) {
        let table = self.lock();
        let is_due = |memo: &FollowedMemo| memo.due.is_none_or(|due| due <= now);
        let due = table.followed.iter().filter(|(_, memo)| is_due(memo));
        let names = due.map(|(name, memo)| (name.clone(), memo.id)).collect();
        let next = table.followed.values().filter_map(|memo| memo.due).map(|due| due.since(now)).min();
        (names, next.unwrap_or(REFRESH))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let Self(followers, name) = self;
        let mut table = followers.lock();
        let Some(memo) = table.followed.get_mut(name) else { return };
        memo.subscriptions -= 1;
        if memo.subscriptions == 0 {
            let id = memo.id;
            table.followed.remove(name);
            table.ended.push((name.clone(), id));
        }
        drop(table);
        followers.notify();
    }
}

/// Sends the requests for the followed memos of one client.
pub(crate) struct FollowTask {
    pub(crate) client: Arc<Client>,
    pub(crate) reach: Arc<Reach>,
    pub(crate) followers: Arc<MemoFollowers>,
}

impl FollowTask {
    /// Runs until the client is dropped.
    pub(crate) async fn run(self) {
        loop {
            let ended = std::mem::take(&mut self.followers.lock().ended);
            for (name, id) in ended {
                // An entry that cannot be removed ends by itself.
                let _ = runtime::within(REMOVAL_LIMIT, self.send(&name, "remove", None)).await;
                if let Ok(keys) = self.keys(&name) {
                    self.reach.stop_waiting(keys.slot, id);
                }
            }
            if self.followers.is_closed.load(Ordering::Acquire) {
                return;
            }
            for (name, id) in self.followers.due(self.client.clock.now()).0 {
                let is_entered = self.send(&name, "add", Some(id)).await.is_ok();
                self.entered(&name, id, is_entered);
            }
            let pause = self.followers.due(self.client.clock.now()).1;
            tokio::select! {
                () = self.followers.work.notified() => {}
                () = runtime::pause(pause) => {}
            }
        }
    }

    /// Records the answer to an entry, and notifies the follower after the first one.
    fn entered(&self, name: &Name, id: ClaimId, is_entered: bool) {
        let mut table = self.followers.lock();
        let Some(memo) = table.followed.get_mut(name).filter(|memo| memo.id == id) else { return };
        memo.due = Some(self.client.clock.now().after(if is_entered { REFRESH } else { RETRY }));
        let is_first = is_entered && !memo.is_entered;
        memo.is_entered = is_entered;
        drop(table);
        if is_first {
            self.client.mailbox.push(Notification::Memo { name: name.clone() });
        }
    }

    /// The keys of a name.
    fn keys<'a>(&'a self, name: &'a Name) -> Result<Keys<'a>, Refused> {
        let mut keys = Keys::of(&self.client.config.prefix, name).map_err(Refused::Failed)?;
        keys.layout_letter = self.client.config.layout.layout_letter();
        Ok(keys)
    }

    /// Sends one request of `lua/follow_memo.lua`. With a `follower` the client first subscribes to its channel.
    async fn send(&self, name: &Name, action: &str, follower: Option<ClaimId>) -> Result<(), Refused> {
        let keys = self.keys(name)?;
        let mut request = self.reach.request(keys.slot);
        loop {
            let route = request.route().await.map_err(Refused::Failed)?;
            if let Some(id) = follower {
                route.set_waiting(id, name, true);
                if !route.is_subscribed().await.map_err(Refused::Failed)?
                    && let Err(refused) = route.subscribe().await
                {
                    request.retry(refused).await?;
                    continue;
                }
            }
            let channel = route.channel(&self.client).await.map_err(Refused::Failed)?;
            let item = Item::new(&keys).text(channel.as_bytes()).text(action.as_bytes());
            match route.run(Script::FollowMemo, [item].into()).await {
                Ok(_) => return Ok(()),
                Err(refused) => request.retry(refused).await?,
            }
        }
    }
}
