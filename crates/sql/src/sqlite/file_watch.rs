//! The file watch: by it processes signal each other that a waiting claim was granted.
//!
//! A watch on the write-ahead log would signal too early: when the first page of a commit is written, although no
//! reader sees the commit before all of it is on the disk. It would also signal every commit, not only grants. So a
//! process that granted a claim of another process sets the times of the database file after its commit, and all
//! waiting processes watch these times (inotify). Setting the times leaves nothing behind, opens nothing (closing a
//! file would drop the locks of SQLite on it), and needs only the right to write. The signal is a hint: a process that
//! has no watch, or whose watch does not see the changes of other processes, polls at its poll interval.

use std::{
    os::fd::{AsFd, AsRawFd, RawFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Clock, Instant};
use nix::{
    fcntl::AT_FDCWD,
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify},
        stat::{UtimensatFlags, utimensat},
        time::TimeSpec,
    },
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{client::lock_mutex, runtime};

/// How long an unused inotify instance stays open: the kernel allows each user only a few.
const CLOSE_AFTER: Duration = Duration::from_secs(10);
/// How many signals in a row that led to no grant of this client are handled one by one. Further signals are collected
/// for [`COLLECT_FOR`] and handled together. Otherwise, where hundreds of processes wait for many locks, each process
/// would check at every hand-over of any lock.
const MAX_SINGLE_SIGNALS: u32 = 8;
/// How long signals are collected for one check, after [`MAX_SINGLE_SIGNALS`] signals were handled one by one.
const COLLECT_FOR: Duration = Duration::from_millis(4);

/// The file watch of one client.
pub(super) struct FileWatch {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    /// The inotify instance, if it is open, and when it was last used.
    watch: Mutex<Option<(Arc<Inotify>, Instant)>>,
    /// Whether a signal arrived since the last check.
    woken_since_check: AtomicBool,
    /// How many signals in a row led to no grant of this client.
    signals_for_others: AtomicU32,
}

impl FileWatch {
    pub(super) fn new(path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let (watch, woken_since_check, signals_for_others) =
            (Mutex::new(None), AtomicBool::new(false), AtomicU32::new(0));
        Self { path, clock, watch, woken_since_check, signals_for_others }
    }

    /// Completes when a signal arrived since the last completion. Dropping the future loses no signal.
    pub(super) async fn woken(&self) {
        match self.watch() {
            // A new watch: the caller checks now, because a signal may have come before the watch existed.
            Some((_, true)) => {}
            Some((watch, false)) => {
                readable(&watch).await;
                if self.signals_for_others.load(Ordering::Relaxed) > MAX_SINGLE_SIGNALS {
                    runtime::sleep(COLLECT_FOR).await;
                }
                self.drain(&watch);
            }
            None => return std::future::pending().await,
        }
        self.woken_since_check.store(true, Ordering::Relaxed);
    }

    /// Records the result of a check: whether it found a grant.
    pub(super) fn note_check(&self, found_grant: bool) {
        if found_grant {
            self.signals_for_others.store(0, Ordering::Relaxed);
        } else if self.woken_since_check.swap(false, Ordering::Relaxed) {
            self.signals_for_others.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Closes the watch after a while without waiting claims. Called while no claim waits.
    pub(super) fn close_unused(&self) {
        let now = self.clock.now();
        lock_mutex(&self.watch).take_if(|(_, last_used)| now.since(*last_used) >= CLOSE_AFTER);
    }

    /// The watch, and whether it is new.
    fn watch(&self) -> Option<(Arc<Inotify>, bool)> {
        let mut shared_watch = lock_mutex(&self.watch);
        let now = self.clock.now();
        if let Some((watch, last_used)) = &mut *shared_watch {
            *last_used = now;
            return Some((Arc::clone(watch), false));
        }
        let created = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).and_then(|inotify| {
            inotify.add_watch(&self.path, AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVE_SELF)?;
            Ok(Arc::new(inotify))
        });
        match created {
            Ok(created) => {
                *shared_watch = Some((Arc::clone(&created), now));
                Some((created, true))
            }
            Err(errno) => {
                tracing::debug!(%errno, "cannot watch the database (see fs.inotify.max_user_instances): waiters poll");
                None
            }
        }
    }

    /// Reads all events. A watch that ended with its file is created again.
    fn drain(&self, watch: &Inotify) {
        let end_events = AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_MOVE_SELF;
        while let Ok(events) = watch.read_events() {
            if events.iter().any(|event| event.mask.intersects(end_events)) {
                *lock_mutex(&self.watch) = None;
                return;
            }
        }
    }
}

/// Signals the other processes.
pub(super) fn wake_others(path: &Path) {
    let now = TimeSpec::UTIME_NOW;
    if let Err(errno) = utimensat(AT_FDCWD, path, &now, &now, UtimensatFlags::FollowSymlink) {
        tracing::debug!(%errno, "the times of the database cannot be set: other processes find their grants by polling");
    }
}

/// Completes when the watch has events; never if waiting for events is impossible.
pub(super) async fn readable(watch: &Arc<Inotify>) {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; `RegisteredInotify` keeps what that asks for: one open descriptor"
    )]
    let ready = AsyncFd::with_interest(RegisteredInotify(Arc::clone(watch)), Interest::READABLE);
    let Ok(ready) = ready else { return std::future::pending().await };
    if ready.readable().await.is_err() {
        std::future::pending().await
    }
}

/// Keeps the inotify descriptor open while it is registered with tokio.
struct RegisteredInotify(Arc<Inotify>);

impl AsRawFd for RegisteredInotify {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use leasehold_core::Env;

    use super::*;

    const SOON: Duration = Duration::from_millis(60);
    const LATE: Duration = Duration::from_secs(10);

    #[test]
    fn only_wakes_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        fs::write(&path, "x").unwrap();
        let file_watch = FileWatch::new(path.clone(), Env::system().clock);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let woken =
            |within| runtime.block_on(async { runtime::within(within, file_watch.woken()).await.is_some() });
        assert!(woken(LATE), "a new watch causes one check");
        assert!(!woken(SOON));
        fs::write(dir.path().join("locks.db-wal"), "y").unwrap();
        fs::OpenOptions::new().append(true).open(&path).and_then(|mut file| io_write(&mut file)).unwrap();
        assert!(!woken(SOON), "a write is no wake");
        wake_others(&path);
        wake_others(&path);
        assert!(woken(LATE));
        assert!(!woken(SOON), "two wakes may be noticed as one");
        // A signal that comes while no future waits is not lost.
        wake_others(&path);
        assert!(woken(LATE));
        // A replaced file is noticed, and the new one is watched.
        fs::write(dir.path().join("new"), "x").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert!(woken(LATE));
        while woken(SOON) {}
        wake_others(&path);
        assert!(woken(LATE));
    }

    fn io_write(file: &mut fs::File) -> std::io::Result<()> {
        std::io::Write::write_all(file, b"z")
    }

    #[test]
    fn wakes_for_others_slow_down_the_checks() {
        let file_watch = FileWatch::new(PathBuf::from("/"), Env::system().clock);
        for _ in 0..=MAX_SINGLE_SIGNALS {
            file_watch.woken_since_check.store(true, Ordering::Relaxed);
            file_watch.note_check(false);
            file_watch.note_check(false);
        }
        assert_eq!(
            file_watch.signals_for_others.load(Ordering::Relaxed),
            MAX_SINGLE_SIGNALS + 1,
            "looks that were due anyway do not count"
        );
        file_watch.note_check(true);
        assert_eq!(file_watch.signals_for_others.load(Ordering::Relaxed), 0);
    }
}
