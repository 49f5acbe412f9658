//! Classifies errors of the operating system as faults, by what they mean for a claim.

use std::io;

use nix::errno::Errno;

use crate::{EngineError, Error, ErrorKind, Fault};

/// Classifies an error of the operating system: the operation `operation` failed on `file`.
pub(super) fn classify(operation: &str, file: &str, error: io::Error) -> EngineError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
    let (fault, advice) = match errno {
        Errno::EACCES | Errno::EPERM => {
            (Fault::Denied, "give this user read and write permission on the lock directory and its files")
        }
        Errno::ELOOP => (Fault::Denied, "it is a symbolic link, which is never followed: remove it"),
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG => (Fault::Refused, "free space on its file system"),
        Errno::EROFS => (Fault::Refused, "its file system is read-only: use a directory that can be written"),
        Errno::EMFILE => (Fault::Refused, "raise the limit of open files of this process (ulimit -n)"),
        Errno::ENFILE => (Fault::Refused, "raise the limit of open files of the system (fs.file-max)"),
        Errno::ENOLCK | Errno::ENOMEM => (Fault::Refused, "the kernel is out of memory for locks"),
        Errno::ENOENT | Errno::ENOTDIR => {
            let advice = "check the path of the lock directory; if it was removed, restart the program";
            (Fault::Misconfigured, advice)
        }
        Errno::EISDIR => (Fault::Misconfigured, "it is a directory: remove it"),
        Errno::ENXIO | Errno::ENODEV => (Fault::Misconfigured, "it is not a regular file: remove it"),
        _ => (Fault::Refused, "see the cause"),
    };
    EngineError::new(fault, format!("{operation} {file}: {error}: {advice}")).with_source(error)
}

/// As [`classify`], for an [`Errno`].
pub(super) fn classify_errno(operation: &str, file: &str, errno: Errno) -> EngineError {
    classify(operation, file, errno.into())
}

/// The error for a file in the place of our file that leasehold did not write, or wrote in another version. `problem`
/// says what is wrong with it.
pub(super) fn foreign_file_error(file: &str, problem: &str) -> EngineError {
    EngineError::new(
        Fault::Misconfigured,
        format!("{file} {problem}: nothing was changed; move it away or use another lock directory"),
    )
}

/// The error with which opening an engine fails: no name is known yet.
pub(super) fn open_error(error: EngineError) -> Error {
    let kind = match error.fault {
        Fault::Retry | Fault::Full => ErrorKind::Unreachable,
        Fault::Unknown => ErrorKind::Unknown,
        Fault::Refused => ErrorKind::Refused,
        Fault::Denied => ErrorKind::Denied,
        Fault::Misconfigured => ErrorKind::Misconfigured,
        Fault::Internal => ErrorKind::Internal,
    };
    Error::new(kind, error.message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_matches_the_exit_code_table() {
        for (errno, fault, word) in [
            (Errno::EACCES, Fault::Denied, "permission"),
            (Errno::ELOOP, Fault::Denied, "symbolic link"),
            (Errno::ENOSPC, Fault::Refused, "free space"),
            (Errno::EROFS, Fault::Refused, "read-only"),
            (Errno::EMFILE, Fault::Refused, "ulimit -n"),
            (Errno::EIO, Fault::Refused, "cause"),
            (Errno::EISDIR, Fault::Misconfigured, "directory"),
        ] {
            let error = classify_errno("cannot open", "/d/x.lock", errno);
            assert_eq!(error.fault, fault);
            assert!(error.message.contains("/d/x.lock") && error.message.contains(word), "{error}");
        }
    }
}
