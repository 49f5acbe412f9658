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
    claims::lock_mutex,
    dir::Dir,
    dir::open::{Access, open_file},
    error::{classify, classify_errno, foreign_file_error},
    kernel::locks::{Latch, NamePaths},
    table::layout::{HEADER_SIZE, Header, HeaderError, TOKENS_AT, Tokens, name_bytes},
};
use crate::{EngineError, Lineage, Name};

/// The maximum number of state files kept open: enough for the names in use by a program, and few compared with any
/// limit on open files.
const MAX_OPEN: usize = 64;

/// One open state file.
#[derive(Debug)]
pub(crate) struct StateFile {
    file: File,
    /// The path, for messages.
    shown_path: String,
}

impl StateFile {
    pub(crate) fn open(dir: &Dir, paths: &NamePaths, access: Access) -> Result<Option<Self>, EngineError> {
        let shown_path = dir.state_path(&paths.file_name.to_string_lossy());
        let Some(lock_dir) = dir.lock_dir(access)? else { return Ok(None) };
        let Some(state_dir) = lock_dir.state_dir(access)? else { return Ok(None) };
        let opened = open_file(lock_dir, state_dir, &paths.file_name, access, || shown_path.clone())?;
        Ok(opened.map(|(file, _)| Self { file, shown_path }))
    }

    /// The header, parsed and raw; `None` if nothing was written yet. An error for a file that is not the state of
    /// `name`.
    pub(crate) fn header(&self, name: &Name) -> Result<Option<(Header, [u8; HEADER_SIZE])>, EngineError> {
        let mut bytes = [0; HEADER_SIZE];
        let read_len = self.read(&mut bytes, 0)?;
        // The size matters only for a blank file; records may follow a full header.
        let size = if read_len == HEADER_SIZE && bytes[0] == 0 { self.size()? } else { read_len as u64 };
        match Header::from_bytes(&bytes, size) {
            Ok(_) if name_bytes(&bytes) != name.as_str().as_bytes() => {
                let other = String::from_utf8_lossy(name_bytes(&bytes)).into_owned();
                Err(foreign_file_error(&self.shown_path, &format!("is the state of another name, {other:?}")))
            }
            Ok(header) => Ok(Some((header, bytes))),
            Err(HeaderError::Blank) => Ok(None),
            Err(HeaderError::Foreign) => {
                Err(foreign_file_error(&self.shown_path, "holds something else than the state of a lock"))
            }
            Err(HeaderError::Version(version)) => Err(foreign_file_error(
                &self.shown_path,
                &format!("has layout version {version}, which this version does not know"),
            )),
            Err(HeaderError::Damaged) => Err(self.damaged()),
        }
    }

    /// The header, parsed and raw; writes a new one if there is none. `_latch` proves that the caller has the latch.
    pub(crate) fn head_or_new(
        &self,
        name: &Name,
        _latch: &Latch<'_>,
        boot_id: [u8; 16],
        new_lineage: impl FnOnce() -> Lineage,
    ) -> Result<(Header, [u8; HEADER_SIZE]), EngineError> {
        if let Some(existing) = self.header(name)? {
            return Ok(existing);
        }
        let header = Header::new(new_lineage(), boot_id);
        let bytes = header.to_bytes(name);
        self.write(&bytes, 0)?;
        Ok((header, bytes))
    }

    /// Reads from `offset` on until the buffer is full or the file ends; returns the number of bytes read.
    pub(crate) fn read(&self, bytes: &mut [u8], offset: u64) -> Result<usize, EngineError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(classify("cannot read", &self.shown_path, error)),
            }
        }
        Ok(filled)
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), EngineError> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(|error| classify("cannot write", &self.shown_path, error))
    }

    /// Writes the tokens and syncs them to disk, with the directory entry of the file.
    pub(crate) fn sync_tokens(&self, dir: &Dir, tokens: &Tokens) -> Result<(), EngineError> {
        self.write(&tokens.to_bytes(), TOKENS_AT as u64)?;
        let sync_error = |errno| classify_errno("cannot sync", &self.shown_path, errno);
        fsync(&self.file).map_err(sync_error)?;
        let lock_dir = dir.lock_dir(Access::Existing)?;
        let state_dir = lock_dir.map(|lock_dir| lock_dir.state_dir(Access::Existing)).transpose()?.flatten();
        state_dir.map_or(Ok(()), |state_dir| fsync(state_dir).map_err(sync_error))
    }

    /// The error for a state file with impossible content.
    pub(crate) fn damaged(&self) -> EngineError {
        foreign_file_error(
            &self.shown_path,
            "is damaged (if nothing holds the lock, remove it; tokens then restart)",
        )
    }

    /// The size of the file, in bytes.
    fn size(&self) -> Result<u64, EngineError> {
        self.file
            .metadata()
            .map(|meta| meta.len())
            .map_err(|error| classify("cannot look at", &self.shown_path, error))
    }

    /// Whether the file was removed while this process had it open.
    fn is_removed(&self) -> bool {
        // Asks for the number of links only, not for times: after a program has read the times of a file, some file
        // systems store an exact time at the next write, which costs more than the write.
        match statx(&self.file, c"", AtFlags::EMPTY_PATH, StatxFlags::NLINK) {
            Ok(stat) => stat.stx_nlink == 0,
            // An old kernel, or a filter of system calls, does not support `statx`.
            Err(_) => fstat(&self.file).map_or(true, |stat| stat.st_nlink == 0),
        }
    }
}

/// The state files that an engine keeps open.
#[derive(Debug, Default)]
pub(crate) struct StateFiles(Mutex<HashMap<Name, Arc<StateFile>>>);

impl StateFiles {
    /// The state file for a release. May be a file that was removed: writing to it does no harm.
    pub(crate) fn get_to_release(
        &self,
        dir: &Dir,
        paths: &NamePaths,
    ) -> Result<Option<Arc<StateFile>>, EngineError> {
        let cached = lock_mutex(&self.0).get(&paths.name).cloned();
        cached.map_or_else(|| self.get(dir, paths, Access::Existing), |cached| Ok(Some(cached)))
    }

    /// The state file for inspection, which may be on a read-only file system.
    pub(crate) fn get_to_inspect(
        &self,
        dir: &Dir,
        paths: &NamePaths,
    ) -> Result<Option<Arc<StateFile>>, EngineError> {
        let cached = lock_mutex(&self.0).get(&paths.name).cloned();
        match cached.filter(|cached| !cached.is_removed()) {
            Some(cached) => Ok(Some(cached)),
            None => Ok(StateFile::open(dir, paths, Access::ExistingToRead)?.map(Arc::new)),
        }
    }

    /// Drops all state files from the cache, which closes those that no claim uses; returns whether there were any.
    fn close_all(&self) -> bool {
        let closed = std::mem::take(&mut *lock_mutex(&self.0));
        !closed.is_empty()
    }

    /// The state file of `paths`; `None` when it does not exist and `access` does not allow to create it.
    pub(crate) fn get(
        &self,
        dir: &Dir,
        paths: &NamePaths,
        access: Access,
    ) -> Result<Option<Arc<StateFile>>, EngineError> {
        let cached = lock_mutex(&self.0).get(&paths.name).cloned();
        if let Some(cached) = cached.filter(|cached| !cached.is_removed()) {
            return Ok(Some(cached));
        }
        let opened = match StateFile::open(dir, paths, access) {
            // The open may have failed because of the descriptors in this cache.
            Err(_) if self.close_all() => StateFile::open(dir, paths, access)?,
            opened => opened?,
        };
        let Some(opened) = opened.map(Arc::new) else { return Ok(None) };
        let mut open_files = lock_mutex(&self.0);
        if open_files.len() >= MAX_OPEN {
            // Any of them may be closed: a later use opens the file again. Files in use stay open through their other
            // references.
            open_files.clear();
        }
        open_files.insert(paths.name.clone(), Arc::clone(&opened));
        Ok(Some(opened))
    }
}
