//! The messages to and from a server: the part of ZooKeeper's protocol that locks need
//! (<https://github.com/apache/zookeeper/blob/release-3.8.0/zookeeper-jute/src/main/resources/zookeeper.jute>).

mod error_code;
mod jute;
mod multi;
mod ops;
mod session;

pub(crate) use error_code::ErrorCode;
pub(crate) use jute::{LENGTH_BYTES, Reader, Writer};
pub(crate) use multi::{CreateAll, Multi, MultiOp};
pub(crate) use ops::{
    ANY_VERSION, Acl, AddWatch, Auth, CREATOR, Close, Create, Created, Delete, EVERYBODY, Exists, GetAcl,
    GetChildren, GetData, NodeKind, Op, Ping, SetData, Stat, Sync, WatchExists,
};
pub(crate) use session::{Event, EventKind, Header, Hello, Welcome, XID_AUTH, XID_EVENT, XID_PING};
