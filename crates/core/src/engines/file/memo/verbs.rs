//! `Memos` for the file engine.

use super::{
    super::{
        claims::{ClaimCell, ClaimState, lock_mutex},
        dir::open::Access,
        engine::FileEngine,
        kernel::locks::NamePaths,
        table::record::RecordState,
    },
    layout::{Moment, StoredMemo, decode, encode, left},
    store::{MemoDir, memo_file_name, state_file_name},
};
use crate::{
    BoxFuture, ClaimId, EngineError, Followed, HoldAfter, Memo, MemoHead, MemoVerdict, MemoWrite, Memos,
    Name, Written, driver::keeper::time_of_day, foreign_memo_error, judge_memo,
};

impl Memos for FileEngine {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(async move { self.read_memo(name) })
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(async move { self.write_memo(write) })
    }

    fn follow(&self, _: &Name) -> Option<Followed> {
        None
    }
}

impl FileEngine {
    /// The memo of a name, and whether its claim still holds the name.
    fn read_memo(&self, name: &Name) -> Result<Option<Memo>, EngineError> {
        let paths = NamePaths::new(&self.dir, name);
        let Some(memo_dir) = MemoDir::open(&self.dir, Access::ExistingToRead)? else { return Ok(None) };
        let file = memo_file_name(&paths.file_name);
        let Some(bytes) = memo_dir.read_whole(&file)? else { return Ok(None) };
        let stored = decode(&bytes).ok_or_else(|| foreign_memo_error(&memo_dir.shown_path(&file)))?;
        let Some(left) = left(&bytes, self.moment()) else { return Ok(None) };
        let is_held = !stored.ends_hold && self.is_held_by(&paths, stored.version.id)?;
        let StoredMemo { kind, bytes, print, version, token, .. } = stored;
        Ok(Some(Memo { kind, bytes, print, version, token, left, is_held }))
    }

    /// Whether this claim, of any process, holds the name, unbroken.
    fn is_held_by(&self, paths: &NamePaths, id: ClaimId) -> Result<bool, EngineError> {
        let (_, records) = self.live_records(paths)?;
        Ok(records.iter().any(|stored| {
            let record = &stored.record;
            record.state == RecordState::Holding && record.id == id && !record.is_broken()
        }))
    }

    /// Writes a memo under a hold of this engine. The claim is locked meanwhile, so the hold does not end in between;
    /// and as long as it has its flock, no other process can be granted the name.
    fn write_memo(&self, write: &MemoWrite) -> Result<Written, EngineError> {
        // A claim of another process, or one that has ended, is none of this engine's.
        let Some(cell) = self.claims.find(write.version.id) else { return Ok(Written::Overtaken) };
        {
            let cell = lock_mutex(&cell);
            let ClaimCell::Live(entry) = &*cell else { return Ok(Written::Overtaken) };
            let is_named = matches!(entry.claim_state, ClaimState::Holding { token, .. } if token == write.hold_token)
                && entry.claim.name == write.name;
            if !is_named || self.loss_of(entry)?.is_some() {
                return Ok(Written::Overtaken);
            }
            let memo_dir = MemoDir::open(&self.dir, Access::CreateIfMissing)?;
            let Some(memo_dir) = memo_dir else { return Ok(Written::Overtaken) };
            let (file, now) = (memo_file_name(&entry.paths.file_name), self.moment());
            let stored = match memo_dir.read_whole(&file)? {
                None => None,
                Some(bytes) => {
                    let stored =
                        decode(&bytes).ok_or_else(|| foreign_memo_error(&memo_dir.shown_path(&file)))?;
                    Some((stored, left(&bytes, now).is_none()))
                }
            };
            let is_held = true;
            let stored = stored.as_ref().map(|(stored, has_ended)| MemoHead {
                kind: &stored.kind,
                version: stored.version,
                has_ended: *has_ended,
            });
            match judge_memo(write, is_held, stored) {
                MemoVerdict::Store => {
                    memo_dir.replace(&file, write.version.id, || encode(write, self.moment()))?;
                }
                MemoVerdict::LeaveLater => {}
                MemoVerdict::Overtaken => return Ok(Written::Overtaken),
                MemoVerdict::Refuse(error) => return Err(error),
            }
        }
        if write.after == HoldAfter::Release {
            self.release_one(&write.release());
        }
        // After the release: the next holder need not wait for it.
        self.sweep_memos();
        Ok(Written::Done)
    }

    /// Looks at a few memo files, and removes those that are not needed any more.
    fn sweep_memos(&self) {
        let Ok(Some(memo_dir)) = MemoDir::open(&self.dir, Access::ExistingToRead) else { return };
        self.memo_sweep.step(&self.dir, &memo_dir, self.moment(), |file, id| {
            // Without the name it is not known whether it is held. Such a file belongs to no name that is in use.
            let Some(name) = self.name_of_file(&state_file_name(file)) else { return false };
            self.is_held_by(&NamePaths::new(&self.dir, &name), id).unwrap_or(true)
        });
    }

    /// Now, by both clocks.
    fn moment(&self) -> Moment {
        Moment { boot_id: self.boot_id, since_boot: self.env.clock.now(), time_of_day: time_of_day() }
    }
}
