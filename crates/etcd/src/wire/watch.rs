//! Watches: many on one stream, each with an id that the client chooses.

use super::{
    Header,
    bounded::{Answer, PLAIN, Shape},
    kv::KeyValue,
};

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Watch {
    #[prost(oneof = "Order", tags = "1, 2")]
    pub(crate) order: Option<Order>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Order {
    #[prost(message, tag = "1")]
    Create(Create),
    #[prost(message, tag = "2")]
    Cancel(Cancel),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Create {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// The first revision to report, which may be past; 0: changes from now on.
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    #[prost(int64, tag = "7")]
    pub(crate) watch_id: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Cancel {
    #[prost(int64, tag = "1")]
    pub(crate) watch_id: i64,
}

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
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Event {
    /// 0 put, 1 deletion.
    #[prost(int32, tag = "1")]
    pub(crate) what: i32,
    /// For a deletion: the key, with the revision of the deletion as its mod revision.
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

const EVENT: Shape = Shape(&[(2, &PLAIN)]);

impl Answer for WatchResponse {
    const SHAPE: Shape = Shape(&[(11, &EVENT)]);
}

impl Event {
    pub(crate) fn is_deletion(&self) -> bool {
        self.what == 1
    }
}
