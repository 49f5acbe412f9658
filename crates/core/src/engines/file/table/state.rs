//! State files: reading, writing, and a small cache of open ones.
//!
//! The state lies beside the lock file, not in it: shell scripts open lock files with `9>file`, which empties them. A
//! state file carries no kernel lock, so all claims of an engine can share its descriptor.

use std::{
    collections::HashMap,
    fs::File,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex},
};

use nix::{sys::stat::fstat, unistd::fsync};
use rustix::fs::{AtFlags, StatxFlags, statx};

use super::super::{
    claims::lock,
    dir::Dir,
    dir::open::{Missing, open_file},
    error::{classify, classify_errno, foreign},
    kernel::locks::{Key, Latch},
    table::layout::{HEAD, Head, NoHead, TOKENS, Tokens, name_bytes},
};
use crate::{EngineError, Lineage, Name};

/// The maximum number of state files kept open: enough for the names in use by a program, few against any limit of
/// open files.
const MAX_OPEN: usize = 64;

/// One open state file.
#[derive(Debug)]
pub(crate) struct StateFile {
    file: File,
    /// The path, for messages.
    shown: String,
}

impl StateFile {
    pub(crate) fn open(dir: &Dir, key: &Key, missing: Missing) -> Result<Option<Self>, EngineError> {
        let shown = dir.state_path(&key.file.to_string_lossy());
        let Some(lock_dir) = dir.lock_dir(missing)? else { return Ok(None) };
        let Some(states) = lock_dir.states(missing)? else { return Ok(None) };
        let opened = open_file(lock_dir, states, &key.file, missing, || shown.clone())?;
        Ok(opened.map(|(file, _)| Self { file, shown }))
    }

    /// The head, parsed and raw; `None` while nothing was written. An error for a file that is not the state of
    /// `name`.
    pub(crate) fn head(&self, name: &Name) -> Result<Option<(Head, [u8; HEAD])>, EngineError> {
        let mut bytes = [0; HEAD];
        let read = self.read(&mut bytes, 0)?;
        // The size matters only for a blank file; records may follow a full head.
        let size = if read == HEAD && bytes[0] == 0 { self.size()? } else { read as u64 };
        match Head::from_bytes(&bytes, size) {
            Ok(_) if name_bytes(&bytes) != name.as_str().as_bytes() => {
                let other = String::from_utf8_lossy(name_bytes(&bytes)).into_owned();
                Err(foreign(&self.shown, &format!("is the state of another name, {other:?}")))
            }
            Ok(head) => Ok(Some((head, bytes))),
            Err(NoHead::Blank) => Ok(None),
            Err(NoHead::Foreign) => {
                Err(foreign(&self.shown, "holds something else than the state of a lock"))
            }
            Err(NoHead::Version(version)) => Err(foreign(
                &self.shown,
                &format!("has layout version {version}, which this version does not know"),
            )),
            Err(NoHead::Damaged) => Err(self.damaged()),
        }
    }

    /// The head; writes a new one if there is none. Under the latch.
    pub(crate) fn head_or_new(
        &self,
        name: &Name,
        _latch: &Latch<'_>,
        boot: [u8; 16],
        lineage: impl FnOnce() -> Lineage,
    ) -> Result<(Head, [u8; HEAD]), EngineError> {
        if let Some(found) = self.head(name)? {
            return Ok(found);
        }
        let head = Head::new(lineage(), boot);
        let bytes = head.to_bytes(name);
        self.write(&bytes, 0)?;
        Ok((head, bytes))
    }

    /// Reads from `at` until the buffer is full or the file ends.
    pub(crate) fn read(&self, bytes: &mut [u8], at: u64) -> Result<usize, EngineError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], at + done as u64) {
                Ok(0) => break,
                Ok(more) => done += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(classify("cannot read", &self.shown, error)),
            }
        }
        Ok(done)
    }

    /// Writes at offset `at`.
    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<(), EngineError> {
        self.file.write_all_at(bytes, at).map_err(|error| classify("cannot write", &self.shown, error))
    }

    /// Writes the tokens and syncs them to disk, with the directory entry of the file.
    pub(crate) fn sync_tokens(&self, dir: &Dir, tokens: &Tokens) -> Result<(), EngineError> {
        self.write(&tokens.to_bytes(), TOKENS as u64)?;
        let failed = |errno| classify_errno("cannot sync", &self.shown, errno);
        fsync(&self.file).map_err(failed)?;
        let lock_dir = dir.lock_dir(Missing::Leave)?;
        let states = lock_dir.map(|lock_dir| lock_dir.states(Missing::Leave)).transpose()?.flatten();
        states.map_or(Ok(()), |states| fsync(states).map_err(failed))
    }

    /// The error for a state file with impossible content.
    pub(crate) fn damaged(&self) -> EngineError {
        foreign(&self.shown, "is damaged (if nothing holds the lock, remove it; tokens then restart)")
    }

    fn size(&self) -> Result<u64, EngineError> {
        self.file
            .metadata()
            .map(|meta| meta.len())
            .map_err(|error| classify("cannot look at", &self.shown, error))
    }

    /// Whether the file was removed while this process had it open.
    fn is_removed(&self) -> bool {
        // Asks for the number of links only: once a program has read the times of a file, some file systems store an
        // exact time at the next write, which costs more than the write.
        match statx(&self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK) {
            Ok(stat) => stat.stx_nlink == 0,
            // An old kernel, or a filter of system calls, does not support `statx`.
            Err(_) => fstat(&self.file).map_or(true, |stat| stat.st_nlink == 0),
        }
    }
}

/// The state files that an engine keeps open.
#[derive(Debug, Default)]
pub(crate) struct States(Mutex<HashMap<Name, Arc<StateFile>>>);

impl States {
    /// The state file for the end of a hold. May be a removed file: writing to it does no harm.
    pub(crate) fn last(&self, dir: &Dir, key: &Key) -> Result<Option<Arc<StateFile>>, EngineError> {
        let cached = lock(&self.0).get(&key.name).cloned();
        cached.map_or_else(|| self.get(dir, key, Missing::Leave), |cached| Ok(Some(cached)))
    }

    /// The state file for inspection, which may be on a read-only file system.
    pub(crate) fn look(&self, dir: &Dir, key: &Key) -> Result<Option<Arc<StateFile>>, EngineError> {
        let cached = lock(&self.0).get(&key.name).cloned();
        match cached.filter(|cached| !cached.is_removed()) {
            Some(cached) => Ok(Some(cached)),
            None => Ok(StateFile::open(dir, key, Missing::Look)?.map(Arc::new)),
        }
    }

    /// Closes the state files that no claim uses; returns whether any was open.
    fn close(&self) -> bool {
        let closed = std::mem::take(&mut *lock(&self.0));
        !closed.is_empty()
    }

    /// The state file of `key`; `None` when it does not exist and `missing` does not ask to create it.
    pub(crate) fn get(
        &self,
        dir: &Dir,
        key: &Key,
        missing: Missing,
    ) -> Result<Option<Arc<StateFile>>, EngineError> {
        let cached = lock(&self.0).get(&key.name).cloned();
        if let Some(cached) = cached.filter(|cached| !cached.is_removed()) {
            return Ok(Some(cached));
        }
        let opened = match StateFile::open(dir, key, missing) {
            // The open may have failed because of the descriptors in this cache.
            Err(_) if self.close() => StateFile::open(dir, key, missing)?,
            opened => opened?,
        };
        let Some(opened) = opened.map(Arc::new) else { return Ok(None) };
        let mut open = lock(&self.0);
        if open.len() >= MAX_OPEN {
            // Any may go: a later use opens the file again. Files in use stay open through their other references.
            open.clear();
        }
        open.insert(key.name.clone(), Arc::clone(&opened));
        Ok(Some(opened))
    }
}
