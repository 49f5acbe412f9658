//! The bell by which processes tell each other that something was granted to a claim that waits.
//!
//! A watch on the log would ring with the first page of a commit, which nobody can see before it is on the disk; and with every
//! commit, whomever it is about. So who granted something sets the times of the file after the commit, which all who wait see:
//! that leaves nothing behind, opens nothing (closing a file would drop the locks of SQLite on it), and needs no more than
//! the right to write. It is a hint: who has no watch, or does not see others', looks as often as the pace says.

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

use crate::{client::lock_of, runtime};

/// How long an inotify instance is kept that nobody needs: a user has few.
const KEPT: Duration = Duration::from_secs(10);
/// How often in a row the bell may ring for others before one listens less closely: where hundreds wait for many locks, each would
/// look at each hand-over of all.
const PATIENCE: u32 = 8;
/// Then one look serves all that rang meanwhile.
const SELDOM: Duration = Duration::from_millis(4);

pub(super) struct FileWatch {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    watch: Mutex<Option<(Arc<Inotify>, Instant)>>,
    /// It rang, and nobody has looked since.
    rung: AtomicBool,
    /// How often in a row it rang for others.
    others: AtomicU32,
}

impl FileWatch {
    pub(super) fn new(path: PathBuf, clock: Arc<dyn Clock>) -> Self {
        let (watch, rung, others) = (Mutex::new(None), AtomicBool::new(false), AtomicU32::new(0));
        Self { path, clock, watch, rung, others }
    }

    /// Returns when it rang since this returned last. Loses nothing when it is dropped.
    pub(super) async fn rang(&self) {
        match self.watch() {
            // What came before there was a watch is looked at now.
            Some((_, true)) => {}
            Some((watch, false)) => {
                heard(&watch).await;
                if self.others.load(Ordering::Relaxed) > PATIENCE {
                    runtime::sleep(SELDOM).await;
                }
                self.drain(&watch);
            }
            None => return std::future::pending().await,
        }
        self.rung.store(true, Ordering::Relaxed);
    }

    /// Somebody looked, and found something or not.
    pub(super) fn looked(&self, found: bool) {
        if found {
            self.others.store(0, Ordering::Relaxed);
        } else if self.rung.swap(false, Ordering::Relaxed) {
            self.others.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Nobody waits.
    pub(super) fn rest(&self) {
        let now = self.clock.now();
        lock_of(&self.watch).take_if(|(_, used)| now.since(*used) >= KEPT);
    }

    /// The watch, and whether it is new.
    fn watch(&self) -> Option<(Arc<Inotify>, bool)> {
        let mut watch = lock_of(&self.watch);
        let now = self.clock.now();
        if let Some((watch, used)) = &mut *watch {
            *used = now;
            return Some((Arc::clone(watch), false));
        }
        let made = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).and_then(|inotify| {
            inotify.add_watch(&self.path, AddWatchFlags::IN_ATTRIB | AddWatchFlags::IN_MOVE_SELF)?;
            Ok(Arc::new(inotify))
        });
        match made {
            Ok(made) => {
                *watch = Some((Arc::clone(&made), now));
                Some((made, true))
            }
            Err(errno) => {
                tracing::debug!(%errno, "no watch on the database (see fs.inotify.max_user_instances): who waits looks at a pace");
                None
            }
        }
    }

    /// Takes all events. A watch that ended with its file is made anew.
    fn drain(&self, watch: &Inotify) {
        let ends = AddWatchFlags::IN_IGNORED | AddWatchFlags::IN_MOVE_SELF;
        while let Ok(events) = watch.read_events() {
            if events.iter().any(|event| event.mask.intersects(ends)) {
                *lock_of(&self.watch) = None;
                return;
            }
        }
    }
}

/// Rings.
pub(super) fn ring(path: &Path) {
    let now = TimeSpec::UTIME_NOW;
    if let Err(errno) = utimensat(AT_FDCWD, path, &now, &now, UtimensatFlags::FollowSymlink) {
        tracing::debug!(%errno, "the times of the database cannot be set: others look at a pace what was granted to them");
    }
}

async fn heard(watch: &Arc<Inotify>) {
    #[expect(
        deprecated,
        reason = "its successor is unsafe; `Owned` keeps what that asks for: one open descriptor"
    )]
    let ready = AsyncFd::with_interest(Owned(Arc::clone(watch)), Interest::READABLE);
    let Ok(ready) = ready else { return std::future::pending().await };
    if ready.readable().await.is_err() {
        std::future::pending().await
    }
}

/// Keeps the descriptor open, and the same, for as long as it is registered.
struct Owned(Arc<Inotify>);

impl AsRawFd for Owned {
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
    fn it_is_heard_and_commits_and_other_files_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("locks.db");
        fs::write(&path, "x").unwrap();
        let file_watch = FileWatch::new(path.clone(), Env::system().clock);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rang =
            |within| runtime.block_on(async { runtime::within(within, file_watch.rang()).await.is_some() });
        assert!(rang(LATE), "who begins to listen looks once");
        assert!(!rang(SOON));
        fs::write(dir.path().join("locks.db-wal"), "y").unwrap();
        fs::OpenOptions::new().append(true).open(&path).and_then(|mut file| io_write(&mut file)).unwrap();
        assert!(!rang(SOON), "a write is no ring");
        ring(&path);
        ring(&path);
        assert!(rang(LATE));
        assert!(!rang(SOON), "heard once");
        // While nobody listens, too.
        ring(&path);
        assert!(rang(LATE));
        // Another file in its place is heard of, and listened to.
        fs::write(dir.path().join("new"), "x").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert!(rang(LATE));
        while rang(SOON) {}
        ring(&path);
        assert!(rang(LATE));
    }

    fn io_write(file: &mut fs::File) -> std::io::Result<()> {
        std::io::Write::write_all(file, b"z")
    }

    #[test]
    fn who_hears_only_what_is_for_others_looks_less_often() {
        let file_watch = FileWatch::new(PathBuf::from("/"), Env::system().clock);
        for _ in 0..=PATIENCE {
            file_watch.rung.store(true, Ordering::Relaxed);
            file_watch.looked(false);
            file_watch.looked(false);
        }
        assert_eq!(
            file_watch.others.load(Ordering::Relaxed),
            PATIENCE + 1,
            "looks that were due anyway do not count"
        );
        file_watch.looked(true);
        assert_eq!(file_watch.others.load(Ordering::Relaxed), 0);
    }
}
