//! The terminal, and who is in its foreground.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
};

use nix::unistd::{Pid, tcgetpgrp, tcsetpgrp};

/// The controlling terminal of this process.
pub(crate) struct Terminal {
    tty: File,
    own: Pid,
}

impl Terminal {
    /// The controlling terminal, if this process has one. `own` is the group that a shell puts into the foreground for it.
    pub(crate) fn find(own: Pid) -> Option<Self> {
        // Not stdin: that may be a file while CMD asks for a password on the terminal.
        let tty =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/tty").ok()?;
        Some(Self { tty, own })
    }

    /// Whether this process is in the foreground.
    pub(crate) fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.own)
    }

    /// A descriptor to hand the terminal to CMD as it starts: if it is ours, and we are no part of a pipeline, of which
    /// another program (a pager) may want the terminal. There CMD gets it when it reads from it.
    pub(crate) fn for_start(&self) -> io::Result<Option<OwnedFd>> {
        if !self.is_ours() || is_pipe(io::stdin()) || is_pipe(io::stdout()) {
            return Ok(None);
        }
        self.tty.as_fd().try_clone_to_owned().map(Some)
    }

    /// Puts a group into the foreground if this process is there.
    pub(crate) fn give(&self, group: Pid) {
        if self.is_ours() {
            // A group that is gone meanwhile needs no terminal.
            let _ = tcsetpgrp(&self.tty, group);
        }
    }

    /// Puts this process into the foreground if `group` is there.
    pub(crate) fn take_back(&self, group: Pid) -> Taken {
        match tcgetpgrp(&self.tty) {
            // SIGTTOU is blocked in this process, so that it may do so from the background.
            Ok(foreground) if foreground == group && tcsetpgrp(&self.tty, self.own).is_ok() => Taken::FromCmd,
            Ok(foreground) if foreground == self.own => Taken::WasOurs,
            _ => Taken::Nothing,
        }
    }
}

/// What taking the terminal came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// CMD had it, and this process has it now.
    FromCmd,
    /// This process had it all the while.
    WasOurs,
    /// Somebody else has it: CMD and this process are in the background.
    Nothing,
}

fn is_pipe(stream: impl AsFd) -> bool {
    let file = stream.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|meta| meta.file_type().is_fifo())
}
