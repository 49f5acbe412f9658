//! What this client knows of its claims: the table of core, with the nodes of each claim.

use std::sync::Arc;

use leasehold_core::{ClaimState, ClaimTable};

use crate::{
    sessions::{Session, SessionSlot},
    wire::Created,
};

/// All claims of a client.
pub(crate) type Claims = ClaimTable<Own, Blocker, OnSession>;
/// Where a claim stands.
pub(crate) type State = ClaimState<Own, Blocker>;

/// What is known of a claim besides.
pub(crate) struct OnSession {
    pub(crate) slot: SessionSlot,
    /// A change for this claim was sent and not answered: what it made is to be looked for.
    pub(crate) unsettled: bool,
    /// What it made was looked for and not found: it may come all the same.
    pub(crate) doubtful: bool,
}

impl OnSession {
    pub(crate) const fn new(slot: SessionSlot) -> Self {
        Self { slot, unsettled: false, doubtful: false }
    }

    /// What a change made that was not answered was looked for.
    pub(crate) fn looked_for(&mut self) {
        self.doubtful |= self.unsettled;
        self.unsettled = false;
    }
}

/// The nodes of a claim: one in line or of a lock, or those of its permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// The first one.
    pub(crate) path: String,
    /// The others.
    more: Vec<String>,
    /// The change that made the first one: the token of a lock.
    pub(crate) czxid: i64,
}

impl Own {
    pub(crate) const fn one(path: String, czxid: i64) -> Self {
        Self { path, more: Vec::new(), czxid }
    }

    /// Of permits; `None` for none.
    pub(crate) fn permits(mut paths: Vec<String>, czxid: i64) -> Option<Self> {
        let more = paths.split_off(paths.len().min(1));
        Some(Self { path: paths.pop()?, more, czxid })
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        std::iter::once(&self.path).chain(&self.more).cloned().collect()
    }

    /// What a server says that it made, asked to append a number to `asked`. `None` if that cannot be.
    pub(crate) fn made(asked: &str, Created { path, stat }: Created) -> Option<Self> {
        let number = path.strip_prefix(asked)?;
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then_some(Self::one(path, stat.czxid))
    }

    /// What it is called in its line.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

/// What a claim in line waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// That this node is deleted; then it holds if that was the only one, else it is to ask what else came before. So many stand in
    /// line before it.
    Node { path: String, sole: bool, ahead: u32 },
    /// That fewer permits are taken: it is the first in line.
    Room { path: String },
    /// It is to ask.
    Unknown,
}

impl Blocker {
    /// What is watched for it.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Node { path, .. } | Self::Room { path } => Some(path),
            Self::Unknown => None,
        }
    }

    pub(crate) fn ahead(&self) -> Option<u32> {
        match self {
            Self::Node { ahead, .. } => Some(*ahead),
            Self::Room { .. } => Some(0),
            Self::Unknown => None,
        }
    }
}

/// Whether all who are on this session stand in line, with others before them. Then there is nothing to believe in yet.
pub(crate) fn only_waits(claims: &Claims, session: &Arc<Session>) -> bool {
    let waits =
        |state: &State| matches!(state, State::Waiting { before: Blocker::Node { sole: false, .. }, .. });
    let on_it = claims.entries().filter(|(_, entry)| Arc::ptr_eq(entry.data.slot.session(), session));
    let mut states = on_it.map(|(_, entry)| &entry.state);
    states.next().is_some_and(waits) && states.all(waits)
}
