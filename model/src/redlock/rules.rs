//! The rules of the Redlock model: how long things take, and which faults may happen.

/// The smallest unit of time. It is also the unit of tokens.
pub(crate) type Ticks = i8;

/// The nodes of a world.
pub(crate) const NODES: usize = 3;
/// The size of a majority.
pub(crate) const QUORUM: u32 = 2;
/// The maximum number of clients of a world.
pub(crate) const MAX_CLIENTS: usize = 3;

/// A set of nodes, one bit for each.
pub(crate) type Nodes = u8;
/// All nodes.
pub(crate) const ALL_NODES: Nodes = (1 << NODES) - 1;

/// Whether these nodes are a majority.
pub(crate) fn is_majority(nodes: Nodes) -> bool {
    nodes.count_ones() >= QUORUM
}

/// The rules of one world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The number of clients; each makes one claim.
    pub(crate) clients: u8,
    /// How long a lock lasts on a node.
    pub(crate) ttl: Ticks,
    /// By how much a hold ends earlier for its client than its lock ends on the nodes.
    pub(crate) margin: Ticks,
    /// By how much the clocks of the nodes of a majority may differ if the majority is to decide.
    pub(crate) max_clock_difference: Ticks,
    /// For how long a node has no vote after it started.
    pub(crate) quarantine: Ticks,
    /// The time on the clients' clock at which the world ends.
    pub(crate) horizon: Ticks,
    /// The number of clients that renew their holds and set missing locks again.
    pub(crate) renews: u8,
    /// Whether a request may still arrive after its client has stopped waiting for the answer.
    pub(crate) late: bool,
    /// Whether claims write tokens. If so, a lock may end on a node at any time, and exclusion is not checked: tokens
    /// must grow even then. If not, a claim holds as soon as it has the locks of a majority. Writing a token would only
    /// take additional time, and any step may take any time anyway.
    pub(crate) tokens: bool,
    /// Worlds with larger tokens are not searched.
    pub(crate) max_token: Ticks,
    /// Whether claims guess a token and write it together with the lock.
    pub(crate) guesses: bool,
    /// The numbers of ticks by which a clock may step. A negative number sets the clock back.
    pub(crate) steps: &'static [Ticks],
    /// The faults that may happen.
    pub(crate) faults: Faults,
    /// Deliberate mistakes.
    pub(crate) bugs: &'static [Bug],
}

/// How often each fault may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A lock ends on a node, in runs that check tokens.
    pub(crate) lapses: u8,
    /// The clock of a node gains a tick.
    pub(crate) drifts: u8,
    /// The clock of a node steps.
    pub(crate) steps: u8,
    /// A node restarts with all its data.
    pub(crate) restarts: u8,
    /// A node restarts without data, or is emptied.
    pub(crate) forgets: u8,
    /// An answer is lost.
    pub(crate) losses: u8,
}

/// One mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A token is written on every node on which the client has the lock, even if the node has a larger token.
    WriteAnyToken,
    /// A node keeps the larger of two tokens, but reports that it has written the smaller one.
    KeepLargerToken,
    /// A token is computed only from the largest token that was seen, and not from the clocks.
    NoClockInToken,
    /// A node that has just started has a vote.
    NoQuarantine,
    /// The clocks of a majority that decides may differ by any time.
    NoAgreement,
    /// The lease counts from the grant. It should count from a time before the first request.
    CountFromGrant,
    /// A hold counts as valid until the nodes' own clocks end the lock.
    NoMargin,
    /// A lock that was set again on a node without a vote counts as a vote in the next renewal.
    CountRepaired,
    /// A release deletes the lock even if another claim holds it.
    DeleteWithoutCompare,
    /// One node counts as a majority.
    OneVote,
}

impl Rules {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// The time by the node's clock at which a lock expires that is set when this clock shows `clock`.
    pub(crate) fn expiry(&self, clock: Ticks) -> Ticks {
        if self.tokens { Ticks::MAX } else { clock + self.ttl }
    }

    /// Whether these nodes are enough for a decision, that is, a majority.
    pub(crate) fn is_enough(&self, nodes: Nodes) -> bool {
        is_majority(nodes) || self.has(Bug::OneVote) && nodes != 0
    }

    /// For how long a hold is valid, counted from the time at which its first request was sent.
    pub(crate) fn validity(&self) -> Ticks {
        if self.has(Bug::NoMargin) { self.ttl } else { self.ttl - self.margin }
    }
}
