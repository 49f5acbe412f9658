//! The followers of memos in this process: one subscription on the engine for each followed name.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use crate::{Engine, Followed, Name, driver::shared::Shared};

/// The followed names of one `Locks`.
#[derive(Default)]
pub(crate) struct Followers(Mutex<HashMap<Name, FollowedName>>);

/// A name with at least one follower.
struct FollowedName {
    /// Counts the hints; its receivers are the followers.
    hints: watch::Sender<u64>,
    /// The subscription on the engine; `None` if the engine pushes no changes of memos.
    subscription: Option<Followed>,
}

/// One follower of one name, until it is dropped.
pub(crate) struct FollowerPlace {
    shared: Arc<Shared>,
    name: Name,
    /// Changes with each hint.
    pub(crate) hints: watch::Receiver<u64>,
    /// The engine pushes changes of memos.
    pub(crate) is_pushed: bool,
}

impl FollowerPlace {
    /// Follows `name`, by the subscription that another follower has, or by a new one.
    pub(crate) fn new(shared: &Arc<Shared>, name: &Name, engine: &dyn Engine) -> Self {
        let mut names = shared.followers.lock();
        let followed = names.entry(name.clone()).or_insert_with(|| FollowedName {
            hints: watch::Sender::new(0),
            subscription: engine.memos().and_then(|memos| memos.follow(name)),
        });
        let (hints, is_pushed) = (followed.hints.subscribe(), followed.subscription.is_some());
        Self { shared: Arc::clone(shared), name: name.clone(), hints, is_pushed }
    }
}

impl Drop for FollowerPlace {
    fn drop(&mut self) {
        let ended = {
            let mut names = self.shared.followers.lock();
            // Its own receiver still counts.
            let is_last = names.get(&self.name).is_some_and(|followed| followed.hints.receiver_count() <= 1);
            is_last.then(|| names.remove(&self.name))
        };
        // Dropped after the lock is free: the end of the subscription is code of the engine.
        drop(ended);
    }
}

impl Followers {
    /// Wakes the followers of this name.
    pub(crate) fn hint(&self, name: &Name) {
        if let Some(followed) = self.lock().get(name) {
            followed.hints.send_modify(|count| *count += 1);
        }
    }

    /// Wakes all followers.
    pub(crate) fn hint_all(&self) {
        for followed in self.lock().values() {
            followed.hints.send_modify(|count| *count += 1);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Name, FollowedName>> {
        // No code under this lock can panic in the middle of a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
