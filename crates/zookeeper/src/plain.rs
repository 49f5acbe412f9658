//! The layout of programs written by hand after the recipe in ZooKeeper's documentation
//! (<https://zookeeper.apache.org/doc/r3.8.0/recipes.html#sc_recipes_Locks>): every claim has a node `lock-<number>`.
//! Such programs sort the nodes by the whole name, so a node with a claim id in its name cannot be in their queue. In
//! this layout the data of a node contains the claim id.
//!
//! Such programs also create their directory once, and fail if it is missing later. So in this layout a new directory
//! is persistent. And they wait for the node ahead of theirs, whatever it is, so only exclusive claims are possible.
//!
//! Here is also what concerns such programs in every layout: a node of theirs that is persistent by mistake.

use futures_util::future::join_all;
use leasehold_core::{Claim, ClaimId, EngineError, Fault, Hint, Mode, Name};

use crate::{
    claim::ClaimContext,
    client::Client,
    config::Layout,
    conn::Conn,
    error::Failed,
    inspect::read_node,
    keys::{self, Dir, Node},
    wire::{Acl, Create, Delete, ErrorCode, Exists, GetAcl, GetData, MultiOp, NodeKind, Stat},
};

/// The number of nodes that are read at the same time.
const BATCH: usize = 64;
/// The obstacle of claims that wait for a node which does not end with its session.
pub(crate) const PERSISTENT_NODE: &str = "the node of its holder is persistent and outlives its program: if the \
    program has ended, delete the node by leasehold break --force";

impl Client {
    pub(crate) fn is_plain(&self) -> bool {
        self.config.layout == Layout::Plain
    }

    /// The directory of a name.
    pub(crate) fn dir(&self, name: &Name) -> Dir {
        match self.config.only_name() {
            Some(_) => Dir::at(&self.config.chroot, self.config.base_path()),
            None => Dir::of(&self.config.chroot, self.config.base_path(), name),
        }
    }

    /// The error if this name has no directory: with `path=`, one directory is the lock, and has one name.
    pub(crate) fn check_name(&self, name: &Name) -> Result<(), EngineError> {
        match self.config.only_name() {
            Some(only_name) if only_name != name.as_str() => {
                let why = format!(
                    "the directory of path= is one lock, whose name is {only_name:?}: use this name, or prefix= for \
                     other names"
                );
                Err(EngineError::new(Fault::Misconfigured, why))
            }
            _ => Ok(()),
        }
    }

    /// The error if this layout has no such claim.
    pub(crate) fn check_claim(&self, claim: &Claim) -> Result<(), EngineError> {
        let exclusive_only = match self.config.layout {
            Layout::Plain => Some("plain"),
            Layout::Latch => Some("latch"),
            Layout::Mutex | Layout::ReadWrite => None,
        };
        if let Some(layout) = exclusive_only.filter(|_| claim.mode != Mode::Exclusive) {
            let why = format!(
                "layout={layout} has exclusive locks only, and cannot grant {}: its programs do not know other kinds",
                claim.mode
            );
            return Err(EngineError::new(Fault::Misconfigured, why));
        }
        self.check_name(&claim.name)
    }

    /// The kind of the directory of a name, if it does not exist yet. A directory that exists is not changed.
    pub(crate) fn dir_kind(&self) -> NodeKind {
        if self.is_plain() { NodeKind::Persistent } else { NodeKind::Container }
    }

    /// The nodes among these whose data names the claim. This search reads each node, so it is only for claims with an
    /// unanswered request.
    pub(crate) async fn with_claim_in_data(
        &self,
        conn: &Conn,
        directory: &str,
        mut names: Vec<String>,
        id: ClaimId,
    ) -> Result<Vec<String>, Failed> {
        names.retain(|name| keys::is_plain(name));
        let mut found = Vec::new();
        for names in names.chunks(BATCH) {
            for stored in join_all(names.iter().map(|name| read_node(conn, directory, name))).await {
                found.extend(stored?.filter(|stored| stored.claim() == Some(id)));
            }
        }
        Ok(found.into_iter().map(|stored| stored.name().to_owned()).collect())
    }

    /// Starts the counter of a directory without claims again, in one step, so that no program finds the directory
    /// missing, and with the same data and access list. False if another client changed the directory at the same time.
    pub(crate) async fn restart_counter(
        &self,
        context: &ClaimContext,
        other_nodes: &[String],
    ) -> Result<bool, Failed> {
        if let Some(node) = other_nodes.first() {
            let why = format!(
                "the counter of its directory is nearly used up, and starts again only without the node {node:?}, \
                 which is no claim: move that node to another directory"
            );
            return Err(EngineError::new(Fault::Refused, why).into());
        }
        let path = context.dir.path();
        // The base path is never created again, because the lineage of all tokens is made from its creation.
        if path != self.base_path()
            && let Some(steps) = self.replacement_of(context, path).await?
        {
            match self.apply_changes(&context.session, &context.conn, steps).await? {
                Ok(()) => return Ok(true),
                Err((_, ErrorCode::NO_NODE | ErrorCode::NOT_EMPTY | ErrorCode::BAD_VERSION)) => {
                    return Ok(false);
                }
                Err((_, ErrorCode::NO_AUTH | ErrorCode::INVALID_ACL)) => {}
                Err((_, code)) => return Err(Failed::Refused(code)),
            }
        }
        let why = "the counter of its directory is nearly used up: stop all programs of this lock, delete the \
            directory, and start them again";
        Err(EngineError::new(Fault::Refused, why).into())
    }

    /// The changes that delete a directory and create it again with the same data and access list; `None` if this login
    /// has no right to read these.
    async fn replacement_of(
        &self,
        context: &ClaimContext,
        path: &str,
    ) -> Result<Option<Vec<MultiOp>>, Failed> {
        let (contents, access_list) =
            (context.conn.send(&GetData { path, watch: false }), context.conn.send(&GetAcl { path }));
        let (data, stat, acl) = match (contents.answer().await, access_list.answer().await) {
            (Err(failed), _) | (_, Err(failed)) if failed.is(ErrorCode::NO_AUTH) => return Ok(None),
            (contents, access_list) => {
                let (data, stat) = contents?;
                (data, stat, access_list?)
            }
        };
        if acl.iter().any(Acl::is_masked) {
            return Ok(None);
        }
        let path = path.to_owned();
        Ok(Some(vec![
            MultiOp::Delete(Delete { path: path.clone(), version: stat.version }),
            MultiOp::Create(Create { path, data, acl, kind: NodeKind::Persistent }),
        ]))
    }

    /// The path of the first node of a queue, if this node can block the name forever: see [`can_block_forever`].
    pub(crate) async fn persistent_node(
        &self,
        context: &ClaimContext,
        queue: &str,
        first: Option<&Node>,
    ) -> Result<Option<String>, Failed> {
        let Some(first) = first.filter(|node| !node.is_known) else { return Ok(None) };
        let path = format!("{queue}/{}", first.name);
        let is_persistent = is_persistent(context.conn.send(&Exists { path: &path }).answer().await)?;
        Ok(is_persistent.then_some(path))
    }
}

/// Whether the node with this answer to `Exists` does not end with a session.
pub(crate) fn is_persistent(exists: Result<Stat, Failed>) -> Result<bool, Failed> {
    match exists {
        Ok(stat) => Ok(stat.ephemeral_owner == 0),
        // The node is gone, or this login has no right to read it.
        Err(Failed::Refused(ErrorCode::NO_NODE | ErrorCode::NO_AUTH)) => Ok(false),
        Err(failed) => Err(failed),
    }
}

/// Whether the node at this path, with this state, can block the name forever: it is a node of an unknown program and
/// does not end with a session.
pub(crate) fn can_block_forever(path: &str, stat: &Stat) -> bool {
    let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
    stat.ephemeral_owner == 0 && Node::read(name).is_some_and(|node| !node.is_known)
}

/// The hint of a claim that waits for such a node, or is refused because of it.
pub(crate) fn hint(is_endless: bool) -> Hint {
    Hint { obstacle: is_endless.then_some(PERSISTENT_NODE), ..Hint::default() }
}
