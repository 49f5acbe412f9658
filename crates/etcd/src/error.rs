//! Classifies errors of the server and of the connection: what each means for a request.

use leasehold_core::{Endpoint, EngineError, Fault};
use tonic::{Code, Status};

use crate::{config::Config, stream::tls_hint};

/// Classifies the error of a request that may have been sent.
pub(crate) fn classify(status: &Status) -> EngineError {
    let (fault, summary) = meaning(status);
    let message = cause_text(status);
    let message = message.trim().trim_start_matches("etcdserver: ");
    let message = if message.is_empty() { summary.to_owned() } else { format!("{summary} ({message})") };
    EngineError::new(fault, message)
}

/// Classifies an error of connecting: no request of a verb was sent yet.
pub(crate) fn classify_connecting(status: &Status, member: &Endpoint, config: &Config) -> EngineError {
    let classified = classify(status);
    #[cfg(feature = "tls")]
    {
        // This is how a server refuses our certificate, after the connection is made.
        let message = cause_text(status);
        if leasehold_tls::is_alert(&message) {
            let message = format!("cannot connect to {member} by TLS: {message}");
            return EngineError::new(Fault::Misconfigured, message);
        }
    }
    let (fault, hint) = match classified.fault {
        Fault::Unknown => (Fault::Retry, tls_hint(config)),
        fault => (fault, ""),
    };
    EngineError::new(fault, format!("cannot connect to {member}: {}{hint}", classified.message))
}

/// The message of the innermost cause of an error.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The message of the server, or the cause of a broken connection.
fn cause_text(status: &Status) -> String {
    std::error::Error::source(status).map_or_else(|| status.message().to_owned(), root_cause)
}

/// Whether the reply exceeds the bound. This error comes from our own decoder, not from the server.
pub(crate) fn is_reply_too_long(status: &Status) -> bool {
    status.code() == Code::OutOfRange && !status.message().contains("etcdserver: ")
}

/// Whether the lease of the request does not exist (any more). Then nothing was applied.
pub(crate) fn is_lease_gone(status: &Status) -> bool {
    status.code() == Code::NotFound && status.message().contains("lease not found")
}

/// Whether the server's database is full. Unlike other refusals, this one may come after the request was applied.
pub(crate) fn is_database_full(status: &Status) -> bool {
    status.code() == Code::ResourceExhausted && status.message().contains("space exceeded")
}

/// Whether the request has more steps or bytes than the settings of the server permit. Then nothing was applied.
pub(crate) fn is_too_large(status: &Status) -> bool {
    let message = status.message();
    message.contains("too many operations") || message.contains("is too large")
}

/// Whether the server does not accept the login any more, so that the client has to log in again. If so, the server
/// applied nothing.
pub(crate) fn wants_login(status: &Status) -> bool {
    let message = status.message();
    message.contains("invalid auth token") || message.contains("revision of auth store is old")
}

/// Whether the server has authentication enabled and the request has no login.
pub(crate) fn wants_user(status: &Status) -> bool {
    status.code() == Code::InvalidArgument && status.message().contains("user name is empty")
}

/// What an error means for the request, and the summary for users.
fn meaning(status: &Status) -> (Fault, &'static str) {
    let message = status.message();
    let has = |part: &str| message.contains(part);
    match status.code() {
        _ if wants_login(status) => (Fault::Retry, "the server does not know the login any more"),
        Code::PermissionDenied => {
            (Fault::Denied, "the user of the URL may not do this: give it the rights of docs/engines/etcd.md")
        }
        Code::InvalidArgument if has("authentication failed") => {
            (Fault::Denied, "the server does not accept the user or password of the URL")
        }
        _ if wants_user(status) => {
            (Fault::Denied, "the server wants a user: write etcd://user:password@host")
        }
        Code::FailedPrecondition if has("authentication is not enabled") => {
            (Fault::Misconfigured, "the URL has a user, but the server has no users: leave it out of the URL")
        }
        Code::ResourceExhausted if is_database_full(status) => (
            Fault::Refused,
            "the server's database is full: compact and defragment it, then disarm its alarm",
        ),
        Code::ResourceExhausted => (Fault::Retry, "the server has too much to do"),
        Code::DataLoss => (Fault::Refused, "the cluster says that it is corrupt"),
        Code::Unavailable if has("no leader") => (Fault::Retry, "the member has no leader: is a quorum up?"),
        Code::Unavailable if has("not capable") => (Fault::Retry, "the cluster is being upgraded"),
        Code::Unimplemented => {
            (Fault::Misconfigured, "the server lacks a request: etcd 3.4 or newer is needed")
        }
        Code::NotFound => (Fault::Retry, "the lease is gone"),
        // Without `etcdserver: ` the error comes from our own decoder, after a reply arrived.
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition if has("etcdserver: ") => {
            (Fault::Internal, "the server answered with an error")
        }
        // After a broken connection or a change of the leader it is unknown whether the request was applied.
        _ => (Fault::Unknown, "the answer did not come"),
    }
}

/// The error for a reply that does not have the expected form.
pub(crate) fn unreadable() -> EngineError {
    EngineError::new(Fault::Unknown, "the server answered with something unexpected")
}

/// The error after an attempt was repeated as often as allowed.
pub(crate) fn changed_again() -> EngineError {
    EngineError::new(Fault::Retry, "what the claim depends on changed again and again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_separate_not_applied_from_unknown() {
        for (code, message, fault) in [
            (Code::Unavailable, "etcdserver: no leader", Fault::Retry),
            (Code::Unavailable, "etcdserver: leader changed", Fault::Unknown),
            (Code::Unavailable, "etcdserver: request timed out", Fault::Unknown),
            (Code::Unavailable, "transport error", Fault::Unknown),
            (Code::Unknown, "h2 protocol error", Fault::Unknown),
            (Code::Cancelled, "", Fault::Unknown),
            (Code::PermissionDenied, "etcdserver: permission denied", Fault::Denied),
            (Code::Unauthenticated, "etcdserver: invalid auth token", Fault::Retry),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Fault::Refused),
            (Code::ResourceExhausted, "etcdserver: too many requests", Fault::Retry),
            (Code::InvalidArgument, "etcdserver: too many operations in txn request", Fault::Internal),
            (Code::OutOfRange, "decoded message length too large", Fault::Unknown),
        ] {
            let config = Config::new(vec![Endpoint { host: "h".to_owned(), port: 1 }]);
            let status = Status::new(code, message);
            assert_eq!(classify(&status).fault, fault, "{message}");
            assert_ne!(classify_connecting(&status, &config.members[0], &config).fault, Fault::Unknown);
        }
    }
}
