//! Maps errors of the server and of the connection to their meaning for a request.

use leasehold_core::{EngineError, Fault};

use crate::wire::Code;

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// The request was not sent.
    Unsent,
    /// The request may have been sent and applied.
    Unanswered,
    /// The server answered that the request was not applied.
    Refused(Code),
    /// The request was applied, and the answer cannot be parsed.
    Unreadable,
    /// The request was not sent, for a reason that this client has classified already.
    Local((Fault, String)),
}

impl Failed {
    pub(crate) const NO_NODE: Self = Self::Refused(Code::NO_NODE);

    /// Whether the server refused the request with this error.
    pub(crate) fn is(&self, code: Code) -> bool {
        matches!(self, Self::Refused(answered) if *answered == code)
    }

    /// Whether the session is over: all its nodes are gone.
    pub(crate) fn is_expired(&self) -> bool {
        self.is(Code::SESSION_EXPIRED)
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
pub(crate) fn multi_outcome(
    answer: Result<Result<(), (usize, Code)>, Failed>,
) -> Result<Result<(), (usize, Code)>, Failed> {
    match answer {
        Ok(Err((_, code @ (Code::SESSION_EXPIRED | Code::SESSION_MOVED)))) => Err(Failed::Refused(code)),
        answer => answer,
    }
}

/// What an error of the server means for the request, and the summary for users.
fn meaning(code: Code) -> (Fault, &'static str) {
    match code {
        Code::NO_AUTH => (
            Fault::Denied,
            "the login of the URL may not do this: give it the rights of docs/engines/zookeeper.md",
        ),
        Code::AUTH_FAILED | Code::AUTH_REQUIRED => (
            Fault::Denied,
            "the server does not accept the login of the URL: write user:password@ before the host",
        ),
        Code::INVALID_ACL => (
            Fault::Misconfigured,
            "the server knows no such access list: acl= must name schemes and ids that it has",
        ),
        Code::UNIMPLEMENTED => {
            (Fault::Misconfigured, "the server lacks a request: ZooKeeper 3.5.3 or newer is needed")
        }
        Code::NOT_READONLY => (Fault::Retry, "the server has lost its quorum and is read-only"),
        Code::QUOTA_EXCEEDED => {
            (Fault::Refused, "the quota of the directory is used up: raise it, or use another prefix=")
        }
        Code::THROTTLED => (Fault::Retry, "the server has too much to do"),
        Code::SESSION_EXPIRED | Code::SESSION_MOVED => {
            (Fault::Retry, "the session ended while it was needed")
        }
        Code::NO_NODE => (Fault::Retry, "the directory was deleted meanwhile"),
        // A caller that expects one of these handles it before this conversion.
        Code::BAD_VERSION | Code::NODE_EXISTS | Code::NOT_EMPTY => {
            (Fault::Retry, "the directory was changed meanwhile")
        }
        Code::NO_CHILDREN => (
            Fault::Misconfigured,
            "a node on the path to the directory is ephemeral: delete it, or use another prefix=",
        ),
        Code::LOCAL_SESSION => (
            Fault::Misconfigured,
            "the server gives local sessions, which cannot hold locks: set localSessionsUpgradingEnabled",
        ),
        Code::BAD_ARGUMENTS | Code::MARSHALLING => (
            Fault::Misconfigured,
            "the server does not understand the request: is it ZooKeeper 3.5.3 or newer?",
        ),
        Code::DATA_INCONSISTENCY => (Fault::Refused, "the server reports that its data is corrupt"),
        Code::CONNECTION_LOSS | Code::TIMEOUT | Code::REQUEST_TIMEOUT => {
            (Fault::Unknown, "the server does not know whether it was applied")
        }
        // A newer server may use unknown codes, also where the request was applied.
        _ => (Fault::Unknown, "the server answered with an error that leasehold does not know"),
    }
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
            (Failed::Refused(Code::CONNECTION_LOSS), Fault::Unknown),
            (Failed::Refused(Code::NO_AUTH), Fault::Denied),
            (Failed::Refused(Code::SESSION_EXPIRED), Fault::Retry),
            (Failed::Refused(Code::UNIMPLEMENTED), Fault::Misconfigured),
            (Failed::Refused(Code::NODE_EXISTS), Fault::Retry),
            (Failed::Refused(Code(-999)), Fault::Unknown),
            (Failed::Refused(Code(1)), Fault::Unknown),
            (Failed::Local((Fault::Denied, String::new())), Fault::Denied),
        ] {
            assert_eq!(failed.is_unknown(), fault == Fault::Unknown, "{failed:?}");
            assert_eq!(EngineError::from(failed).fault, fault);
        }
    }
}
