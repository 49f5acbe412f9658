//! Tells views of changes of a database, by an inotify instance that watches its directory for writes to the database
//! and its logs. A view that only reads writes to neither. Other tables of the database are told too.

use std::{os::unix::ffi::OsStrExt, path::Path, sync::Arc, time::Duration};

use leasehold_core::{EngineError, Fault, NoticeSender};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::file_watch::readable;
use crate::runtime;

/// After this time a write is told a second time: the first page of a commit is written before a reader sees the
/// commit.
const AGAIN_AFTER: Duration = Duration::from_millis(30);
/// The events that a commit causes, and those after which the directory is watched no more.
const EVENTS: AddWatchFlags =
    AddWatchFlags::IN_MODIFY.union(AddWatchFlags::IN_MOVED_TO).union(AddWatchFlags::IN_DELETE);
const END_EVENTS: AddWatchFlags =
    AddWatchFlags::IN_DELETE_SELF.union(AddWatchFlags::IN_MOVE_SELF).union(AddWatchFlags::IN_IGNORED);
/// What SQLite appends to the name of a database for its logs.
const LOGS: [&[u8]; 2] = [b"-wal", b"-journal"];

/// Tells a view of each commit until the directory goes away.
pub(super) async fn tell_changes(path: &Path, notices: &NoticeSender) -> Result<(), EngineError> {
    let failed =
        |why: &str| EngineError::new(Fault::Retry, format!("cannot watch {}: {why}", path.display()));
    // Without symbolic links: the logs lie beside the file itself.
    let path = std::fs::canonicalize(path).map_err(|error| failed(&error.to_string()))?;
    let (Some(dir), Some(file)) = (path.parent(), path.file_name()) else {
        return Err(failed("it is no file"));
    };
    let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).and_then(|inotify| {
        inotify.add_watch(dir, EVENTS | END_EVENTS)?;
        Ok(inotify)
    });
    let watch = Arc::new(watch.map_err(|errno| failed(errno.desc()))?);
    notices.begin();
    loop {
        readable(&watch).await;
        let mut is_changed = false;
        while let Ok(events) = watch.read_events() {
            for event in events {
                match &event.name {
                    Some(name) => is_changed |= is_part(file.as_bytes(), name.as_bytes()),
                    None if event.mask.intersects(END_EVENTS) => {
                        return Err(failed("its directory went away"));
                    }
                    // An overflow: events were lost.
                    None => is_changed = true,
                }
            }
        }
        if is_changed {
            notices.changed();
            runtime::sleep(AGAIN_AFTER).await;
            notices.changed();
        }
    }
}

/// Whether a file is the database or one of its logs.
fn is_part(database: &[u8], file: &[u8]) -> bool {
    file.strip_prefix(database).is_some_and(|rest| rest.is_empty() || LOGS.contains(&rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_and_its_logs_are_told() {
        let shown = ["a.db", "a.db-wal", "a.db-journal", "a.db-shm", "b.db", "a.db2", "a.d"]
            .map(|file| is_part(b"a.db", file.as_bytes()));
        assert_eq!(shown, [true, true, true, false, false, false, false]);
    }
}
