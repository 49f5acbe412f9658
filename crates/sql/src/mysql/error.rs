//! Classifies errors of the server and of the driver as faults.

use std::time::Duration;

use leasehold_core::Fault;
use mysql_async::Error;

#[cfg(feature = "tls")]
use super::tls::TLS_PREFIX;
use crate::database::Failed;

/// Why the execution of some statements failed.
#[derive(Debug)]
pub(crate) enum ExecuteError {
    /// The server answered with an error, after it had executed `done` statements.
    ServerError { code: u16, message: String, done: usize },
    /// The connection broke, or a malformed answer arrived.
    AnswerLost(String),
    /// No answer arrived in time.
    TimedOut(Duration),
}

/// Which of some statements, sent together, is the first that may commit something.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Commits {
    /// None of the statements commits anything that matters.
    Never,
    /// The statement with this index commits, and no earlier one commits; index 0 for a statement outside of a
    /// transaction.
    At(usize),
}

impl Commits {
    /// Whether something was possibly committed, after `done` statements were executed.
    fn may_have_committed(self, done: usize) -> bool {
        matches!(self, Self::At(index) if done > index)
    }

    /// The fault when the answer to the statements is missing.
    fn unanswered_fault(self) -> Fault {
        if matches!(self, Self::At(_)) { Fault::Unknown } else { Fault::Retry }
    }
}

/// Why a request ended without an answer.
#[derive(Debug)]
pub(super) enum RequestError {
    /// Other transactions keep a row locked for long: nothing was done.
    Busy,
    /// The server found a deadlock with another transaction: nothing was done, and the request can be repeated, on
    /// another connection.
    Deadlock,
    /// The connection broke before anything could be committed. It may have been broken already when it was borrowed
    /// from the pool.
    ConnectionBroke(Failed),
    Failed(Failed),
}

impl RequestError {
    /// Classifies why statements that commit as `commits` says failed.
    pub(super) fn of(execute_error: &ExecuteError, commits: Commits) -> Self {
        match execute_error {
            ExecuteError::ServerError { code: LOCK_WAIT_TIMEOUT, done, .. }
                if !commits.may_have_committed(*done) =>
            {
                Self::Busy
            }
            ExecuteError::ServerError { code: DEADLOCK, done, .. } if !commits.may_have_committed(*done) => {
                Self::Deadlock
            }
            ExecuteError::AnswerLost(_) if matches!(commits, Commits::Never) => {
                Self::ConnectionBroke(execute_error.classify(commits))
            }
            _ => Self::Failed(execute_error.classify(commits)),
        }
    }

    /// The error for the caller of the request.
    pub(super) fn failed(self) -> Failed {
        match self {
            Self::Busy | Self::Deadlock => {
                Failed::new(Fault::Retry, "other transactions keep the rows of the name locked")
            }
            Self::ConnectionBroke(failed) | Self::Failed(failed) => failed,
        }
    }
}

impl From<Failed> for RequestError {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}

/// `ER_LOCK_WAIT_TIMEOUT`: another transaction kept a row locked.
const LOCK_WAIT_TIMEOUT: u16 = 1205;
/// `ER_LOCK_DEADLOCK`.
const DEADLOCK: u16 = 1213;
/// Errors of a statement that was ended from outside, or failed in the middle of its commit, or whose proxy lost the
/// server: whether the statement took effect is unknown.
const IN_DOUBT: [u16; 8] = [1053, 1105, 1180, 1317, 1927, 1969, 2006, 2013];
/// Errors of a read-only server, such as a replica.
const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
/// `ER_SECURE_TRANSPORT_REQUIRED`: the server requires encrypted connections.
const TLS_REQUIRED: u16 = 3159;
/// `CR_AUTH_PLUGIN_ERR`, a client-side error: by it the [relay](super::relay) refuses to send the password.
pub(super) const ASKS_FOR_PASSWORD: u16 = 2061;
/// `ER_CON_COUNT_ERROR`.
const TOO_MANY_CONNECTIONS: u16 = 1040;
/// `ER_NO_SUCH_TABLE`.
const NO_TABLE: u16 = 1146;
/// `ER_TABLEACCESS_DENIED_ERROR`: the server does not tell whether the table exists.
const TABLE_DENIED: u16 = 1142;
/// `ER_BAD_FIELD_ERROR`.
const NO_COLUMN: u16 = 1054;

impl ExecuteError {
    /// Converts an error of the driver that came after `done` executed statements.
    pub(super) fn of(error: Error, done: usize) -> Self {
        match error {
            Error::Server(error) => Self::ServerError { code: error.code, message: error.message, done },
            Error::Io(error) => Self::AnswerLost(cause(&error)),
            other => Self::AnswerLost(other.to_string()),
        }
    }

    /// The error and its fault, for statements that commit as `commits` says.
    pub(crate) fn classify(&self, commits: Commits) -> Failed {
        match self {
            Self::AnswerLost(cause) => Failed::new(
                commits.unanswered_fault(),
                format!("the connection to the server broke: {cause}"),
            ),
            Self::TimedOut(limit) => {
                Failed::new(commits.unanswered_fault(), format!("the server gave no answer within {limit:?}"))
            }
            Self::ServerError { code, message, done } => {
                let fault = match commits {
                    _ if commits.may_have_committed(*done) => Fault::Unknown,
                    Commits::At(index) if *done == index && IN_DOUBT.contains(code) => Fault::Unknown,
                    // The server rolls back a statement that it answers with an error.
                    _ => fault_of(*code),
                };
                let hint = match code {
                    code if READ_ONLY.contains(code) => ": name the primary",
                    &TLS_REQUIRED => ": add ssl-mode=REQUIRED to the URL",
                    _ => "",
                };
                Failed::new(fault, format!("{message}{hint} (error {code})"))
            }
        }
    }

    pub(super) fn is_missing_table(&self) -> bool {
        matches!(self, Self::ServerError { code: NO_TABLE, .. })
    }

    /// Whether the user lacks the required right to the table.
    pub(super) fn is_table_denied(&self) -> bool {
        matches!(self, Self::ServerError { code: TABLE_DENIED, .. })
    }

    /// Whether another session kept a row or a table locked for too long.
    pub(super) fn is_lock_timeout(&self) -> bool {
        matches!(self, Self::ServerError { code: LOCK_WAIT_TIMEOUT, .. })
    }

    pub(super) fn is_missing_column(&self) -> bool {
        matches!(self, Self::ServerError { code: NO_COLUMN, .. })
    }
}

/// Classifies the error of a failed connection attempt.
pub(super) fn connect_error(error: Error) -> Failed {
    #[cfg(feature = "tls")]
    if let Some(why) = tls_problem(&error) {
        return Failed::new(Fault::Misconfigured, format!("{TLS_PREFIX}{why}"));
    }
    if let Some(why) = unsupported_login(&error) {
        return Failed::new(Fault::Misconfigured, why);
    }
    match ExecuteError::of(error, 0) {
        // There was no connection yet, so the message does not say that it broke.
        ExecuteError::AnswerLost(cause) => Failed::new(Fault::Retry, cause),
        execute_error => execute_error.classify(Commits::Never),
    }
}

/// What is wrong with TLS, if the error is about TLS (the two sides do not trust each other, or the server does not
/// support TLS); `None` for any other error. A retry does not help.
#[cfg(feature = "tls")]
fn tls_problem(error: &Error) -> Option<String> {
    use mysql_async::{DriverError, IoError};
    match error {
        Error::Driver(DriverError::NoClientSslFlagFromServer) => {
            Some("the server does not support it".to_owned())
        }
        Error::Io(IoError::Tls(error)) => Some(leasehold_tls::explain_error(&error.to_string())),
        Error::Io(IoError::Io(error)) => {
            let is_tls_error =
                error.get_ref().is_some_and(|inner| inner.is::<leasehold_tls::rustls::Error>());
            is_tls_error.then(|| leasehold_tls::explain_error(&error.to_string()))
        }
        _ => None,
    }
}

/// The message for a server that asks for the password by a method that this client refuses or does not know; `None`
/// for any other error. A retry does not help.
fn unsupported_login(error: &Error) -> Option<String> {
    use mysql_async::DriverError;
    let plugin = match error {
        Error::Driver(DriverError::CleartextPluginDisabled) => "mysql_clear_password",
        Error::Driver(DriverError::MysqlOldPasswordDisabled) => "mysql_old_password",
        Error::Driver(DriverError::UnknownAuthPlugin { name }) => name,
        _ => return None,
    };
    Some(format!(
        "it asks for the password by the plugin {plugin:?}, which leasehold does not support: give the user another plugin, such as \
         caching_sha2_password or mysql_native_password (ALTER USER)"
    ))
}

/// The fault that an error code of the server means.
fn fault_of(code: u16) -> Fault {
    match code {
        // Unknown user, missing right, locked account, expired password.
        1044 | 1045 | 1095 | TABLE_DENIED | 1143 | 1227 | 1370 | 1698 | 1820 | 1862 | 3118 | 3955 | 4151 => {
            Fault::Denied
        }
        // Unknown database, table or column; no InnoDB; a binary log that accepts no rows.
        1049 | 1054 | 1064 | NO_TABLE | 1193 | 1231 | 1235 | 1286 | 1665 | TLS_REQUIRED
        | ASKS_FOR_PASSWORD => Fault::Misconfigured,
        // A full disk or table, no memory, a packet that is too large for the server.
        1021 | 1037 | 1038 | 1041 | 1114 | 1153 => Fault::Refused,
        code if READ_ONLY.contains(&code) => Fault::Refused,
        // A row of another program that cannot be created: a column without a default, a foreign key, a check.
        1364 | 1452 | 3819 | 4025 => Fault::Misconfigured,
        // A number that is too large for its column: another program wrote the token.
        1690 => Fault::Misconfigured,
        1048 | 1062 | 1136 | 1264 | 1366 | 1406 => Fault::Internal,
        // The connections reached a limit of the server, of the user or of the account.
        TOO_MANY_CONNECTIONS | 1203 | 1226 => Fault::Full,
        // Deadlocks, timeouts, a server that shuts down or starts up.
        _ => Fault::Retry,
    }
}

/// The cause of the error, without the text around it.
fn cause(error: &mysql_async::IoError) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_error(code: u16, done: usize) -> ExecuteError {
        ExecuteError::ServerError { code, message: "no".to_owned(), done }
    }

    #[test]
    fn only_a_possible_commit_is_unknown() {
        let fault = |execute_error: ExecuteError, commits| execute_error.classify(commits).fault;
        assert_eq!(fault(ExecuteError::AnswerLost("gone".to_owned()), Commits::Never), Fault::Retry);
        assert_eq!(fault(ExecuteError::AnswerLost("gone".to_owned()), Commits::At(3)), Fault::Unknown);
        // In this order: two errors of a statement in a transaction, two of its commit, two of a statement that commits
        // by itself, and one of a statement after such a statement.
        assert_eq!(fault(server_error(1142, 2), Commits::At(3)), Fault::Denied);
        assert_eq!(fault(server_error(1317, 2), Commits::At(3)), Fault::Retry);
        assert_eq!(fault(server_error(1213, 3), Commits::At(3)), Fault::Retry);
        assert_eq!(fault(server_error(1180, 3), Commits::At(3)), Fault::Unknown);
        assert_eq!(fault(server_error(1317, 0), Commits::At(0)), Fault::Unknown);
        assert_eq!(fault(server_error(1146, 0), Commits::At(0)), Fault::Misconfigured);
        assert_eq!(fault(server_error(1213, 1), Commits::At(0)), Fault::Unknown);
    }

    #[cfg(feature = "tls")]
    #[test]
    fn a_ca_as_server_certificate_is_explained() {
        use leasehold_tls::rustls::{CertificateError, Error::InvalidCertificate, OtherError};

        /// As the client library defines it.
        #[derive(Debug)]
        struct CaUsedAsEndEntity;
        impl std::fmt::Display for CaUsedAsEndEntity {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                Ok(())
            }
        }
        impl std::error::Error for CaUsedAsEndEntity {}

        let why = CertificateError::Other(OtherError(std::sync::Arc::new(CaUsedAsEndEntity)));
        let error = std::io::Error::other(InvalidCertificate(why));
        let failed = connect_error(Error::Io(mysql_async::IoError::Io(error)));
        assert_eq!(failed.fault, Fault::Misconfigured);
        assert!(failed.message.contains("CA:FALSE"), "{}", failed.message);
    }

    #[test]
    fn a_server_without_a_free_connection_is_full() {
        for code in [1040, 1203, 1226] {
            assert_eq!(fault_of(code), Fault::Full, "{code}");
        }
    }

    #[test]
    fn busy_means_that_nothing_was_done() {
        let of = |execute_error: ExecuteError, commits| RequestError::of(&execute_error, commits);
        assert!(matches!(of(server_error(1205, 1), Commits::At(1)), RequestError::Busy));
        assert!(matches!(of(server_error(1213, 1), Commits::Never), RequestError::Deadlock));
        assert!(
            matches!(of(server_error(1213, 2), Commits::At(1)), RequestError::Failed(failed) if failed.fault == Fault::Unknown)
        );
        assert!(matches!(of(server_error(1146, 0), Commits::Never), RequestError::Failed(_)));
    }
}
