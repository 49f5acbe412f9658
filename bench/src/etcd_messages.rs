//! The messages between the bare client and etcd, as far as the benches need them. Their names and numbers are those of
//! etcd's `rpc.proto`. The messages of leasehold itself are in `crates/etcd/src/wire`.

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// A message with one key. It is the parameter of a read, a watch and an unlock.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteRange {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub(crate) prev_kv: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int32, tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(int32, tag = "6")]
    pub(crate) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
}

/// Values of [`Compare::target`]. They say which field of a key is compared.
pub(crate) const TARGET_CREATE: i32 = 1;
pub(crate) const TARGET_MOD: i32 = 2;
pub(crate) const TARGET_VALUE: i32 = 3;
/// A value of [`Compare::result`]: the field of the key must be less than the given value. If `result` is 0, the field
/// must be equal to the given value.
pub(crate) const RESULT_LESS: i32 = 2;

/// A condition of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    pub(crate) create_revision: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub(crate) mod_revision: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) value: Option<Vec<u8>>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

impl Compare {
    /// The condition that the key was created at this revision. With the revision 0, the condition is that the key does
    /// not exist.
    pub(crate) fn created_at(key: Vec<u8>, revision: i64) -> Self {
        Self { target: TARGET_CREATE, key, create_revision: Some(revision), ..Self::default() }
    }
}

/// One step of a transaction. Exactly one of the fields is set.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<Range>,
    #[prost(message, optional, tag = "2")]
    pub(crate) put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    pub(crate) delete: Option<DeleteRange>,
}

impl RequestOp {
    pub(crate) fn put(put: Put) -> Self {
        Self { put: Some(put), ..Self::default() }
    }

    pub(crate) fn delete(delete: DeleteRange) -> Self {
        Self { delete: Some(delete), ..Self::default() }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnResponse {
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Header {
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(crate) revision: i64,
    #[prost(bool, tag = "2")]
    pub(crate) physical: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EmptyResponse {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Watch {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<KeyRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchResponse {
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    /// 0 is a put, 1 is a deletion.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
}

impl WatchResponse {
    /// The number of deletions in the message.
    pub(crate) fn deletions(&self) -> usize {
        self.events.iter().filter(|event| event.kind == 1).count()
    }
}
