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
    /// 0: the member has no leader.
    #[prost(uint64, tag = "4")]
    pub(crate) leader: u64,
    /// Alarms: out of space, corrupt.
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
    /// The member does not vote and serves no clients yet.
    #[prost(bool, tag = "10")]
    pub(crate) is_learner: bool,
}

/// Lists the members of the cluster.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Members {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Member {
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

impl Answer for MembersResponse {
    const SHAPE: Shape = Shape(&[(2, &PLAIN)]);
}
