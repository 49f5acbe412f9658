//! One client of the Redlock model, and its claim.

use super::rules::{NODES, Nodes, Ticks};

/// The stage of a client's claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// The client has not claimed yet.
    Idle,
    /// The client sets the lock on the nodes, and then writes a token to them.
    Claiming(Attempt),
    /// The claim of the client was granted.
    Holding(Hold),
    /// The claim of the client is over.
    Done,
}

/// The state of a claim that is not granted yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    /// When the first request of the claim was sent.
    pub(crate) sent: Ticks,
    /// The largest token that was granted before the claim began.
    pub(crate) newest_before: Ticks,
    /// The nodes on which the claim has the lock.
    pub(crate) votes: Nodes,
    /// For each node of `votes`: by how much its clock was ahead of the clients' clock when the node set the lock.
    pub(crate) clock_lead: [Ticks; NODES],
    /// The largest token in the answers of the nodes.
    pub(crate) largest_token_seen: Ticks,
    /// The token that the claim writes. 0: the claim has no token yet.
    pub(crate) token: Ticks,
    /// The nodes that have written `token`.
    pub(crate) written: Nodes,
}

/// The state of a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    /// Until when the hold is valid.
    pub(crate) valid_until: Ticks,
    /// The renewal in flight.
    pub(crate) renewal: Option<Renewal>,
}

/// The state of a renewal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Renewal {
    /// When the first request of the renewal was sent.
    pub(crate) sent: Ticks,
    /// The nodes that have renewed the lock.
    pub(crate) renewed: Nodes,
    /// The nodes that answered that they have no lock of the name.
    pub(crate) missing: Nodes,
}

/// A client: its stage, and its requests in flight to the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) stage: Stage,
    /// The nodes to which a lock request is in flight.
    pub(crate) locks: Nodes,
    /// The guessed token in the lock requests. 0: there is none.
    pub(crate) guess: Ticks,
    /// The nodes to which a token write is in flight.
    pub(crate) writes: Nodes,
    /// The token in the token writes that are in flight.
    pub(crate) token: Ticks,
    /// The nodes to which a renewal is in flight.
    pub(crate) renewals: Nodes,
}

impl Client {
    pub(crate) const fn new() -> Self {
        Self { stage: Stage::Idle, locks: 0, guess: 0, writes: 0, token: 0, renewals: 0 }
    }

    /// Whether the client holds the name and can rely on its hold at `now`.
    pub(crate) fn is_valid(&self, now: Ticks) -> bool {
        matches!(&self.stage, Stage::Holding(hold) if now < hold.valid_until)
    }
}

/// The set of nodes after the nodes are put into another order: `order[to]` is the old index of the node with the new
/// index `to`.
fn reordered(nodes: Nodes, order: [usize; NODES]) -> Nodes {
    (0..NODES).fold(0, |set, to| set | (nodes >> order[to] & 1) << to)
}

impl Client {
    /// All state that belongs to one node, as a key for comparisons, including the requests in flight to the node.
    pub(crate) fn sort_key(&self, index: usize) -> [Ticks; 8] {
        let bit = |nodes: Nodes| (nodes >> index & 1) as Ticks;
        let [votes, clock_lead, written, renewed, missing] = match &self.stage {
            Stage::Claiming(attempt) => {
                [bit(attempt.votes), attempt.clock_lead[index], bit(attempt.written), 0, 0]
            }
            Stage::Holding(Hold { renewal: Some(renewal), .. }) => {
                [0, 0, 0, bit(renewal.renewed), bit(renewal.missing)]
            }
            _ => [0; 5],
        };
        [votes, clock_lead, written, renewed, missing, bit(self.locks), bit(self.writes), bit(self.renewals)]
    }

    /// Puts everything that belongs to nodes into another order of the nodes.
    pub(crate) fn reorder(&mut self, order: [usize; NODES]) {
        for nodes in [&mut self.locks, &mut self.writes, &mut self.renewals] {
            *nodes = reordered(*nodes, order);
        }
        match &mut self.stage {
            Stage::Claiming(attempt) => {
                (attempt.votes, attempt.written) =
                    (reordered(attempt.votes, order), reordered(attempt.written, order));
                attempt.clock_lead = order.map(|index| attempt.clock_lead[index]);
            }
            Stage::Holding(Hold { renewal: Some(renewal), .. }) => {
                (renewal.renewed, renewal.missing) =
                    (reordered(renewal.renewed, order), reordered(renewal.missing, order));
            }
            _ => {}
        }
    }
}

impl Attempt {
    /// The largest subset of these nodes whose clocks differ by at most `max_clock_difference`.
    pub(crate) fn agreed(&self, nodes: Nodes, max_clock_difference: Ticks) -> Nodes {
        let agreeing_with = |lowest: usize| {
            let agrees = |node: &usize| {
                let difference = self.clock_lead[*node] - self.clock_lead[lowest];
                nodes & 1 << *node != 0 && (0..=max_clock_difference).contains(&difference)
            };
            (0..NODES).filter(agrees).fold(0, |set, node| set | 1 << node)
        };
        let sets = (0..NODES).filter(|node| nodes & 1 << node != 0).map(agreeing_with);
        sets.max_by_key(|set: &Nodes| set.count_ones()).unwrap_or(0)
    }
}
