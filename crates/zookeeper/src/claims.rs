//! What this client knows of its claims: the claim table of core, with the nodes of each claim.

use std::sync::Arc;

use leasehold_core::{ClaimState, ClaimTable};

use crate::{
    sessions::{Session, SessionSlot},
    wire::Created,
};

/// All claims of a client.
pub(crate) type Claims = ClaimTable<Own, Blocker, OnSession>;
/// The state of a claim.
pub(crate) type State = ClaimState<Own, Blocker>;

/// Further data of a claim.
pub(crate) struct OnSession {
    pub(crate) slot: SessionSlot,
    /// A change for this claim was sent and not answered: the node that it may have created has to be looked for.
    pub(crate) unsettled: bool,
    /// The node was looked for and not found. It may still be created later.
    pub(crate) may_appear_late: bool,
}

impl OnSession {
    pub(crate) const fn new(slot: SessionSlot) -> Self {
        Self { slot, unsettled: false, may_appear_late: false }
    }

    /// The node of an unanswered change was looked for.
    pub(crate) fn searched(&mut self) {
        self.may_appear_late |= self.unsettled;
        self.unsettled = false;
    }
}

/// The nodes of a claim: the node of a lock or of a queue entry, or the nodes of its permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// The first node.
    pub(crate) path: String,
    /// The other nodes.
    more: Vec<String>,
    /// The change that created the first node: the token of the hold.
    pub(crate) czxid: i64,
}

impl Own {
    pub(crate) const fn one(path: String, czxid: i64) -> Self {
        Self { path, more: Vec::new(), czxid }
    }

    /// The nodes of permits; `None` if there are none.
    pub(crate) fn permits(mut paths: Vec<String>, czxid: i64) -> Option<Self> {
        let more = paths.split_off(paths.len().min(1));
        Some(Self { path: paths.pop()?, more, czxid })
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        std::iter::once(&self.path).chain(&self.more).cloned().collect()
    }

    /// The node that the server reports as created, after a request to append a number to `asked`. `None` if that path
    /// cannot be the result.
    pub(crate) fn made(asked: &str, Created { path, stat }: Created) -> Option<Self> {
        let number = path.strip_prefix(asked)?;
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then_some(Self::one(path, stat.czxid))
    }

    /// The name of its first node within its directory.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// What a claim in the queue waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// For the deletion of this node, with `ahead` waiters ahead of the claim. If the node is the `sole` one ahead, the
    /// claim then holds; otherwise it has to ask what else is ahead of it.
    Node { path: String, sole: bool, ahead: u32 },
    /// For free permits: the claim is the head of the queue.
    FreePermits { path: String },
    /// It has to ask.
    Unknown,
}

impl Blocker {
    /// The path that is watched for it.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Node { path, .. } | Self::FreePermits { path } => Some(path),
            Self::Unknown => None,
        }
    }

    pub(crate) fn ahead(&self) -> Option<u32> {
        match self {
            Self::Node { ahead, .. } => Some(*ahead),
            Self::FreePermits { .. } => Some(0),
            Self::Unknown => None,
        }
    }
}

/// Whether all claims of this session wait behind at least two nodes. Then no grant depends on the validity of the
/// session yet.
pub(crate) fn only_waits(claims: &Claims, session: &Arc<Session>) -> bool {
    let waits =
        |state: &State| matches!(state, State::Waiting { before: Blocker::Node { sole: false, .. }, .. });
    let on_it = claims.entries().filter(|(_, entry)| Arc::ptr_eq(entry.data.slot.session(), session));
    let mut states = on_it.map(|(_, entry)| &entry.state);
    states.next().is_some_and(waits) && states.all(waits)
}
