//! Classifies errors of SQLite as faults.

use leasehold_core::Fault;
use rusqlite::{Error, ErrorCode};

use crate::database::{Failed, bad_value};

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A step that a rollback undoes, or that changes nothing.
    BeforeCommit,
    /// The commit.
    Commit,
}

/// Classifies an error of a step.
pub(super) fn classify(error: &Error, stage: Stage) -> Failed {
    let fault = match (code(error), stage) {
        (Some(code), stage) => fault(code, stage),
        // The value in a row is not one that leasehold writes, or the path is invalid.
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
        Error::InvalidColumnType(_, column, kind) => return bad_value(column, &format!("it is {kind}")),
        // Leaves out the statement, which means nothing to the user.
        Error::SqlInputError { msg, .. } => msg.clone(),
        _ => error.to_string(),
    };
    Failed::new(fault, message)
}

/// The error code of SQLite, if the error comes from SQLite.
pub(super) fn code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::SqlInputError { error, .. } => Some(error.code),
        _ => error.sqlite_error_code(),
    }
}

/// Classifies an error of a step before the commit.
pub(super) fn before_commit(error: Error) -> Failed {
    classify(&error, Stage::BeforeCommit)
}

/// The fault that an error code means.
fn fault(code: ErrorCode, stage: Stage) -> Fault {
    match (code, stage) {
        (
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OperationInterrupted
            | ErrorCode::SchemaChanged,
            _,
        ) => Fault::Retry,
        // SQLite writes the commit mark last, so if there was no space, there is no commit mark.
        (ErrorCode::DiskFull | ErrorCode::TooBig | ErrorCode::OutOfMemory, _) => Fault::Refused,
        (
            ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::AuthorizationForStatementDenied
            | ErrorCode::CannotOpen,
            _,
        ) => Fault::Denied,
        // `Unknown` is the code for statements that do not fit the tables: these tables are not ours.
        (ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::Unknown, _) => {
            Fault::Misconfigured
        }
        (ErrorCode::SystemIoFailure, Stage::BeforeCommit) => Fault::Retry,
        // A commit mark that was written but could not be synced may be on the disk after a crash.
        (ErrorCode::SystemIoFailure, Stage::Commit) => Fault::Unknown,
        _ => Fault::Internal,
    }
}
