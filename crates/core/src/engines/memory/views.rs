//! The views that are told of changes in a store.

use std::{
    future::pending,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{EngineError, Name, NoticeSender, Watched};

/// The views of all clients of a store.
#[derive(Default)]
pub(super) struct Views {
    list: Mutex<Vec<(u64, Watched, NoticeSender)>>,
    /// The number of views. Without any, a change takes no lock that all threads share.
    ///
    /// Relaxed is enough: a view looks after it was counted. Either it sees the change, or the step of the change had
    /// the lock of the shard after the look, and sees the count.
    count: AtomicUsize,
}

impl Views {
    /// Tells the views of a change of this name.
    pub(super) fn tell(&self, name: &Name) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for (_, _, notices) in self.lock().iter().filter(|(_, watched, _)| watched.includes(name)) {
            notices.changed();
        }
    }

    /// Tells a view of changes until the future is dropped.
    pub(super) async fn tell_view(
        &self,
        watched: &Watched,
        notices: &NoticeSender,
    ) -> Result<(), EngineError> {
        let number = {
            let mut list = self.lock();
            let number = list.last().map_or(0, |(number, ..)| number + 1);
            list.push((number, watched.clone(), notices.clone()));
            self.count.store(list.len(), Ordering::Relaxed);
            number
        };
        let _registration = Registration { views: self, number };
        notices.begin();
        pending().await
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Watched, NoticeSender)>> {
        // No code under this lock can panic in the middle of a change.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A view in the list, until it is dropped.
struct Registration<'a> {
    views: &'a Views,
    number: u64,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        let mut list = self.views.lock();
        list.retain(|(number, ..)| *number != self.number);
        self.views.count.store(list.len(), Ordering::Relaxed);
    }
}
