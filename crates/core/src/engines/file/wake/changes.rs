//! Tells views of changes of the lock directory, by an inotify instance with two watches for each view, however many
//! names there are: on the state files, into which each grant, wait and release is written, and on the lock files,
//! whose close shows the end of a killed process. A look at the locks causes neither event: it opens files only to
//! read them.

use std::{
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    time::Duration,
};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::{
    super::{
        dir::encode::{self, Decoded},
        dir::open::Access,
        engine::FileEngine,
        error::classify_errno,
    },
    readable_fd::ReadableFd,
};
use crate::{EngineError, Fault, NoticeSender, Watched, driver::keeper::env::sleep};

/// After this time an event is told a second time: a hold has its record a moment before its kernel locks or after
/// them, and the kernel reports a close before it frees the lock of a killed process.
const AGAIN_AFTER: Duration = Duration::from_millis(30);
/// The maximum number of reads of events for one notice: the rest of a flood is left for the next.
const MAX_READS: usize = 16;
/// The events of state files and of lock files that a change causes.
const STATE_EVENTS: AddWatchFlags = AddWatchFlags::IN_MODIFY
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_DELETE);
const LOCK_EVENTS: AddWatchFlags = AddWatchFlags::IN_CLOSE_WRITE
    .union(AddWatchFlags::IN_MOVED_TO)
    .union(AddWatchFlags::IN_MOVED_FROM)
    .union(AddWatchFlags::IN_DELETE);
/// The events after which a directory is watched no more.
const END_EVENTS: AddWatchFlags = AddWatchFlags::IN_DELETE_SELF.union(AddWatchFlags::IN_MOVE_SELF);

impl FileEngine {
    /// The verb `tell_changes`.
    pub(crate) async fn tell_changes_now(
        &self,
        watched: &Watched,
        notices: &NoticeSender,
    ) -> Result<(), EngineError> {
        let inotify = ReadableFd::new(self.watch_directories()?);
        notices.begin();
        loop {
            inotify.readable().await;
            match read_events(inotify.get(), watched) {
                Events::OfOthers => {}
                Events::Changes => {
                    notices.changed();
                    sleep(AGAIN_AFTER).await;
                    notices.changed();
                }
                Events::End => return Err(self.not_watched("was moved or removed")),
            }
        }
    }

    /// An inotify instance that watches the directories of the state files and of the lock files.
    fn watch_directories(&self) -> Result<Inotify, EngineError> {
        let lock_dir = self.dir.lock_dir(Access::ExistingToRead)?;
        let state_dir =
            lock_dir.map(|lock_dir| lock_dir.state_dir(Access::ExistingToRead)).transpose()?.flatten();
        let (Some(lock_dir), Some(state_dir)) = (lock_dir, state_dir) else {
            return Err(self.not_watched("does not exist yet"));
        };
        let shown_path = || self.dir.path.display().to_string();
        let failed = |errno| classify_errno("cannot watch", &shown_path(), errno);
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).map_err(failed)?;
        let watch = |dir: &OwnedFd, events: AddWatchFlags| {
            let opened = format!("/proc/self/fd/{}", dir.as_raw_fd());
            inotify.add_watch(opened.as_str(), events | END_EVENTS).map_err(failed)
        };
        watch(state_dir, STATE_EVENTS)?;
        watch(&lock_dir.fd, LOCK_EVENTS)?;
        Ok(inotify)
    }

    fn not_watched(&self, why: &str) -> EngineError {
        EngineError::new(Fault::Retry, format!("the lock directory {} {why}", self.dir.path.display()))
    }
}

/// What some events of inotify mean for a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Events {
    /// They are of names that the view does not show.
    OfOthers,
    Changes,
    /// No more events come.
    End,
}

/// Reads the events that are there.
fn read_events(inotify: &Inotify, watched: &Watched) -> Events {
    let mut found = Events::OfOthers;
    for _ in 0..MAX_READS {
        let Ok(events) = inotify.read_events() else { return found };
        for event in events {
            found = found.max(match &event.name {
                Some(file) if is_watched(watched, file.as_bytes()) => Events::Changes,
                Some(_) => Events::OfOthers,
                None if event.mask.intersects(END_EVENTS | AddWatchFlags::IN_IGNORED) => Events::End,
                // An overflow: events were lost.
                None => Events::Changes,
            });
        }
    }
    // Events are left, of which the caller is not told again.
    found.max(Events::Changes)
}

/// Whether a file is the lock file or the state file of a watched name. A hashed file name may be that of any long
/// name.
fn is_watched(watched: &Watched, file: &[u8]) -> bool {
    let Ok(file) = std::str::from_utf8(file) else { return false };
    match encode::decode(file) {
        Some(Decoded::Name(name)) => watched.includes(&name),
        Some(Decoded::Hashed) => match watched {
            Watched::Prefix(_) => true,
            Watched::Name(name) => encode::file_name(name) == file,
        },
        None => false,
    }
}
