//! One client of the Redlock model, and its claim.

use super::rules::{NODES, Nodes, Ticks};

/// The stage of a client's claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// It has not claimed yet.
    Idle,
    /// It locks the nodes, and then writes a token to them.
    Asks(Round),
    /// Its claim was granted.
    Holds(Hold),
    /// Its claim is over.
    Done,
}

/// The state of a claim that is not granted yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Round {
    /// When the first request was sent.
    pub(crate) sent: Ticks,
    /// The newest token that was granted before the claim.
    pub(crate) floor: Ticks,
    /// The nodes that the claim has locked.
    pub(crate) votes: Nodes,
    /// How far the clock of each locked node was ahead when it was locked.
    pub(crate) ahead: [Ticks; NODES],
    /// The largest token in the answers.
    pub(crate) seen: Ticks,
    /// The token that the claim writes; 0 before there is one.
    pub(crate) token: Ticks,
    /// The nodes that have written this token.
    pub(crate) written: Nodes,
}

/// The state of a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    /// Until when the hold is valid.
    pub(crate) until: Ticks,
    /// The renewal in flight: when it was sent, which nodes have renewed the lock, and which nodes have no lock.
    pub(crate) renewal: Option<(Ticks, Nodes, Nodes)>,
}

/// A client: its stage, and its requests in flight to the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) stage: Stage,
    /// The nodes to which a lock request is in flight.
    pub(crate) locks: Nodes,
    /// The token in these lock requests; 0: none.
    pub(crate) guess: Ticks,
    /// The nodes to which a token write is in flight.
    pub(crate) writes: Nodes,
    pub(crate) token: Ticks,
    /// The nodes to which a renewal is in flight.
    pub(crate) renewals: Nodes,
}

impl Client {
    pub(crate) const fn new() -> Self {
        Self { stage: Stage::Idle, locks: 0, guess: 0, writes: 0, token: 0, renewals: 0 }
    }

    pub(crate) fn is_valid(&self, now: Ticks) -> bool {
        matches!(&self.stage, Stage::Holds(hold) if now < hold.until)
    }
}

/// Reorders a set of nodes.
fn moved(nodes: Nodes, order: [usize; NODES]) -> Nodes {
    (0..NODES).fold(0, |all, to| all | (nodes >> order[to] & 1) << to)
}

impl Client {
    /// Everything about one node as a comparable key, including the requests in flight to the node.
    pub(crate) fn about(&self, at: usize) -> [Ticks; 8] {
        let bit = |nodes: Nodes| (nodes >> at & 1) as Ticks;
        let [votes, ahead, written, has, lacks] = match &self.stage {
            Stage::Asks(round) => [bit(round.votes), round.ahead[at], bit(round.written), 0, 0],
            Stage::Holds(Hold { renewal: Some((_, has, lacks)), .. }) => [0, 0, 0, bit(*has), bit(*lacks)],
            _ => [0; 5],
        };
        [votes, ahead, written, has, lacks, bit(self.locks), bit(self.writes), bit(self.renewals)]
    }

    /// Reorders everything that belongs to nodes.
    pub(crate) fn reorder(&mut self, order: [usize; NODES]) {
        for nodes in [&mut self.locks, &mut self.writes, &mut self.renewals] {
            *nodes = moved(*nodes, order);
        }
        match &mut self.stage {
            Stage::Asks(round) => {
                (round.votes, round.written) = (moved(round.votes, order), moved(round.written, order));
                round.ahead = order.map(|at| round.ahead[at]);
            }
            Stage::Holds(Hold { renewal: Some((_, has, lacks)), .. }) => {
                (*has, *lacks) = (moved(*has, order), moved(*lacks, order));
            }
            _ => {}
        }
    }
}

impl Round {
    /// The largest subset of these nodes whose clocks agree.
    pub(crate) fn agreed(&self, nodes: Nodes, agree: Ticks) -> Nodes {
        let with = |lowest: usize| {
            let fits = |node: &usize| {
                let by = self.ahead[*node] - self.ahead[lowest];
                nodes & 1 << *node != 0 && (0..=agree).contains(&by)
            };
            (0..NODES).filter(fits).fold(0, |set, node| set | 1 << node)
        };
        let sets = (0..NODES).filter(|node| nodes & 1 << node != 0).map(with);
        sets.max_by_key(|set: &Nodes| set.count_ones()).unwrap_or(0)
    }
}
