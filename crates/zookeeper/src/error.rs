//! Maps errors of the server and of the connection to their meaning for a request.

use leasehold_core::{EngineError, Fault};

use crate::wire::ErrorCode;

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// The request was not sent.
    Unsent,
    /// The request may have been sent and applied.
    Unanswered,
    /// The server answered that the request was not applied.
    Refused(ErrorCode),
    /// The request was applied, and the answer cannot be parsed.
    Unreadable,
    /// The request was not sent or not applied, for a reason that this client has classified already.
    Local((Fault, String)),
}

impl Failed {
    pub(crate) const NO_NODE: Self = Self::Refused(ErrorCode::NO_NODE);

    /// Whether the server refused the request with this error.
    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        matches!(self, Self::Refused(refused_code) if *refused_code == code)
    }

    /// Whether the session is over: all its nodes are gone.
    pub(crate) fn is_expired(&self) -> bool {
        self.is(ErrorCode::SESSION_EXPIRED)
    }

    /// Whether the request may have been applied, or may still be applied.
    pub(crate) fn is_unknown(&self) -> bool {
        match self {
            Self::Unanswered | Self::Unreadable => true,
            Self::Refused(code) => meaning(*code).0 == Fault::Unknown,
            Self::Unsent | Self::Local(_) => false,
        }
    }
}

impl From<Failed> for EngineError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Local((fault, message)) => Self::new(fault, message),
            Failed::Unsent => Self::new(Fault::Retry, "the connection broke before the request left"),
            Failed::Unanswered => Self::new(Fault::Unknown, "the connection broke before the answer came"),
            Failed::Unreadable => Self::new(Fault::Unknown, "the server answered with something unexpected"),
            Failed::Refused(code) => {
                let (fault, summary) = meaning(code);
                Self::new(fault, format!("{summary} ({code})"))
            }
        }
    }
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::Local((error.fault, error.message))
    }
}

/// The outcome of a multi: success, or the index and the error of the failed step. The server reports the end of the
/// session as an error of the first step; here it is an error of the whole request.
pub(crate) fn multi_outcome<T>(
    answer: Result<Result<T, (usize, ErrorCode)>, Failed>,
) -> Result<Result<T, (usize, ErrorCode)>, Failed> {
    match answer {
        Ok(Err((_, code @ (ErrorCode::SESSION_EXPIRED | ErrorCode::SESSION_MOVED)))) => {
            Err(Failed::Refused(code))
        }
        answer => answer,
    }
}

/// What an error of the server means for the request, and the summary for users.
fn meaning(code: ErrorCode) -> (Fault, &'static str) {
    match code {
        ErrorCode::NO_AUTH => (
            Fault::Denied,
            "the login of the URL may not do this: give it the rights of docs/engines/zookeeper.md",
        ),
        ErrorCode::AUTH_FAILED | ErrorCode::AUTH_REQUIRED => (
            Fault::Denied,
            "the server does not accept the login of the URL: write user:password@ before the host",
        ),
        ErrorCode::INVALID_ACL => (
            Fault::Misconfigured,
            "the server knows no such access list: acl= must name schemes and ids that it has",
        ),
        ErrorCode::UNIMPLEMENTED => {
            (Fault::Misconfigured, "the server lacks a request: ZooKeeper 3.5.3 or newer is needed")
        }
        ErrorCode::NOT_READONLY => (Fault::Retry, "the server has lost its quorum and is read-only"),
        ErrorCode::QUOTA_EXCEEDED => {
            (Fault::Refused, "the quota of the directory is used up: raise it, or use another prefix=")
        }
        ErrorCode::THROTTLED => (Fault::Retry, "the server has too much to do"),
        ErrorCode::SESSION_EXPIRED | ErrorCode::SESSION_MOVED => {
            (Fault::Retry, "the session ended while it was needed")
        }
        ErrorCode::NO_NODE => (Fault::Retry, "the directory was deleted meanwhile"),
        // A caller that expects one of these handles it before this conversion.
        ErrorCode::BAD_VERSION | ErrorCode::NODE_EXISTS | ErrorCode::NOT_EMPTY => {
            (Fault::Retry, "the directory was changed meanwhile")
        }
        ErrorCode::NO_CHILDREN => (
            Fault::Misconfigured,
            "a node on the path to the directory is ephemeral: delete it, or use another prefix=",
        ),
        ErrorCode::LOCAL_SESSION => (
            Fault::Misconfigured,
            "the server gives local sessions, which cannot hold locks: set localSessionsUpgradingEnabled",
        ),
        ErrorCode::BAD_ARGUMENTS | ErrorCode::MARSHALLING => (
            Fault::Misconfigured,
            "the server does not understand the request: is it ZooKeeper 3.5.3 or newer?",
        ),
        ErrorCode::DATA_INCONSISTENCY => (Fault::Refused, "the server reports that its data is corrupt"),
        ErrorCode::CONNECTION_LOSS | ErrorCode::TIMEOUT | ErrorCode::REQUEST_TIMEOUT => {
            (Fault::Unknown, "the server does not know whether it was applied")
        }
        // A newer server may use unknown codes, also where the request was applied.
        _ => (Fault::Unknown, "the server answered with an error that leasehold does not know"),
    }
}

/// The error after an attempt was repeated as often as allowed.
pub(crate) fn changed_again() -> EngineError {
    EngineError::new(Fault::Retry, "what the claim depends on changed again and again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unapplied_and_unknown_requests_have_different_errors() {
        for (failed, fault) in [
            (Failed::Unsent, Fault::Retry),
            (Failed::Unanswered, Fault::Unknown),
            (Failed::Unreadable, Fault::Unknown),
            (Failed::Refused(ErrorCode::CONNECTION_LOSS), Fault::Unknown),
            (Failed::Refused(ErrorCode::NO_AUTH), Fault::Denied),
            (Failed::Refused(ErrorCode::SESSION_EXPIRED), Fault::Retry),
            (Failed::Refused(ErrorCode::UNIMPLEMENTED), Fault::Misconfigured),
            (Failed::Refused(ErrorCode::NODE_EXISTS), Fault::Retry),
            (Failed::Refused(ErrorCode(-999)), Fault::Unknown),
            (Failed::Refused(ErrorCode(1)), Fault::Unknown),
            (Failed::Local((Fault::Denied, String::new())), Fault::Denied),
        ] {
            assert_eq!(failed.is_unknown(), fault == Fault::Unknown, "{failed:?}");
            assert_eq!(EngineError::from(failed).fault, fault);
        }
    }
}
