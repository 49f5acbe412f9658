//! The *holder process* of `acquire --while-pid`: a process that holds a lock for as long as another process lives.
//!
//! The command that the user started forks the holder process, waits until the holder process holds the lock, writes
//! the handle, and ends. The holder process renews the hold until the watched process has ended, until another command
//! asks for the release, until a signal or `--max-hold` ends it, or until the hold is lost. `process` starts the holder
//! process, `watched` has the watched process, `directory` the working directory, `link` the socket by which other
//! commands reach the holder process, and `hold` is what the holder process does.

pub(crate) mod directory;
pub(crate) mod hold;
pub(crate) mod link;
pub(crate) mod process;
pub(crate) mod watched;
