//! What is said to the server and what it says, as its `rpc.proto` (etcd 3.4) numbers it: the part of it that locks need.
//!
//! Source: <https://github.com/etcd-io/etcd/blob/v3.4.23/etcdserver/etcdserverpb/rpc.proto>. Written out, so that building
//! needs no compiler of protocols. Fields that are not read are left out, which the encoding allows.

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
    Compare, DeleteRange, KeyValue, Order, Put, Range, RangeResponse, Txn, TxnResponse, compare,
};
#[cfg(test)]
pub(crate) use kv::{Response, ResponseOp};
pub(crate) use lease::{
    Grant, GrantResponse, KeepAlive, KeepAliveResponse, Revoke, RevokeResponse, TimeToLive,
    TimeToLiveResponse,
};
pub(crate) use server::{
    Authenticate, AuthenticateResponse, Members, MembersResponse, Status, StatusResponse,
};
pub(crate) use watch::{Cancel, Create, Event, Order as WatchOrder, Watch, WatchResponse};

/// What every answer begins with.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}
