//! The messages between the bare client and etcd, as far as the benches need them.

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Grant {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Granted {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

/// A message with one key: the parameter of a read, a watch and an unlock.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Key {
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
pub(crate) struct Delete {
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
    pub(crate) descends: i32,
    #[prost(int32, tag = "6")]
    pub(crate) by: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) what: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    pub(crate) created: Option<i64>,
    #[prost(int64, optional, tag = "6")]
    pub(crate) changed: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "7")]
    pub(crate) value: Option<Vec<u8>>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

impl Compare {
    pub(crate) fn since(key: Vec<u8>, revision: i64) -> Self {
        Self { what: 1, key, created: Some(revision), ..Self::default() }
    }
}

/// One step of a transaction: exactly one of the fields is set.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Step {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<Range>,
    #[prost(message, optional, tag = "2")]
    pub(crate) put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    pub(crate) delete: Option<Delete>,
}

impl Step {
    pub(crate) fn range(range: Range) -> Self {
        Self { range: Some(range), ..Self::default() }
    }

    pub(crate) fn put(put: Put) -> Self {
        Self { put: Some(put), ..Self::default() }
    }

    pub(crate) fn delete(delete: Delete) -> Self {
        Self { delete: Some(delete), ..Self::default() }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<Step>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<Step>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TxnDone {
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Header {
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Compact {
    #[prost(int64, tag = "1")]
    pub(crate) revision: i64,
    #[prost(bool, tag = "2")]
    pub(crate) physical: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Found {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Lock {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Locked {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Watch {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<Key>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Watched {
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    /// 0: put, 1: deletion.
    #[prost(int32, tag = "1")]
    pub(crate) what: i32,
}

impl Watched {
    /// The number of deletions in the message.
    pub(crate) fn deletions(&self) -> usize {
        self.events.iter().filter(|event| event.what == 1).count()
    }
}
