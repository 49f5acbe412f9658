//! Follows a memo: learns of its changes by hints of the engine, and by reading it at intervals.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    BoxFuture, Error, Instant, Locks, Memo, MemoVersion, Name, driver::followers::FollowerPlace,
    driver::shared::Shared,
};

/// Without hints of the engine, the memo is read again after this time, which doubles as long as nothing changes.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two reads, whatever the poll interval: the end of a lease is not pushed everywhere.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Follows the memo of one name, without holding the name. From [`Locks::follow_memo`].
///
/// Engines that push changes of memos wake a follower at once. On other engines, and in case a notification is lost, a
/// follower reads the memo at intervals of up to 2 s.
pub struct MemoFollower {
    locks: Locks,
    name: Name,
    place: FollowerPlace,
    /// What was returned last.
    last: Option<Seen>,
    /// When the memo is read next, unless a hint comes before. An instant and no pause, so that a caller that drops
    /// [`changed`](Self::changed) again and again does not put off the read.
    next_read_at: Instant,
    /// The time between the last read and the next.
    pause: Duration,
    /// When the newest read that was answered began; before the first one, when the follower was made.
    answered_at: Instant,
}

/// An instant that is over.
const READ_NOW: Instant = Instant::from_nanos(0);

/// The parts of a memo whose change is reported.
type Seen = Option<(MemoVersion, bool)>;

impl MemoFollower {
    /// A follower that has read nothing yet.
    pub(crate) fn new(locks: &Locks, name: &Name) -> Self {
        let shared = locks.shared();
        let place = FollowerPlace::new(shared, name, &*shared.engine);
        let pause = first_pause(shared, place.is_pushed);
        let (locks, name, answered_at) = (locks.clone(), name.clone(), shared.now());
        Self { locks, name, place, last: None, next_read_at: READ_NOW, pause, answered_at }
    }

    /// The name followed.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The memo, as soon as it differs from what this follower returned last: another version, no memo any more, or
    /// the same memo whose hold has ended ([`Memo::is_held`]). The first call returns the present memo. Only the
    /// newest memo is returned: earlier ones that were replaced before they were read are skipped.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change, and does not put off the next read.
    ///
    /// # Errors
    /// As [`Locks::read_memo`]. After such an error the follower is still usable: the next call waits for the interval
    /// and reads again. [`ErrorKind::Closed`](crate::ErrorKind::Closed) after [`Locks::close`] is final: each further
    /// call fails at once, so a loop must end with this error.
    pub async fn changed(&mut self) -> Result<Option<Memo>, Error> {
        loop {
            self.wait().await;
            // If this future is dropped during the read, the next call reads at once: the hint is used up.
            self.next_read_at = READ_NOW;
            // Hints from here on are for the next read: this one may be older than they are.
            self.place.hints.borrow_and_update();
            let began_at = self.locks.shared().now();
            let memo = self.locks.read_memo_of(&self.name).await;
            if memo.is_ok() {
                self.answered_at = began_at;
            }
            let seen = memo.as_ref().ok().map(|memo| memo.as_ref().map(|memo| (memo.version, memo.is_held)));
            let is_changed = seen.is_some_and(|seen| self.last.replace(seen) != Some(seen));
            let shared = self.locks.shared();
            if is_changed {
                self.pause = first_pause(shared, self.place.is_pushed);
            } else if seen.is_some() {
                self.pause = (self.pause * 2).min(longest_pause(shared));
            }
            self.next_read_at = shared.now().after(self.pause);
            if is_changed || memo.is_err() {
                return memo;
            }
        }
    }

    /// [`changed`](Self::changed) for code without an executor: blocks the thread.
    ///
    /// # Errors
    /// As [`changed`](Self::changed).
    #[track_caller]
    pub fn changed_blocking(&mut self) -> Result<Option<Memo>, Error> {
        let shared = Arc::clone(self.locks.shared());
        let changed: BoxFuture<'_, _> = Box::pin(self.changed());
        shared.block_on(changed)?
    }

    /// When the newest read that was answered began.
    pub(crate) const fn answered_at(&self) -> Instant {
        self.answered_at
    }

    /// Whether nothing was read yet, or the newest read was dropped before its answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        self.next_read_at == READ_NOW
    }

    /// The next memo that is read is returned, whatever was returned before.
    pub(crate) const fn forget(&mut self) {
        self.last = None;
    }

    /// Waits for a hint, or until the next read is due.
    async fn wait(&mut self) {
        if self.locks.shared().now() >= self.next_read_at {
            return;
        }
        let alarm = self.locks.shared().alarm(self.next_read_at);
        tokio::select! {
            biased;
            _ = self.place.hints.changed() => {}
            // The end of the keeper also ends the wait: the read then fails.
            _ = alarm => {}
        }
    }
}

/// The first pause between two reads: with hints, the longest.
fn first_pause(shared: &Shared, is_pushed: bool) -> Duration {
    if is_pushed { longest_pause(shared) } else { FIRST_PAUSE }
}

fn longest_pause(shared: &Shared) -> Duration {
    (*shared.profile.poll.end()).clamp(FIRST_PAUSE, LONGEST_PAUSE)
}

impl fmt::Debug for MemoFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoFollower({:?})", self.name.as_str())
    }
}
