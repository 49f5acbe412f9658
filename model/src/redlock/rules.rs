//! The rules of the Redlock model: how long things take, and which faults may happen.

/// The smallest unit of time, and the unit of tokens.
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
    /// By how much the client's hold ends earlier than the lock on the nodes.
    pub(crate) margin: Ticks,
    /// By how much the clocks of a deciding majority may differ.
    pub(crate) max_clock_difference: Ticks,
    /// How long a node has no vote after it started.
    pub(crate) quarantine: Ticks,
    /// How long the world is simulated.
    pub(crate) horizon: Ticks,
    /// The number of clients that renew their hold and set a missing lock again.
    pub(crate) renews: u8,
    /// Whether requests arrive whose client has stopped waiting for them.
    pub(crate) late: bool,
    /// Whether claims write tokens. If so, locks end on nodes at any time, and exclusion is not checked: tokens must
    /// hold in any case. If not, a majority of locks makes a claim hold; writing a token takes additional time, but any
    /// step may take any time anyway.
    pub(crate) tokens: bool,
    /// Worlds with larger tokens are not searched.
    pub(crate) max_token: Ticks,
    /// Whether claims guess a token and write it with the lock.
    pub(crate) guesses: bool,
    /// The steps that a clock may make.
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
    /// A token is written on every node that the client has locked, over any token there.
    WriteAnyToken,
    /// The node keeps the larger of two tokens, and reports the smaller one as written.
    KeepLargerToken,
    /// A token does not count from the clocks, only from the largest token that was seen.
    NoClockInToken,
    /// A node that has just started has a vote.
    NoQuarantine,
    /// The clocks of a deciding majority may differ by any time.
    NoAgreement,
    /// The lease counts from the grant instead of from before the first request.
    CountFromGrant,
    /// The holder counts as holding as long as the nodes keep the lock by their own clocks.
    NoMargin,
    /// A lock that was set again on a node without a vote counts in the next renewal.
    CountRepaired,
    /// A release deletes the lock, whichever claim holds it.
    DeleteWithoutCompare,
    /// One node counts as a majority.
    OneVote,
}

impl Rules {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// When a lock expires that is set at the reading `clock` of the node's clock.
    pub(crate) fn expiry(&self, clock: Ticks) -> Ticks {
        if self.tokens { Ticks::MAX } else { clock + self.ttl }
    }

    /// Whether these nodes decide: a majority.
    pub(crate) fn is_enough(&self, nodes: Nodes) -> bool {
        is_majority(nodes) || self.has(Bug::OneVote) && nodes != 0
    }

    /// For how long a hold is valid, counted from the request.
    pub(crate) fn validity(&self) -> Ticks {
        if self.has(Bug::NoMargin) { self.ttl } else { self.ttl - self.margin }
    }
}
