//! The mailbox: the unread notifications of one client of an engine.

use std::{
    future::poll_fn,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use crate::Notification;

/// The most unread notifications. When there are more, all are replaced by [`Notification::AskAll`], which tells the
/// keeper to ask for everything, and by [`Notification::Doubt`] if there was a doubt among them.
pub const MAX_NOTIFICATIONS: usize = 4096;

/// The unread notifications of one client of an engine: bounded, for any number of writers and one reader.
#[derive(Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    notifications: Vec<Notification>,
    reader: Option<Waker>,
}

impl Mailbox {
    /// Adds a notification and wakes the reader.
    pub fn push(&self, notification: Notification) {
        let reader = {
            let mut inner = self.lock();
            if inner.notifications.len() >= MAX_NOTIFICATIONS {
                let doubt = inner
                    .notifications
                    .iter()
                    .chain([&notification])
                    .any(|notification| matches!(notification, Notification::Doubt));
                inner.notifications.clear();
                inner.notifications.push(Notification::AskAll);
                inner.notifications.extend(doubt.then_some(Notification::Doubt));
            } else {
                inner.notifications.push(notification);
            }
            inner.reader.take()
        };
        // Woken after the lock is free: a reader may run at once, on this thread.
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Waits for notifications, and returns all unread ones.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn read(&self) -> Vec<Notification> {
        poll_fn(|context| {
            let mut inner = self.lock();
            if !inner.notifications.is_empty() {
                return Poll::Ready(mem::take(&mut inner.notifications));
            }
            let is_registered = inner.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker()));
            if !is_registered {
                inner.reader = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code under this lock can panic in the middle of a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("unread", &self.lock().notifications.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_becomes_ask_all_and_keeps_a_doubt() {
        let mailbox = Mailbox::default();
        mailbox.push(Notification::Doubt);
        (0..MAX_NOTIFICATIONS).for_each(|_| mailbox.push(Notification::AskAll));
        let notifications = pollster::block_on(mailbox.read());
        assert!(
            matches!(notifications[..], [Notification::AskAll, Notification::Doubt]),
            "{notifications:?}"
        );
    }
}
