//! One client and its claim.

use super::rules::{NODES, Nodes, Ticks};

/// What a client does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// Nothing yet.
    Idle,
    /// It locks the nodes, and then writes a token there.
    Asks(Round),
    /// It was granted.
    Holds(Hold),
    /// It is over.
    Done,
}

/// What it knows of its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    /// When the first request left.
    pub(crate) sent: Ticks,
    /// Which nodes it has locked, and what the clock of each said.
    pub(crate) votes: Nodes,
    pub(crate) clocks: [Ticks; NODES],
    /// The largest token that it was told of.
    pub(crate) seen: Ticks,
    /// The token that it writes, and where that is done; 0 before there is one.
    pub(crate) token: Ticks,
    pub(crate) written: Nodes,
}

/// What it knows of its hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    /// Until when it believes.
    pub(crate) until: Ticks,
    /// When its renewal left, who has kept the lock since, and who has none.
    pub(crate) renewal: Option<(Ticks, Nodes, Nodes)>,
}

/// A client: what it does, and what of it is under way to which nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) stage: Stage,
    pub(crate) locks: Nodes,
    pub(crate) guess: Ticks,
    pub(crate) writes: Nodes,
    pub(crate) token: Ticks,
    pub(crate) renewals: Nodes,
    pub(crate) repairs: Nodes,
    pub(crate) releases: Nodes,
}

impl Client {
    pub(crate) const fn new() -> Self {
        Self {
            stage: Stage::Idle,
            locks: 0,
            guess: 0,
            writes: 0,
            token: 0,
            renewals: 0,
            repairs: 0,
            releases: 0,
        }
    }

    pub(crate) fn believes(&self, now: Ticks) -> bool {
        matches!(&self.stage, Stage::Holds(hold) if now < hold.until)
    }
}

impl Round {
    /// The largest of these nodes' sets that agree on the time.
    pub(crate) fn agreed(&self, nodes: Nodes, agree: Ticks) -> Nodes {
        let with = |lowest: usize| {
            let fits = |node: &usize| {
                let ahead = self.clocks[*node] - self.clocks[lowest];
                nodes & 1 << *node != 0 && (0..=agree).contains(&ahead)
            };
            (0..NODES).filter(fits).fold(0, |set, node| set | 1 << node)
        };
        let sets = (0..NODES).filter(|node| nodes & 1 << node != 0).map(with);
        sets.max_by_key(|set: &Nodes| set.count_ones()).unwrap_or(0)
    }
}
