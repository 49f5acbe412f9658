//! The errors of the server for requests that it did not apply
//! (<https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-server/src/main/java/org/apache/zookeeper/KeeperException.java>).

use std::fmt;

/// The number of an error, in an answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ErrorCode(pub(crate) i32);

impl ErrorCode {
    /// The error of the steps of a multi after the failed one.
    pub(crate) const SKIPPED: Self = Self(-2);
    pub(crate) const DATA_INCONSISTENCY: Self = Self(-3);
    pub(crate) const CONNECTION_LOSS: Self = Self(-4);
    pub(crate) const MARSHALLING: Self = Self(-5);
    pub(crate) const UNIMPLEMENTED: Self = Self(-6);
    pub(crate) const TIMEOUT: Self = Self(-7);
    pub(crate) const BAD_ARGUMENTS: Self = Self(-8);
    pub(crate) const NO_NODE: Self = Self(-101);
    pub(crate) const NO_AUTH: Self = Self(-102);
    pub(crate) const BAD_VERSION: Self = Self(-103);
    pub(crate) const NO_CHILDREN: Self = Self(-108);
    pub(crate) const NODE_EXISTS: Self = Self(-110);
    pub(crate) const NOT_EMPTY: Self = Self(-111);
    pub(crate) const SESSION_EXPIRED: Self = Self(-112);
    pub(crate) const INVALID_ACL: Self = Self(-114);
    pub(crate) const AUTH_FAILED: Self = Self(-115);
    pub(crate) const SESSION_MOVED: Self = Self(-118);
    pub(crate) const NOT_READONLY: Self = Self(-119);
    pub(crate) const LOCAL_SESSION: Self = Self(-120);
    pub(crate) const REQUEST_TIMEOUT: Self = Self(-122);
    pub(crate) const AUTH_REQUIRED: Self = Self(-124);
    pub(crate) const QUOTA_EXCEEDED: Self = Self(-125);
    pub(crate) const THROTTLED: Self = Self(-127);
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::DATA_INCONSISTENCY => "DataInconsistency",
            Self::CONNECTION_LOSS => "ConnectionLoss",
            Self::MARSHALLING => "MarshallingError",
            Self::UNIMPLEMENTED => "Unimplemented",
            Self::TIMEOUT => "OperationTimeout",
            Self::BAD_ARGUMENTS => "BadArguments",
            Self::NO_NODE => "NoNode",
            Self::NO_AUTH => "NoAuth",
            Self::BAD_VERSION => "BadVersion",
            Self::NO_CHILDREN => "NoChildrenForEphemerals",
            Self::NODE_EXISTS => "NodeExists",
            Self::NOT_EMPTY => "NotEmpty",
            Self::SESSION_EXPIRED => "SessionExpired",
            Self::INVALID_ACL => "InvalidACL",
            Self::AUTH_FAILED => "AuthFailed",
            Self::SESSION_MOVED => "SessionMoved",
            Self::NOT_READONLY => "NotReadOnly",
            Self::LOCAL_SESSION => "EphemeralOnLocalSession",
            Self::REQUEST_TIMEOUT => "RequestTimeout",
            Self::AUTH_REQUIRED => "SessionClosedRequireAuth",
            Self::QUOTA_EXCEEDED => "QuotaExceeded",
            Self::THROTTLED => "Throttled",
            Self(number) => return write!(f, "error {number}"),
        };
        f.write_str(name)
    }
}
