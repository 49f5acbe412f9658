//! Keys and transactions.

use super::{
    Header,
    bounded::{Answer, PLAIN, Shape},
};

/// A key with its value and its history.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    /// The lease with which the key ends; 0: none.
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

/// Reads the keys from `key` up to, but not including, `range_end`; if `range_end` is empty, reads the one key `key`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// The maximum number of keys; 0: no limit.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    /// The revision of the data that is read; 0: the newest.
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(enumeration = "Order", tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(enumeration = "Sort", tag = "6")]
    pub(crate) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    /// Keys that were created later are left out; 0: no bound.
    #[prost(int64, tag = "13")]
    pub(crate) max_create_revision: i64,
}

/// The sort order of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Order {
    None = 0,
    Ascend = 1,
    Descend = 2,
}

/// The sort key of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Sort {
    Key = 0,
    Version = 1,
    Create = 2,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    /// The range has more keys than the limit.
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
    /// How many keys are in the range, whatever the limit.
    #[prost(int64, tag = "4")]
    pub(crate) count: i64,
}

/// Writes a key.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    /// The lease with which the key ends; 0: none.
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

/// Deletes the keys from `key` up to, but not including, `range_end`; if `range_end` is empty, deletes the one key
/// `key`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteRange {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// Return the deleted keys in the reply.
    #[prost(bool, tag = "3")]
    pub(crate) prev_kv: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct PutResponse {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct DeleteRangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) deleted: i64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) prev_kvs: Vec<KeyValue>,
}

/// One step of a transaction.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub(crate) request: Option<Request>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(DeleteRange),
}

/// The result of one step.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub(crate) response: Option<Response>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(PutResponse),
    #[prost(message, tag = "3")]
    Delete(DeleteRangeResponse),
}

/// A condition on a key, or on all keys of a range. If no key exists, revisions count as 0 and conditions on a value
/// fail.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Compare {
    /// How the field must compare with the target.
    #[prost(enumeration = "compare::Relation", tag = "1")]
    pub(crate) result: i32,
    /// The field of the key that is compared.
    #[prost(enumeration = "compare::Field", tag = "2")]
    pub(crate) field: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Target", tags = "5, 6, 7, 8")]
    pub(crate) target: Option<Target>,
    #[prost(bytes = "vec", tag = "64")]
    pub(crate) range_end: Vec<u8>,
}

/// The value with which a field is compared.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Target {
    #[prost(int64, tag = "5")]
    Create(i64),
    #[prost(int64, tag = "6")]
    Mod(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
    #[prost(int64, tag = "8")]
    Lease(i64),
}

/// Makes conditions.
pub(crate) mod compare {
    use super::{Compare, Target};

    /// How the field of a key must compare with the target.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
    #[repr(i32)]
    pub(crate) enum Relation {
        Equal = 0,
        Greater = 1,
        Less = 2,
        NotEqual = 3,
    }

    /// The field of a key that a condition compares.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
    #[repr(i32)]
    pub(crate) enum Field {
        Version = 0,
        Create = 1,
        Mod = 2,
        Value = 3,
        Lease = 4,
    }

    fn compare(key: &[u8], field: Field, result: Relation, target: Target) -> Compare {
        Compare {
            result: result.into(),
            field: field.into(),
            key: key.to_vec(),
            target: Some(target),
            range_end: Vec::new(),
        }
    }

    /// The key was created at this revision; 0: it does not exist.
    pub(crate) fn created(key: &[u8], revision: i64) -> Compare {
        compare(key, Field::Create, Relation::Equal, Target::Create(revision))
    }

    /// The key was last changed at this revision; 0: it does not exist.
    pub(crate) fn changed(key: &[u8], revision: i64) -> Compare {
        compare(key, Field::Mod, Relation::Equal, Target::Mod(revision))
    }

    /// The key exists, and its value sorts before this one.
    pub(crate) fn value_before(key: &[u8], value: &[u8]) -> Compare {
        compare(key, Field::Value, Relation::Less, Target::Value(value.to_vec()))
    }

    /// The key exists, and its value sorts after this one.
    pub(crate) fn value_after(key: &[u8], value: &[u8]) -> Compare {
        compare(key, Field::Value, Relation::Greater, Target::Value(value.to_vec()))
    }

    /// The key is on this lease; 0: on none, or the key does not exist.
    pub(crate) fn leased(key: &[u8], lease: i64) -> Compare {
        compare(key, Field::Lease, Relation::Equal, Target::Lease(lease))
    }

    /// No key is in the range.
    pub(crate) fn empty((from, to): &(Vec<u8>, Vec<u8>)) -> Compare {
        Compare { range_end: to.clone(), ..created(from, 0) }
    }

    /// Each key of the range was created at this revision or later, and the range has a key.
    pub(crate) fn none_older((from, to): &(Vec<u8>, Vec<u8>), revision: i64) -> Compare {
        let before = Target::Create(revision.saturating_sub(1));
        Compare { range_end: to.clone(), ..compare(from, Field::Create, Relation::Greater, before) }
    }

    /// No key of the range was created or changed after this revision. Keys may have been deleted.
    pub(crate) fn none_newer((from, to): &(Vec<u8>, Vec<u8>), revision: i64) -> Compare {
        let before = compare(from, Field::Mod, Relation::Less, Target::Mod(revision.saturating_add(1)));
        Compare { range_end: to.clone(), ..before }
    }
}

/// A transaction. Applies `success` if all of `compare` hold, else `failure`, in one step.
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
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

/// The lists in the replies, by the numbers of their fields.
const RANGE: Shape = Shape(&[(2, &PLAIN)]);
const DELETED: Shape = Shape(&[(3, &PLAIN)]);
const STEP_RESULT: Shape = Shape(&[(1, &RANGE), (2, &PLAIN), (3, &DELETED)]);

impl Answer for RangeResponse {
    const SHAPE: Shape = RANGE;
}

impl Answer for DeleteRangeResponse {
    const SHAPE: Shape = DELETED;
}

impl Answer for TxnResponse {
    const SHAPE: Shape = Shape(&[(3, &STEP_RESULT)]);
}

impl From<Request> for RequestOp {
    fn from(request: Request) -> Self {
        Self { request: Some(request) }
    }
}

impl From<Range> for RequestOp {
    fn from(range: Range) -> Self {
        Request::Range(range).into()
    }
}

impl From<Put> for RequestOp {
    fn from(put: Put) -> Self {
        Request::Put(put).into()
    }
}

impl From<DeleteRange> for RequestOp {
    fn from(delete: DeleteRange) -> Self {
        Request::Delete(delete).into()
    }
}

impl Range {
    /// One key.
    pub(crate) fn key(key: &[u8]) -> Self {
        Self { key: key.to_vec(), ..Self::default() }
    }

    /// All keys of this span: from its first key up to, but not including, its end.
    pub(crate) fn between((from, to): &(Vec<u8>, Vec<u8>)) -> Self {
        Self { key: from.clone(), range_end: to.clone(), ..Self::default() }
    }

    /// Sorts the keys by age: the oldest or the newest key first.
    pub(crate) fn by_age(mut self, order: Order) -> Self {
        self.sort_order = order.into();
        self.sort_target = Sort::Create.into();
        self
    }

    pub(crate) fn limit(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }

    /// Leaves out the values.
    pub(crate) fn keys_only(mut self) -> Self {
        self.keys_only = true;
        self
    }

    /// Leaves out keys that were not created before this revision.
    pub(crate) fn before(mut self, revision: i64) -> Self {
        // 0 means no bound; no key is as old as revision 1.
        self.max_create_revision = revision.saturating_sub(1).max(1);
        self
    }
}

impl TxnResponse {
    /// The revision of the server's data after the transaction.
    pub(crate) fn revision(&self) -> i64 {
        self.header.as_ref().map_or(0, |header| header.revision)
    }

    /// The result of the read at index `step`; `None` if that step was no read.
    pub(crate) fn range(&mut self, step: usize) -> Option<RangeResponse> {
        match self.responses.get_mut(step)?.response.take()? {
            Response::Range(range) => Some(range),
            _ => None,
        }
    }

    /// The keys that the deletion at index `step` removed; `None` if that step was no deletion.
    pub(crate) fn deleted(&mut self, step: usize) -> Option<Vec<KeyValue>> {
        match self.responses.get_mut(step)?.response.take()? {
            Response::Delete(deleted) => Some(deleted.prev_kvs),
            _ => None,
        }
    }
}
