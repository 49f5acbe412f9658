//! The server itself: the login, and its status.

use super::{
    Header,
    bounded::{Answer, PLAIN, Shape},
};

/// Logs in.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

/// The token that further requests carry.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

/// Asks a member for its state.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Status {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    /// The size of the database file, in bytes.
    #[prost(int64, tag = "3")]
    pub(crate) db_size: i64,
    /// 0: the member has no leader.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    /// The number of the newest entry of the log that the member has.
    #[prost(uint64, tag = "5")]
    pub(crate) raft_index: u64,
    /// The number of the newest entry that the member has applied.
    #[prost(uint64, tag = "7")]
    pub(crate) raft_applied_index: u64,
    /// Alarms: out of space, corrupt.
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
    /// The bytes of the database file that are in use.
    #[prost(int64, tag = "9")]
    pub(crate) db_size_in_use: i64,
    /// The member does not vote and serves no clients yet.
    #[prost(bool, tag = "10")]
    pub(crate) is_learner: bool,
    /// The limit of the size of the database file; 0 before etcd 3.6.
    #[prost(int64, tag = "12")]
    pub(crate) db_size_quota: i64,
}

/// Asks a member for a hash of its data at a revision.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HashKv {
    #[prost(int64, tag = "1")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HashKvResponse {
    #[prost(uint32, tag = "2")]
    pub(crate) hash: u32,
    /// The revision of the last compaction, which the hash depends on; -1 if there was none.
    #[prost(int64, tag = "3")]
    pub(crate) compact_revision: i64,
}

/// Lists the members of the cluster.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Members {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Member {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(bool, tag = "5")]
    pub(crate) is_learner: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MembersResponse {
    #[prost(message, repeated, tag = "2")]
    pub(crate) members: Vec<Member>,
}

impl Answer for AuthenticateResponse {}

impl Answer for StatusResponse {
    const SHAPE: Shape = Shape(&[(8, &PLAIN)]);
}

impl Answer for HashKvResponse {}

impl Answer for MembersResponse {
    const SHAPE: Shape = Shape(&[(2, &PLAIN)]);
}
