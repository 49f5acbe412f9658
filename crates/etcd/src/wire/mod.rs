//! The messages to the server and from it, numbered as in its `rpc.proto` (etcd 3.4): the part that locks need.
//!
//! Source: <https://github.com/etcd-io/etcd/blob/v3.4.23/etcdserver/etcdserverpb/rpc.proto>. The messages are written
//! by hand, so that the build needs no protocol compiler. Unused fields are left out, which the encoding allows.

mod bounded;
mod grpc;
mod http;
mod kv;
mod lease;
mod server;
mod watch;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use bounded::read;
pub(crate) use grpc::{Grpc, UnaryRequest};
pub(crate) use http::Http;
pub(crate) use kv::{
    Compare, DeleteRange, DeleteRangeResponse, KeyValue, Order, Put, Range, RangeResponse, RequestOp, Txn,
    TxnResponse, compare,
};
#[cfg(test)]
pub(crate) use kv::{Response, ResponseOp};
pub(crate) use lease::{
    Grant, GrantResponse, KeepAlive, KeepAliveResponse, Revoke, RevokeResponse, TimeToLive,
    TimeToLiveResponse,
};
pub(crate) use server::{
    Authenticate, AuthenticateResponse, HashKv, HashKvResponse, Member, Members, MembersResponse, Status,
    StatusResponse,
};
pub(crate) use watch::{Cancel, Create, Event, Watch, WatchAction, WatchResponse};

/// The header of every reply: the cluster, and the revision of its data.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}
