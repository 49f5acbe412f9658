//! Watches: many on one stream, each with an id that the client chooses.

use super::{
    Header,
    bounded::{Answer, PLAIN, Shape},
    kv::KeyValue,
};

/// A request on the stream of watches.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Watch {
    #[prost(oneof = "WatchAction", tags = "1, 2")]
    pub(crate) action: Option<WatchAction>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum WatchAction {
    #[prost(message, tag = "1")]
    Create(Create),
    #[prost(message, tag = "2")]
    Cancel(Cancel),
}

/// Starts a watch of the keys from `key` up to, but not including, `range_end`; if `range_end` is empty, of the one key
/// `key`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Create {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// The first revision to report, which may be an old one; 0: report changes from now on.
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    #[prost(int64, tag = "7")]
    pub(crate) watch_id: i64,
}

/// Ends a watch.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Cancel {
    #[prost(int64, tag = "1")]
    pub(crate) watch_id: i64,
}

/// A message of the server about one watch.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    /// The watch was created. It reports changes after the revision of the header, unless it named a start revision.
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// If the watch was cancelled because its start revision is compacted: the oldest revision that is kept; else 0.
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// A change of one key.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    /// 0: the key was written; 1: it was deleted.
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    /// For a deletion: the key, with the revision of the deletion as its mod revision.
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

const EVENT: Shape = Shape(&[(2, &PLAIN)]);

impl Answer for WatchResponse {
    const SHAPE: Shape = Shape(&[(11, &EVENT)]);
}

impl Event {
    const DELETION: i32 = 1;

    pub(crate) fn is_deletion(&self) -> bool {
        self.kind == Self::DELETION
    }
}
