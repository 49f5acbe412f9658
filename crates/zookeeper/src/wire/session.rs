//! The beginning of a connection, and the header of every answer.

use super::jute::{Reader, Writer};

/// The xid of messages that answer no request: events.
pub(crate) const XID_EVENT: i32 = -1;
/// The fixed xids of pings and logins.
pub(crate) const XID_PING: i32 = -2;
pub(crate) const XID_AUTH: i32 = -4;

/// The first message to a server.
#[derive(Debug)]
pub(crate) struct Hello<'a> {
    pub(crate) timeout_millis: i32,
    /// 0 for a new session.
    pub(crate) session: i64,
    pub(crate) password: &'a [u8],
}

impl Hello<'_> {
    /// The encoded message.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        // The only protocol version is 0. The newest known change is given as 0 too: `Dialer` itself compares the
        // server's data with what the session has already seen.
        let (version, newest_zxid, accepts_read_only) = (0, 0, false);
        writer.int(version).long(newest_zxid).int(self.timeout_millis);
        writer.long(self.session).bytes(self.password).bool(accepts_read_only);
        writer.finish()
    }
}

/// The server's answer to [`Hello`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) timeout_millis: i32,
    /// 0 if the session is over.
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

impl Welcome {
    pub(crate) fn read(message: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(message);
        let _version = reader.int()?;
        Some(Self {
            timeout_millis: reader.int()?,
            session: reader.long()?,
            password: reader.bytes()?.to_vec(),
        })
    }
}

/// The header of every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The number of the request, or a fixed xid.
    pub(crate) xid: i32,
    /// The newest change that the server has applied.
    pub(crate) zxid: i64,
    /// 0 if the request was applied.
    pub(crate) error: i32,
}

impl Header {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { xid: reader.int()?, zxid: reader.long()?, error: reader.int()? })
    }
}

/// An event of a watched node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    pub(crate) path: String,
}

/// The types of events.
const NODE_DELETED: i32 = 2;
const DATA_CHANGED: i32 = 3;
const CHILDREN_CHANGED: i32 = 4;

/// What happened to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Deleted,
    /// Its data or its children changed.
    Changed,
    /// Anything else: the node was created, or the event is not about a node.
    Other,
}

impl Event {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = match reader.int()? {
            NODE_DELETED => EventKind::Deleted,
            DATA_CHANGED | CHILDREN_CHANGED => EventKind::Changed,
            _ => EventKind::Other,
        };
        let _state = reader.int()?;
        Some(Self { kind, path: reader.text()? })
    }
}
