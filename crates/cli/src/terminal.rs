//! The controlling terminal: which process group is in its foreground, and how to change that.

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
    /// The process group that a shell puts into the foreground when it runs this process.
    own_group: Pid,
}

impl Terminal {
    /// The controlling terminal, if this process has one. `own_group` is the process group that a shell puts into the
    /// foreground when it runs this process.
    pub(crate) fn find(own_group: Pid) -> Option<Self> {
        // Opens the terminal itself and not stdin: stdin may be a file while CMD reads a password from the terminal.
        let tty =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/tty").ok()?;
        Some(Self { tty, own_group })
    }

    /// Whether the process group `own_group` is in the foreground.
    pub(crate) fn is_in_foreground(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|group| group == self.own_group)
    }

    /// A descriptor by which the terminal is handed to CMD at its start. `None`: this process is not in the foreground,
    /// or it is part of a pipeline in which another program (a pager) may need the terminal. Then CMD gets the terminal
    /// when it reads from it.
    pub(crate) fn descriptor_for_cmd(&self) -> io::Result<Option<OwnedFd>> {
        if !self.is_in_foreground() || is_pipe(io::stdin()) || is_pipe(io::stdout()) {
            return Ok(None);
        }
        self.tty.as_fd().try_clone_to_owned().map(Some)
    }

    /// Puts `group` into the foreground if this process is in the foreground; otherwise does nothing.
    pub(crate) fn put_in_foreground(&self, group: Pid) {
        if self.is_in_foreground() {
            // If the group does not exist any more, it needs no terminal.
            let _ = tcsetpgrp(&self.tty, group);
        }
    }

    /// Puts this process into the foreground if `group` is in the foreground; otherwise changes nothing.
    pub(crate) fn take_back(&self, group: Pid) -> TakeBack {
        match tcgetpgrp(&self.tty) {
            // SIGTTOU is blocked in this process. So the call succeeds although this process is in the background.
            Ok(foreground) if foreground == group && tcsetpgrp(&self.tty, self.own_group).is_ok() => {
                TakeBack::FromCmd
            }
            Ok(foreground) if foreground == self.own_group => TakeBack::WasOurs,
            _ => TakeBack::OtherGroup,
        }
    }
}

/// The result of taking the terminal back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeBack {
    /// CMD was in the foreground; now this process is in the foreground.
    FromCmd,
    /// This process was in the foreground already.
    WasOurs,
    /// Another process group is in the foreground; CMD and this process are in the background.
    OtherGroup,
}

/// Whether a standard stream is a pipe.
fn is_pipe(stream: impl AsFd) -> bool {
    let file = stream.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|meta| meta.file_type().is_fifo())
}
