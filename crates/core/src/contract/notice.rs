//! Notices: an engine tells a view that some lock may have changed. No I/O, no clock, no task.

use std::{
    fmt,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::sync::Notify;

use crate::Name;

/// The names of which a view is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// All that begin with this.
    Prefix(String),
    /// This one.
    Name(Name),
}

impl Watched {
    /// Whether a change of this name is to be told.
    #[must_use]
    pub fn includes(&self, name: &Name) -> bool {
        match self {
            Self::Prefix(prefix) => name.as_str().starts_with(prefix),
            Self::Name(watched) => watched == name,
        }
    }
}

/// A pair for one view: the engine has the sender, the view the receiver.
#[must_use]
pub fn notices() -> (NoticeSender, Notices) {
    let inner = Arc::new(Inner::default());
    (NoticeSender(Arc::clone(&inner)), Notices(inner))
}

/// Where an engine puts its notices. All clones are the same sender.
#[derive(Clone)]
pub struct NoticeSender(Arc<Inner>);

/// The notices of a view. A notice has no content: it is a reason to look, and several that were not taken are one.
/// Notices can be lost or late, and can come without a change, so a view also looks without them.
pub struct Notices(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    /// The receiver was dropped.
    is_unread: AtomicBool,
    /// Notified when the receiver is dropped.
    unread: Notify,
}

#[derive(Default)]
struct State {
    is_noticed: bool,
    is_pushed: bool,
    reader: Option<Waker>,
}

impl NoticeSender {
    /// From now on the engine sends a notice for each change. This is a notice, too, because of the changes before it.
    pub fn begin(&self) {
        self.notice(|state| state.is_pushed = true);
    }

    /// Something may have changed.
    pub fn changed(&self) {
        self.notice(|_| {});
    }

    /// From now on the engine sends no notices, until the next [`begin`](Self::begin). This is a notice, too, if it
    /// sent any: a change may have been missed.
    pub fn end(&self) {
        let mut state = self.0.lock();
        if std::mem::take(&mut state.is_pushed) {
            drop(state);
            self.changed();
        }
    }

    fn notice(&self, change: impl FnOnce(&mut State)) {
        let reader = {
            let mut state = self.0.lock();
            change(&mut state);
            state.is_noticed = true;
            state.reader.take()
        };
        // Woken after the lock is free: a reader may run at once, on this thread.
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Whether the receiver was dropped, so that nobody reads the notices.
    #[must_use]
    pub fn is_unread(&self) -> bool {
        self.0.is_unread.load(Ordering::Acquire)
    }

    /// Waits until the receiver is dropped. One task may wait.
    pub async fn unread(&self) {
        while !self.is_unread() {
            self.0.unread.notified().await;
        }
    }
}

impl Notices {
    /// Waits for a notice, and takes it. Dropping the future loses none.
    pub async fn changed(&mut self) {
        poll_fn(|context| self.poll_changed(context)).await;
    }

    /// As [`changed`](Self::changed): takes the notice, or has `context` woken by the next one.
    pub fn poll_changed(&mut self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if std::mem::take(&mut state.is_noticed) {
            return Poll::Ready(());
        }
        if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
            state.reader = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Takes the notice, if there is one: for a view that looks now.
    pub fn take(&mut self) {
        self.0.lock().is_noticed = false;
    }

    /// Whether the engine sends a notice for each change at present.
    #[must_use]
    pub fn are_pushed(&self) -> bool {
        self.0.lock().is_pushed
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.0.is_unread.store(true, Ordering::Release);
        self.0.unread.notify_one();
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NoticeSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoticeSender").field("is_unread", &self.is_unread()).finish()
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notices").field("are_pushed", &self.are_pushed()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn poll(notices: &mut Notices) -> Poll<()> {
        notices.poll_changed(&Context::from_waker(Waker::noop()))
    }

    #[test]
    fn several_notices_are_one_and_the_view_knows_whether_they_are_pushed() {
        let (sender, mut notices) = notices();
        assert!(poll(&mut notices).is_pending() && !notices.are_pushed());
        sender.begin();
        sender.changed();
        assert!(poll(&mut notices).is_ready() && poll(&mut notices).is_pending() && notices.are_pushed());
        sender.end();
        assert!(poll(&mut notices).is_ready() && !notices.are_pushed(), "a change may have been missed");
        sender.end();
        assert!(poll(&mut notices).is_pending(), "there were none");
        sender.changed();
        notices.take();
        assert!(poll(&mut notices).is_pending());
    }

    #[test]
    fn the_drop_of_the_receiver_ends_the_work_of_the_sender() {
        let (sender, notices) = notices();
        let mut unread = pin!(sender.unread());
        let mut context = Context::from_waker(Waker::noop());
        assert!(unread.as_mut().poll(&mut context).is_pending());
        drop(notices);
        assert!(unread.poll(&mut context).is_ready() && sender.is_unread());
    }

    #[test]
    fn a_view_is_told_of_its_own_names() {
        let [long, short] = ["job/1", "job"].map(|name| Name::new(name).unwrap());
        let prefix = Watched::Prefix("job".to_owned());
        let exact = Watched::Name(short.clone());
        assert!(prefix.includes(&long) && prefix.includes(&short));
        assert!(!exact.includes(&long) && exact.includes(&short));
    }
}
