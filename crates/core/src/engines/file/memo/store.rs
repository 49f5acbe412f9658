//! Reads and replaces memo files.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use nix::{
    errno::Errno,
    fcntl::renameat,
    unistd::{UnlinkatFlags, fsync, unlinkat},
};
use rustix::fs::{FlockOperation, flock};

use super::{
    super::{
        dir::Dir,
        dir::lock_dir::LockDir,
        dir::open::{Access, create, open_file},
        error::{classify, classify_errno},
    },
    layout::{HEADER_SIZE, MAX_SIZE},
};
use crate::{ClaimId, EngineError, Fault};

/// The file whose flock keeps the removal of an ended memo and the replacement of a memo apart.
const GATE: &CStr = c".memos";
/// The prefix of the names of files that are not complete. No encoded name begins with a dot.
pub(crate) const NEW_PREFIX: &str = ".memo-";
/// The suffix of memo files, as long as that of lock files, so that the file name is short enough for every name.
pub(crate) const MEMO_SUFFIX: &str = ".memo";
/// The suffix of state files.
const STATE_SUFFIX: &str = ".lock";
/// How often a write tries to pass the gate: a removal takes microseconds.
const GATE_TRIES: usize = 100;

/// The directory of the memo files, opened.
pub(crate) struct MemoDir<'a> {
    dir: &'a Dir,
    lock_dir: &'a LockDir,
    pub(crate) state_dir: &'a OwnedFd,
}

/// Who passes the gate: many writers at once, or one remover.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    Writer,
    Remover,
}

/// The gate, passed until this value is dropped.
pub(crate) struct PassedGate(pub(crate) File);

impl Drop for PassedGate {
    fn drop(&mut self) {
        // Closing the file would not suffice: a process that another thread has just started has a copy of the
        // descriptor until its exec, and the flock would last as long. Unlocking cannot fail.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The name of the memo file beside a state file.
pub(crate) fn memo_file_name(state_file_name: &CStr) -> CString {
    let name = state_file_name.to_bytes();
    let stem = &name[..name.len() - MEMO_SUFFIX.len()];
    CString::new([stem, MEMO_SUFFIX.as_bytes()].concat()).expect("an encoded name holds no NUL")
}

/// The name of the state file beside a memo file.
pub(crate) fn state_file_name(memo_file_name: &CStr) -> String {
    let name = memo_file_name.to_string_lossy();
    format!("{}{STATE_SUFFIX}", name.strip_suffix(MEMO_SUFFIX).unwrap_or(&name))
}

impl<'a> MemoDir<'a> {
    /// `None` if the directory does not exist.
    pub(crate) fn open(dir: &'a Dir, access: Access) -> Result<Option<Self>, EngineError> {
        let Some(lock_dir) = dir.lock_dir(access)? else { return Ok(None) };
        let Some(state_dir) = lock_dir.state_dir(access)? else { return Ok(None) };
        Ok(Some(Self { dir, lock_dir, state_dir }))
    }

    /// The bytes of a file, at most `limit`; `None` if there is no such file.
    pub(crate) fn read(&self, file: &CStr, limit: usize) -> Result<Option<Vec<u8>>, EngineError> {
        let shown_path = || self.shown_path(file);
        let opened = open_file(self.lock_dir, self.state_dir, file, Access::ExistingToRead, shown_path)?;
        let Some((opened, _)) = opened else { return Ok(None) };
        let mut bytes = Vec::new();
        opened
            .take(limit as u64)
            .read_to_end(&mut bytes)
            .map_err(|error| classify("cannot read", &shown_path(), error))?;
        Ok(Some(bytes))
    }

    /// The bytes of a memo file; one byte too many shows a file that is too large.
    pub(crate) fn read_whole(&self, file: &CStr) -> Result<Option<Vec<u8>>, EngineError> {
        self.read(file, MAX_SIZE + 1)
    }

    /// Puts these bytes in the place of a memo file, on disk and in one step. `id`: the claim that writes; it has one
    /// write at a time. `encode` returns the bytes of the file as of now. It is called again when they are on the disk,
    /// because that can take long, and the time of a memo counts from the end of the write.
    pub(crate) fn replace(
        &self,
        file: &CStr,
        id: ClaimId,
        encode: impl Fn() -> Vec<u8>,
    ) -> Result<(), EngineError> {
        let new = CString::new(format!("{NEW_PREFIX}{id}")).expect("hexadecimal digits");
        let written =
            self.write_new(&new, &encode()).and_then(|created| self.rename((&created, &new), file, encode));
        if written.is_err() {
            self.remove(&new);
        }
        written?;
        // The memo is there, and perhaps not yet on disk: a reader may have seen it.
        fsync(self.state_dir).map_err(|errno| {
            let error = classify_errno("cannot sync", &self.shown_path(file), errno);
            EngineError { fault: Fault::Unknown, ..error }
        })
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, file: &CStr) {
        // A file that stays is removed by a later sweep.
        let _ = unlinkat(self.state_dir, file, UnlinkatFlags::NoRemoveDir);
    }

    /// Passes the gate until the returned value is dropped; `None` if it is closed now.
    pub(crate) fn pass_gate(&self, through: Through) -> Result<Option<PassedGate>, EngineError> {
        let shown_path = || self.shown_path(GATE);
        let opened = open_file(self.lock_dir, self.state_dir, GATE, Access::CreateIfMissing, shown_path)?;
        let Some((gate, _)) = opened else { return Ok(None) };
        let operation = match through {
            Through::Writer => FlockOperation::NonBlockingLockShared,
            Through::Remover => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&gate, operation) {
            Ok(()) => Ok(Some(PassedGate(gate))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(classify("cannot lock", &shown_path(), errno.into())),
        }
    }

    pub(crate) fn shown_path(&self, file: &CStr) -> String {
        self.dir.state_path(&file.to_string_lossy())
    }

    fn write_new(&self, new: &CStr, bytes: &[u8]) -> Result<File, EngineError> {
        // What an earlier write of this claim left, which failed.
        self.remove(new);
        let created = create(self.lock_dir, self.state_dir, new);
        let mut file = File::from(
            created.map_err(|errno| classify_errno("cannot create", &self.shown_path(new), errno))?,
        );
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        written.map_err(|error| classify("cannot write", &self.shown_path(new), error))?;
        Ok(file)
    }

    /// Renames the new file to its place, with the header as of now.
    fn rename(
        &self,
        (created, new): (&File, &CStr),
        file: &CStr,
        encode: impl Fn() -> Vec<u8>,
    ) -> Result<(), EngineError> {
        for _ in 0..GATE_TRIES {
            let Some(_gate) = self.pass_gate(Through::Writer)? else {
                std::thread::yield_now();
                continue;
            };
            // The header is within one sector, so after a crash of the machine it is the earlier or the later one,
            // whole.
            let rewritten = created.write_all_at(&encode()[..HEADER_SIZE], 0);
            rewritten.map_err(|error| classify("cannot write", &self.shown_path(new), error))?;
            return match renameat(self.state_dir, new, self.state_dir, file) {
                Ok(()) => Ok(()),
                // A sweep took the new file of a writer that was stopped for long for one of a dead writer.
                Err(Errno::ENOENT) => Err(EngineError::new(
                    Fault::Retry,
                    format!("{} was removed before it was complete", self.shown_path(new)),
                )),
                Err(errno) => Err(classify_errno("cannot replace", &self.shown_path(file), errno)),
            };
        }
        Err(EngineError::new(Fault::Retry, format!("{} is locked for long", self.shown_path(GATE))))
    }
}
