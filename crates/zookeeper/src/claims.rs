//! What this client knows of its claims: the claim table of core, with the nodes of each claim.

use std::sync::Arc;

use leasehold_core::{ClaimEntry, ClaimState, ClaimTable};

use crate::{
    sessions::{Session, SessionSlot},
    wire::{Created, Stat},
};

/// All claims of a client.
pub(crate) type Claims = ClaimTable<OwnNodes, Blocker, ClaimSession>;
/// The entry of a claim in the claim table.
pub(crate) type Entry = ClaimEntry<OwnNodes, Blocker, ClaimSession>;
/// The state of a claim.
pub(crate) type State = ClaimState<OwnNodes, Blocker>;

/// The session of a claim, and which of its requests may still create nodes.
pub(crate) struct ClaimSession {
    /// The place of this claim on its session.
    pub(crate) session_slot: SessionSlot,
    /// A change for this claim was sent and not answered: the client has to search for the node that the change may
    /// have created.
    pub(crate) unsettled: bool,
    /// The client searched for the node of an unanswered change and did not find one. The server can still apply the
    /// change, and create the node, later.
    pub(crate) may_appear_late: bool,
    /// The node of the claim was possibly deleted since the client last read it. In the plain layout, another program's
    /// node can have its name by now.
    pub(crate) node_may_be_gone: bool,
    /// A request that writes a memo and ends the hold was sent, and is not known to have failed. If the node is gone,
    /// that is no loss.
    pub(crate) may_have_ended: bool,
    /// The claim has looked at ended memos of others.
    pub(crate) has_swept: bool,
}

impl ClaimSession {
    pub(crate) const fn new(session_slot: SessionSlot) -> Self {
        Self {
            session_slot,
            unsettled: false,
            may_appear_late: false,
            node_may_be_gone: false,
            may_have_ended: false,
            has_swept: false,
        }
    }

    /// Records that the client has searched for the node of an unanswered change.
    pub(crate) fn search_done(&mut self) {
        self.may_appear_late |= self.unsettled;
        self.unsettled = false;
    }
}

/// The nodes of a claim: the node of a lock or of a queue entry, or the nodes of its permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnNodes {
    /// The first node.
    pub(crate) path: String,
    /// The other nodes.
    other_paths: Vec<String>,
    /// The change that created the first node. The tokens of the hold are computed from it.
    pub(crate) czxid: i64,
}

impl OwnNodes {
    pub(crate) const fn single(path: String, czxid: i64) -> Self {
        Self { path, other_paths: Vec::new(), czxid }
    }

    /// The nodes of permits; `None` if there are none.
    pub(crate) fn permits(mut paths: Vec<String>, czxid: i64) -> Option<Self> {
        let other_paths = paths.split_off(paths.len().min(1));
        Some(Self { path: paths.pop()?, other_paths, czxid })
    }

    /// The paths of all nodes.
    pub(crate) fn paths(&self) -> Vec<String> {
        std::iter::once(&self.path).chain(&self.other_paths).cloned().collect()
    }

    /// Whether this is the state of the first node. Another node can have the same path: if a directory is deleted and
    /// created again, its counter starts again.
    pub(crate) const fn is_first_node(&self, stat: &Stat) -> bool {
        stat.czxid == self.czxid
    }

    /// The node that the server reports as created, after a request to append a number to the path `requested`. `None`
    /// if the reported path cannot be the result of that request.
    pub(crate) fn created(requested: &str, Created { path, stat }: Created) -> Option<Self> {
        let suffix = path.strip_prefix(requested)?;
        let digits = suffix.strip_prefix('-').unwrap_or(suffix);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then_some(Self::single(path, stat.czxid))
    }

    /// The name of the first node within its directory.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// What a claim in the queue waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// Waits for the deletion of this node, with `ahead` waiters ahead of the claim. If the node is the `sole` one
    /// ahead, the claim holds after the deletion; otherwise the client asks after the deletion what else is ahead. If
    /// the first node of the queue is `persistent`, which is its path, the wait is possibly endless.
    Node { path: String, sole: bool, ahead: u32, persistent: Option<String> },
    /// Waits for free permits, as the head of the queue. `path` is the directory of the permits that are held.
    FreePermits { path: String },
    /// Not known: the client has to ask.
    Unknown,
}

impl Blocker {
    /// The path that the client watches while the claim waits.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Node { path, .. } | Self::FreePermits { path } => Some(path),
            Self::Unknown => None,
        }
    }

    /// Whether the first node of the queue possibly stays forever.
    pub(crate) const fn is_endless(&self) -> bool {
        matches!(self, Self::Node { persistent: Some(_), .. })
    }

    /// The number of waiters ahead, if known.
    pub(crate) fn ahead(&self) -> Option<u32> {
        match self {
            Self::Node { ahead, .. } => Some(*ahead),
            Self::FreePermits { .. } => Some(0),
            Self::Unknown => None,
        }
    }
}

/// Whether this session has claims, and the deletion of a single node grants none of them. If so, all of them wait, and
/// no grant depends on the validity of the session yet.
pub(crate) fn only_waits(claims: &Claims, session: &Arc<Session>) -> bool {
    let waits =
        |state: &State| matches!(state, State::Waiting { blocker: Blocker::Node { sole: false, .. }, .. });
    let of_session =
        claims.entries().filter(|(_, entry)| Arc::ptr_eq(entry.data.session_slot.session(), session));
    let mut states = of_session.map(|(_, entry)| &entry.state);
    states.next().is_some_and(waits) && states.all(waits)
}

/// Whether a session has any claims.
pub(crate) fn has_claims(claims: &Claims, session: &Arc<Session>) -> bool {
    claims.entries().any(|(_, entry)| Arc::ptr_eq(entry.data.session_slot.session(), session))
}
