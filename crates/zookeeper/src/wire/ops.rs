//! The requests.

use leasehold_core::LONGEST_REPLY;

use super::jute::{LENGTH_BYTES, Reader, Writer};

/// The version that stands for any version of the data.
pub(crate) const ANY_VERSION: i32 = -1;
/// The memory, in bytes, that the name of a child takes in addition to its characters.
const CHILD_OVERHEAD: usize = 64;

/// A request and its answer.
pub(crate) trait Op {
    /// The number of this kind of request.
    const CODE: i32;
    type Answer;

    /// Writes the request without its header.
    fn write(&self, writer: &mut Writer);

    /// Reads the answer without its header; `None` if it is unexpected.
    fn read(reader: &mut Reader<'_>) -> Option<Self::Answer>;
}

/// What the server stores of a node besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The change that created the node.
    pub(crate) czxid: i64,
    /// When the node was created, in milliseconds, by the clock of the leader at that time.
    pub(crate) ctime: i64,
    /// When its data was last changed, by the same clock.
    pub(crate) mtime: i64,
    /// How often its data was changed.
    pub(crate) version: i32,
    /// The session with which the node ends; 0 for none.
    pub(crate) ephemeral_owner: i64,
    /// The length of its data in bytes.
    pub(crate) length: i32,
}

impl Stat {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let czxid = reader.long()?;
        let _changed_by = reader.long()?;
        let ctime = reader.long()?;
        let mtime = reader.long()?;
        let version = reader.int()?;
        let (_children_version, _acl_version) = (reader.int()?, reader.int()?);
        let ephemeral_owner = reader.long()?;
        let length = reader.int()?;
        let _children = reader.int()?;
        let _children_changed_by = reader.long()?;
        Some(Self { czxid, ctime, mtime, version, ephemeral_owner, length })
    }
}

/// An entry of an access list: the rights of some users on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) rights: i32,
    pub(crate) scheme: String,
    pub(crate) id: String,
}

/// All five bits of the rights.
const ALL_RIGHTS: i32 = 31;
/// Everybody has all rights.
pub(crate) const EVERYBODY: (i32, &str, &str) = (ALL_RIGHTS, "world", "anyone");
/// The end of an id whose password is masked
/// (<https://issues.apache.org/jira/browse/ZOOKEEPER-1392>).
const MASKED: (&str, &str) = ("digest", ":x");
/// The creator has all rights.
pub(crate) const CREATOR: (i32, &str, &str) = (ALL_RIGHTS, "auth", "");

impl Acl {
    /// Whether the server shows this entry without its password.
    pub(crate) fn is_masked(&self) -> bool {
        self.scheme == MASKED.0 && self.id.ends_with(MASKED.1)
    }
}

impl From<(i32, &str, &str)> for Acl {
    fn from((rights, scheme, id): (i32, &str, &str)) -> Self {
        Self { rights, scheme: scheme.to_owned(), id: id.to_owned() }
    }
}

/// How long a node lasts, and how it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Persistent,
    /// Lasts as long as its session, and has the given name.
    Ephemeral,
    /// Lasts as long as its session. The server appends a number to the given name. These numbers grow in a directory.
    Sequential,
    /// Lasts until the server deletes it, some time after its last child was deleted.
    Container,
}

/// The code of a request that creates a container.
const CREATE_CONTAINER: i32 = 19;

impl NodeKind {
    /// The code of a request that creates a node of this kind.
    pub(super) const fn code(self) -> i32 {
        // A container has a request code of its own.
        if matches!(self, Self::Container) { CREATE_CONTAINER } else { Create::CODE }
    }

    /// The flags of the request: 1 ephemeral, 2 sequential, 4 container.
    const fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::Sequential => 3,
            Self::Container => 4,
        }
    }
}

/// Creates a node. A container can only be created as part of a [`Multi`](super::Multi), because it has another code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) path: String,
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Vec<Acl>,
    pub(crate) kind: NodeKind,
}

/// A created node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Created {
    pub(crate) path: String,
    pub(crate) stat: Stat,
}

impl Op for Create {
    const CODE: i32 = 15;
    type Answer = Created;

    fn write(&self, writer: &mut Writer) {
        writer.text(&self.path).bytes(&self.data).count(self.acl.len());
        for acl in &self.acl {
            writer.int(acl.rights).text(&acl.scheme).text(&acl.id);
        }
        writer.int(self.kind.flags());
    }

    fn read(reader: &mut Reader<'_>) -> Option<Created> {
        Some(Created { path: reader.text()?, stat: Stat::read(reader)? })
    }
}

/// Deletes a node if its data has this version, or [`ANY_VERSION`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delete {
    pub(crate) path: String,
    pub(crate) version: i32,
}

impl Op for Delete {
    const CODE: i32 = 2;
    type Answer = ();

    fn write(&self, writer: &mut Writer) {
        writer.text(&self.path).int(self.version);
    }

    fn read(_: &mut Reader<'_>) -> Option<()> {
        Some(())
    }
}

/// Reads the state of a node without its data.
#[derive(Debug)]
pub(crate) struct Exists<'a> {
    pub(crate) path: &'a str,
}

impl Op for Exists<'_> {
    const CODE: i32 = 3;
    type Answer = Stat;

    fn write(&self, writer: &mut Writer) {
        let watch = false;
        writer.text(self.path).bool(watch);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Stat> {
        Stat::read(reader)
    }
}

/// Reads the state of a node, and watches it: the server reports when the node is created, changed or deleted, also if
/// it does not exist yet.
#[derive(Debug)]
pub(crate) struct WatchExists<'a> {
    pub(crate) path: &'a str,
}

impl Op for WatchExists<'_> {
    const CODE: i32 = Exists::CODE;
    type Answer = Stat;

    fn write(&self, writer: &mut Writer) {
        let watch = true;
        writer.text(self.path).bool(watch);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Stat> {
        Stat::read(reader)
    }
}

/// Reads a node. With `watch`, the server reports when the node changes or is deleted.
#[derive(Debug)]
pub(crate) struct GetData<'a> {
    pub(crate) path: &'a str,
    pub(crate) watch: bool,
}

impl Op for GetData<'_> {
    const CODE: i32 = 4;
    type Answer = (Vec<u8>, Stat);

    fn write(&self, writer: &mut Writer) {
        writer.text(self.path).bool(self.watch);
    }

    fn read(reader: &mut Reader<'_>) -> Option<(Vec<u8>, Stat)> {
        Some((reader.bytes()?.to_vec(), Stat::read(reader)?))
    }
}

/// Changes the data of a node if its data has this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SetData {
    pub(crate) path: String,
    pub(crate) data: Vec<u8>,
    pub(crate) version: i32,
}

impl Op for SetData {
    const CODE: i32 = 5;
    type Answer = Stat;

    fn write(&self, writer: &mut Writer) {
        writer.text(&self.path).bytes(&self.data).int(self.version);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Stat> {
        Stat::read(reader)
    }
}

/// Reads the access list of a node. A login without the right to change the list gets it with masked passwords.
#[derive(Debug)]
pub(crate) struct GetAcl<'a> {
    pub(crate) path: &'a str,
}

impl Op for GetAcl<'_> {
    const CODE: i32 = 6;
    type Answer = Vec<Acl>;

    fn write(&self, writer: &mut Writer) {
        writer.text(self.path);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Vec<Acl>> {
        let count = usize::try_from(reader.int()?).unwrap_or(0);
        // Each entry has at least its rights and the lengths of two texts.
        if count > reader.rest().len() / (3 * LENGTH_BYTES) {
            return None;
        }
        (0..count)
            .map(|_| Some(Acl { rights: reader.int()?, scheme: reader.text()?, id: reader.text()? }))
            .collect()
    }
}

/// Lists the children of a node. With `watch`, the server reports when they change or the node is deleted.
#[derive(Debug)]
pub(crate) struct GetChildren<'a> {
    pub(crate) path: &'a str,
    pub(crate) watch: bool,
}

impl Op for GetChildren<'_> {
    const CODE: i32 = 8;
    type Answer = Vec<String>;

    fn write(&self, writer: &mut Writer) {
        writer.text(self.path).bool(self.watch);
    }

    fn read(reader: &mut Reader<'_>) -> Option<Vec<String>> {
        let count = usize::try_from(reader.int()?).unwrap_or(0);
        // In the answer, each name takes at least the bytes of its length; in memory it takes more than that.
        let room = LONGEST_REPLY.checked_sub(reader.rest().len())?;
        if count > reader.rest().len() / LENGTH_BYTES || count > room / CHILD_OVERHEAD {
            return None;
        }
        (0..count).map(|_| reader.text()).collect()
    }
}

/// Brings the server of this connection up to date with its leader at the time of the request.
#[derive(Debug)]
pub(crate) struct Sync<'a> {
    pub(crate) path: &'a str,
}

impl Op for Sync<'_> {
    const CODE: i32 = 9;
    type Answer = ();

    fn write(&self, writer: &mut Writer) {
        writer.text(self.path);
    }

    fn read(_: &mut Reader<'_>) -> Option<()> {
        Some(())
    }
}

/// Watches a node and all below it, until the session ends or the connection breaks. The node need not exist.
#[derive(Debug)]
pub(crate) struct AddWatch<'a> {
    pub(crate) path: &'a str,
}

impl Op for AddWatch<'_> {
    const CODE: i32 = 106;
    type Answer = ();

    fn write(&self, writer: &mut Writer) {
        let persistent_recursive = 1;
        writer.text(self.path).int(persistent_recursive);
    }

    fn read(_: &mut Reader<'_>) -> Option<()> {
        Some(())
    }
}

/// Logs in.
pub(crate) struct Auth<'a> {
    pub(crate) scheme: &'a str,
    pub(crate) secret: &'a str,
}

impl Op for Auth<'_> {
    const CODE: i32 = 100;
    type Answer = ();

    fn write(&self, writer: &mut Writer) {
        let auth_type = 0;
        writer.int(auth_type).text(self.scheme).text(self.secret);
    }

    fn read(_: &mut Reader<'_>) -> Option<()> {
        Some(())
    }
}

/// The ping, which keeps the session alive at the server of this connection.
#[derive(Debug)]
pub(crate) struct Ping;

impl Op for Ping {
    const CODE: i32 = 11;
    type Answer = ();

    fn write(&self, _: &mut Writer) {}

    fn read(_: &mut Reader<'_>) -> Option<()> {
        Some(())
    }
}

/// Ends the session and deletes all its nodes.
#[derive(Debug)]
pub(crate) struct Close;

impl Op for Close {
    const CODE: i32 = -11;
    type Answer = ();

    fn write(&self, _: &mut Writer) {}

    fn read(_: &mut Reader<'_>) -> Option<()> {
        Some(())
    }
}
