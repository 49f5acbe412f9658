//! What errors of SQLite mean.

use leasehold_core::Fault;
use rusqlite::{Error, ErrorCode};

use crate::database::{Failed, unlike};

/// What was being done when an error came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Something that a rollback undoes, or that changes nothing.
    Before,
    /// The commit.
    Commit,
}

/// Sorts an error.
pub(super) fn sort(error: &Error, at: At) -> Failed {
    let fault = match (code(error), at) {
        (Some(code), at) => fault(code, at),
        // What stands in a row is not what leasehold writes there; or the path is none.
        (None, _) => match error {
            Error::FromSqlConversionFailure(..)
            | Error::IntegralValueOutOfRange(..)
            | Error::InvalidColumnType(..)
            | Error::Utf8Error(..)
            | Error::NulError(..)
            | Error::InvalidPath(..) => Fault::Misconfigured,
            _ => Fault::Internal,
        },
    };
    let message = match error {
        Error::InvalidColumnType(_, column, kind) => return unlike(column, &format!("it is {kind}")),
        // Without the statement, which says nothing to who did not write it.
        Error::SqlInputError { msg, .. } => msg.clone(),
        _ => error.to_string(),
    };
    Failed::new(fault, message)
}

/// What SQLite says, if it is SQLite that says it.
pub(super) fn code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::SqlInputError { error, .. } => Some(error.code),
        _ => error.sqlite_error_code(),
    }
}

/// The same, for what is done before a commit.
pub(super) fn before(error: Error) -> Failed {
    sort(&error, At::Before)
}

fn fault(code: ErrorCode, at: At) -> Fault {
    match (code, at) {
        (
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::SchemaChanged,
            _,
        ) => Fault::Retry,
        // SQLite writes the mark of a commit last, so without room there is none.
        (ErrorCode::DiskFull | ErrorCode::TooBig | ErrorCode::OutOfMemory, _) => Fault::Refused,
        (
            ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::AuthorizationForStatementDenied
            | ErrorCode::CannotOpen,
            _,
        ) => Fault::Denied,
        // `Unknown` is what SQLite says of statements that do not fit the tables: they are not ours.
        (ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown, _) => {
            Fault::Misconfigured
        }
        (ErrorCode::SystemIoFailure, At::Before) => Fault::Retry,
        // A mark that was written and could not be brought to the disk may be found there after a crash.
        (ErrorCode::SystemIoFailure, At::Commit) => Fault::Unknown,
        _ => Fault::Internal,
    }
}
