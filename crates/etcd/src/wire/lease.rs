//! Leases.

use super::bounded::Answer;

/// Creates a lease of at least this many seconds. The server chooses its id.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Grant {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

/// The new lease: its id, and the seconds that the server granted.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(string, tag = "4")]
    pub(crate) error: String,
}

/// Ends a lease and deletes its keys.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Revoke {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RevokeResponse {}

/// Extends a lease to its full ttl.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeepAlive {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The reply to one [`KeepAlive`]; a ttl of 0: the lease has ended.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeepAliveResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

/// Asks for the remaining time of a lease.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TimeToLive {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

/// The whole seconds until a lease ends, below 0 if it has ended, and the seconds that each keep-alive grants.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TimeToLiveResponse {
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "4")]
    pub(crate) granted: i64,
}

impl Answer for GrantResponse {}
impl Answer for RevokeResponse {}
impl Answer for KeepAliveResponse {}
impl Answer for TimeToLiveResponse {}
