//! Classifies errors of the server and of the driver as faults.

use std::io;

use leasehold_core::Fault;
use tokio_postgres::{Error, error::SqlState};

use super::messages::LoginMethod;
use crate::database::{Failed, bad_value};

/// How far a request had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// There was no connection yet.
    Dial,
    /// Nothing was committed: the request had not reached its commit.
    BeforeCommit,
    /// Its commit was sent.
    Commit,
}

/// Classifies an error of a request that had come as far as `stage`.
pub(crate) fn classify(error: &Error, stage: Stage) -> Failed {
    #[cfg(feature = "tls")]
    if let Some(tls_failure) = tls_failure_of(error) {
        return tls_failure;
    }
    let Some(db_error) = error.as_db_error() else {
        if is_refused_login(error) {
            return Failed::new(Fault::Misconfigured, cause(error));
        }
        if stage == Stage::Dial {
            return Failed::new(
                if is_missing_login(error) { Fault::Denied } else { Fault::Retry },
                cause(error),
            );
        }
        // The connection broke, or a malformed answer arrived.
        let fault = if stage == Stage::Commit { Fault::Unknown } else { Fault::Retry };
        return Failed::new(fault, format!("the connection to the server broke: {}", cause(error)));
    };
    // The server rolls back a statement that it answers with an error.
    let fault = match db_error.code() {
        &SqlState::INSUFFICIENT_PRIVILEGE => Fault::Denied,
        // The connections reached a limit of the server, of the role or of the database, or the free ones are reserved.
        &SqlState::TOO_MANY_CONNECTIONS => Fault::Full,
        &SqlState::DISK_FULL | &SqlState::OUT_OF_MEMORY | &SqlState::PROGRAM_LIMIT_EXCEEDED => Fault::Refused,
        _ if db_error.message().contains("statement pooling") => {
            let message = "the pooler gives each statement another connection, and locks need transactions: set pool_mode = transaction";
            return Failed::new(Fault::Misconfigured, message);
        }
        // Another program wrote a token that is nearly the largest number.
        &SqlState::NUMERIC_VALUE_OUT_OF_RANGE => {
            return bad_value("token", "it is close to the largest number");
        }
        code if is_pooler_error(code, db_error.message()) => return pooler_error(),
        code => match code.code().get(..2) {
            Some("28") => Fault::Denied,
            // A pooler reports this about its connection to the server: what the server did is unknown.
            Some("08") if stage == Stage::Commit => Fault::Unknown,
            Some("3D" | "3F" | "42" | "0A") => Fault::Misconfigured,
            Some("22" | "23" | "XX") => Fault::Internal,
            // Deadlocks, timeouts, a server that shuts down or starts up, a replica.
            _ => Fault::Retry,
        },
    };
    let hint = match *db_error.code() {
        SqlState::READ_ONLY_SQL_TRANSACTION => ": name the primary",
        SqlState::INSUFFICIENT_PRIVILEGE if stage != Stage::Dial => ": `leasehold doctor` prints the GRANT",
        _ => "",
    };
    Failed::new(fault, format!("{}{hint}", db_error.message()))
}

/// The beginning of the message of [`pooler_error`].
pub(crate) const POOLER_FOUND: &str = "it is a pooler";
/// What locks in tables need behind a pooler.
pub(crate) const POOLER_NEEDS: &str = "add the URL of the server itself to this one, percent-encoded, as \
    listen_url=postgres%3A%2F%2Fuser%40host%3A5432%2Fdatabase";

/// The error for a pooler where a server was expected.
pub(crate) fn pooler_error() -> Failed {
    Failed::new(Fault::Misconfigured, format!("{POOLER_FOUND}: {POOLER_NEEDS}"))
}

/// Whether a password is missing, or the authentication method unknown: the driver reports both only in words.
fn is_missing_login(error: &Error) -> bool {
    error.to_string() == "authentication error" || cause(error) == "password missing"
}

/// The error for a server that refuses the client's certificate after the TLS handshake; `None` for other errors. A
/// retry does not help.
#[cfg(feature = "tls")]
fn tls_failure_of(error: &Error) -> Option<Failed> {
    let message = std::error::Error::source(error)?.to_string();
    leasehold_tls::is_alert(&message).then(|| super::tls::tls_error(&message))
}

/// Whether the server asks for the password in a form that others could read.
fn is_refused_login(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    source.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<LoginMethod>())
}

/// The cause of the error, without the text around it.
fn cause(error: &Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Whether only a pooler reports this error: a pooler refuses settings of a session, and does not keep prepared
/// statements.
fn is_pooler_error(code: &SqlState, message: &str) -> bool {
    let refuses_setting = *code == SqlState::PROTOCOL_VIOLATION && message.contains("startup parameter");
    refuses_setting || [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT].contains(code)
}

/// Whether another transaction kept a row locked for longer than the lock timeout, or the two transactions waited for
/// each other (a deadlock). In both cases nothing was done.
pub(crate) fn is_locked_out(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::LOCK_NOT_AVAILABLE | &SqlState::T_R_DEADLOCK_DETECTED))
}

/// Whether a column does not exist.
pub(crate) fn is_missing_column(error: &Error) -> bool {
    error.code() == Some(&SqlState::UNDEFINED_COLUMN)
}
