//! Removes the files of memos that have ended, a few with each write.

use std::{
    ffi::{CStr, CString},
    fs::ReadDir,
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    sync::Mutex,
    time::Duration,
};

use super::{
    super::{claims::lock_mutex, dir::Dir},
    layout::{MAGIC, Moment, TIMES_SIZE, left, writer},
    store::{MEMO_SUFFIX, MemoDir, NEW_PREFIX, Through},
};
use crate::ClaimId;

/// How many files of the directory one write looks at: more than it can add, so that a directory in use gets clean.
const LOOKS: usize = 8;
/// A file that is not complete after this time was left by a process that has ended. A write takes milliseconds.
const LONGEST_WRITE: Duration = Duration::from_secs(60);

/// How far this engine has looked through the directory.
#[derive(Debug, Default)]
pub(crate) struct Sweep(Mutex<Option<ReadDir>>);

impl Sweep {
    /// Looks at the next files, and removes those of memos that have ended and whose claim does not hold the name any
    /// more: under the hold, the number of the memo tells late writes. Errors are left to a later sweep. `is_held`:
    /// whether this claim may hold the name of this memo file. A hold that has ended does not come back, so the answer
    /// "no" stays true.
    pub(crate) fn step(
        &self,
        dir: &Dir,
        memo_dir: &MemoDir<'_>,
        now: Moment,
        is_held: impl Fn(&CStr, ClaimId) -> bool,
    ) {
        let mut place = lock_mutex(&self.0);
        for _ in 0..LOOKS {
            if place.is_none() {
                *place = std::fs::read_dir(dir.state_path("")).ok();
            }
            let Some(Ok(entry)) = place.as_mut().and_then(Iterator::next) else {
                *place = None;
                return;
            };
            let name = entry.file_name().into_vec();
            let (is_memo, is_new) =
                (name.ends_with(MEMO_SUFFIX.as_bytes()), name.starts_with(NEW_PREFIX.as_bytes()));
            let Ok(name) = CString::new(name) else { continue };
            if is_new {
                let changed = entry.metadata().map_or(0, |stat| u64::try_from(stat.mtime()).unwrap_or(0));
                if now.time_of_day.saturating_sub(Duration::from_secs(changed)) > LONGEST_WRITE {
                    memo_dir.remove(&name);
                }
            } else if is_memo
                && let Some(id) = ended_writer(memo_dir, &name, now)
                && !is_held(&name, id)
            {
                // A writer may have replaced the memo since: it is read again while no writer can replace it.
                if let Ok(Some(_gate)) = memo_dir.pass_gate(Through::Remover)
                    && ended_writer(memo_dir, &name, now) == Some(id)
                {
                    memo_dir.remove(&name);
                }
            }
        }
    }
}

/// The writer of this memo file, if its memo has ended. Foreign files stay.
fn ended_writer(memo_dir: &MemoDir<'_>, name: &CString, now: Moment) -> Option<ClaimId> {
    let times: [u8; TIMES_SIZE] = memo_dir.read(name, TIMES_SIZE).ok()??.try_into().ok()?;
    let has_ended = times.starts_with(MAGIC) && left(&times, now).is_none();
    has_ended.then(|| writer(&times))
}
