//! Sorts what the server and the connection say into what it means for a request.

use leasehold_core::{EngineError, Fault};

use crate::wire::Code;

/// Why a request has no answer, or not the one that it wanted.
#[derive(Clone, Debug)]
pub(crate) enum Failed {
    /// It did not leave.
    Unsent,
    /// It may have left, and may have been done.
    Unanswered,
    /// The server answered that it was not done.
    Refused(Code),
    /// It was done, and the answer is none that we know.
    Unreadable,
    /// It could not be asked at all.
    Here((Fault, String)),
}

impl Failed {
    pub(crate) const NO_NODE: Self = Self::Refused(Code::NO_NODE);

    pub(crate) fn is(&self, code: Code) -> bool {
        matches!(self, Self::Refused(said) if *said == code)
    }

    /// The session is over: nothing of it is there any more.
    pub(crate) fn is_expired(&self) -> bool {
        self.is(Code::SESSION_EXPIRED)
    }

    /// Whether the request may have been done, or may still be done.
    pub(crate) fn is_unknown(&self) -> bool {
        match self {
            Self::Unanswered | Self::Unreadable => true,
            Self::Refused(code) => {
                matches!(*code, Code::CONNECTION_LOSS | Code::TIMEOUT | Code::REQUEST_TIMEOUT)
            }
            Self::Unsent | Self::Here(_) => false,
        }
    }
}

impl From<Failed> for EngineError {
    fn from(failed: Failed) -> Self {
        let unknown = failed.is_unknown();
        match failed {
            Failed::Here((fault, message)) => Self::new(fault, message),
            Failed::Unsent => Self::new(Fault::Retry, "the connection broke before the request left"),
            Failed::Unanswered => Self::new(Fault::Unknown, "the connection broke before the answer came"),
            Failed::Unreadable => Self::new(Fault::Unknown, "the server answered with something unexpected"),
            Failed::Refused(code) if unknown => {
                Self::new(Fault::Unknown, format!("the server does not know what became of it ({code})"))
            }
            Failed::Refused(code) => {
                let (fault, what) = meaning(code);
                Self::new(fault, format!("{what} ({code})"))
            }
        }
    }
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::Here((error.fault, error.message))
    }
}

/// What a multi came to: the end of the session is told as an error of its first step.
pub(crate) fn agreed(
    answer: Result<Result<(), (usize, Code)>, Failed>,
) -> Result<Result<(), (usize, Code)>, Failed> {
    match answer {
        Ok(Err((_, code @ (Code::SESSION_EXPIRED | Code::SESSION_MOVED)))) => Err(Failed::Refused(code)),
        answer => answer,
    }
}

pub(crate) fn unreadable() -> EngineError {
    Failed::Unreadable.into()
}

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
            "the server knows no such access list: acl= is to name schemes and ids that it has",
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
        _ => (Fault::Internal, "the server refused the request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_certainly_not_done_is_told_from_what_may_have_been() {
        for (failed, fault) in [
            (Failed::Unsent, Fault::Retry),
            (Failed::Unanswered, Fault::Unknown),
            (Failed::Unreadable, Fault::Unknown),
            (Failed::Refused(Code::CONNECTION_LOSS), Fault::Unknown),
            (Failed::Refused(Code::NO_AUTH), Fault::Denied),
            (Failed::Refused(Code::SESSION_EXPIRED), Fault::Retry),
            (Failed::Refused(Code::UNIMPLEMENTED), Fault::Misconfigured),
            (Failed::Refused(Code(-999)), Fault::Internal),
            (Failed::Here((Fault::Denied, String::new())), Fault::Denied),
        ] {
            assert_eq!(failed.is_unknown(), fault == Fault::Unknown, "{failed:?}");
            assert_eq!(EngineError::from(failed).fault, fault);
        }
    }
}
