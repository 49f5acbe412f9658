//! All exit codes of the command, and the errors that lead to each.

use leasehold::{Error, ErrorKind, Loss, Name};
use nix::sys::signal::Signal;

use crate::text;

/// Success.
pub(crate) const DONE: u8 = 0;
/// `break`: the name is not held, or its hold has another token.
pub(crate) const NOT_HELD: u8 = 1;
/// The arguments are wrong (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The engine is unreachable, refuses, or did not answer (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// A bug in leasehold (`EX_SOFTWARE`).
pub(crate) const BUG: u8 = 70;
/// The lock was not acquired because it is taken (`EX_TEMPFAIL`).
pub(crate) const TAKEN: u8 = 75;
/// The lock was lost while CMD ran.
pub(crate) const LOST: u8 = 76;
/// Credentials or permissions are missing or wrong (`EX_NOPERM`).
pub(crate) const DENIED: u8 = 77;
/// The URL, the configuration, or the value under the key is wrong (`EX_CONFIG`).
pub(crate) const CONFIG: u8 = 78;
/// CMD was found but cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// CMD was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Shells report that a signal ended a process by this number plus the number of the signal.
const SIGNAL_BASE: u8 = 128;

/// The exit code of a process that a signal ended.
pub(crate) fn code_of_signal(signal: Signal) -> u8 {
    // Signals are numbered from 1 to 64.
    SIGNAL_BASE + signal as u8
}

/// Why the command ends without success, as an exit code and a message.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    /// One line: what happened, the name and the engine, what the user can do. `None`: nothing is printed.
    pub(crate) message: Option<String>,
    /// Whether only the report has the message, because of `--quiet`.
    pub(crate) is_hidden: bool,
    /// Why the hold was lost. `None`: it was not lost.
    pub(crate) loss: Option<Loss>,
    /// The name that was lost.
    pub(crate) lost_name: Option<Name>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::silent(code) }
    }

    pub(crate) const fn silent(code: u8) -> Self {
        Self { code, message: None, is_hidden: false, loss: None, lost_name: None }
    }

    /// The same failure, whose message is printed unless `is_hidden`.
    pub(crate) fn hidden(self, is_hidden: bool) -> Self {
        Self { is_hidden, ..self }
    }

    /// The same failure, because of this loss of this name.
    pub(crate) fn because_of(self, loss: Loss, name: &Name) -> Self {
        Self { loss: Some(loss), lost_name: Some(name.clone()), ..self }
    }

    /// Prints the message, unless it is hidden.
    pub(crate) fn print(&self) {
        self.message.iter().filter(|_| !self.is_hidden).for_each(|message| text::print_message(message));
    }

    /// The failure if the operating system refuses something that leasehold needs.
    pub(crate) fn system(what: &str, error: impl Into<std::io::Error>) -> Self {
        Self::new(UNAVAILABLE, format!("{what}: {}", error.into()))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(code_of_error(error.kind()), error.to_string())
    }
}

/// The exit code for an error of the library.
pub(crate) fn code_of_error(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Taken | ErrorKind::TimedOut | ErrorKind::Busy => TAKEN,
        ErrorKind::Unreachable | ErrorKind::Unknown | ErrorKind::Refused | ErrorKind::Closed => UNAVAILABLE,
        ErrorKind::Denied => DENIED,
        ErrorKind::Misconfigured => CONFIG,
        ErrorKind::Invalid => USAGE,
        ErrorKind::Lost(_) | ErrorKind::Fenced => LOST,
        // These are Internal, Forked, and kinds that this version does not know.
        _ => BUG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_kind_has_its_exit_code() {
        for (kind, code) in [
            (ErrorKind::Taken, 75),
            (ErrorKind::TimedOut, 75),
            (ErrorKind::Busy, 75),
            (ErrorKind::Unreachable, 69),
            (ErrorKind::Unknown, 69),
            (ErrorKind::Refused, 69),
            (ErrorKind::Closed, 69),
            (ErrorKind::Denied, 77),
            (ErrorKind::Misconfigured, 78),
            (ErrorKind::Invalid, 64),
            (ErrorKind::Lost(Loss::Broken), 76),
            (ErrorKind::Fenced, 76),
            (ErrorKind::Forked, 70),
            (ErrorKind::Internal, 70),
        ] {
            assert_eq!(code_of_error(kind), code, "{kind:?}");
        }
    }

    #[test]
    fn a_signal_is_added_to_128() {
        assert_eq!([Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].map(code_of_signal), [129, 130, 143]);
    }
}
