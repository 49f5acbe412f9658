//! What is modelled: how long things take, what may go wrong.

/// The smallest time there is, and what tokens count.
pub(crate) type Ticks = i8;

/// The nodes of a world.
pub(crate) const NODES: usize = 3;
/// How many of them decide.
pub(crate) const QUORUM: u32 = 2;
/// The most clients of a world.
pub(crate) const MOST_CLIENTS: usize = 3;

/// Some nodes, a bit for each.
pub(crate) type Nodes = u8;
/// All of them.
pub(crate) const ALL: Nodes = (1 << NODES) - 1;

/// Whether these are a majority.
pub(crate) fn decide(nodes: Nodes) -> bool {
    nodes.count_ones() >= QUORUM
}

/// The rules of one world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// So many clients make a claim each.
    pub(crate) clients: u8,
    /// How long a lock lasts on a node.
    pub(crate) ttl: Ticks,
    /// By how much earlier its client believes no more.
    pub(crate) margin: Ticks,
    /// By how much the clocks of nodes that decide together may differ.
    pub(crate) agree: Ticks,
    /// How long a node has no vote after it started.
    pub(crate) quarantine: Ticks,
    /// How long the world is looked at.
    pub(crate) horizon: Ticks,
    /// So many of the clients renew what they hold, and set again what is missing.
    pub(crate) renews: u8,
    /// Whether requests come that their client waits for no more.
    pub(crate) late: bool,
    /// Whether claims write tokens. If so, locks end on nodes at any moment, and exclusion is not looked at: tokens must hold whatever becomes
    /// of it. If not, a claim holds by a majority of locks: what a token takes longer, any step may take.
    pub(crate) tokens: bool,
    /// Worlds with larger tokens are not looked at.
    pub(crate) most_token: Ticks,
    /// Whether claims guess a token and write it with the lock.
    pub(crate) guesses: bool,
    /// How far clocks may step, each way that is named.
    pub(crate) steps: &'static [Ticks],
    /// What may go wrong.
    pub(crate) faults: Faults,
    /// What is wrong on purpose.
    pub(crate) bugs: &'static [Bug],
}

/// How often something may go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Faults {
    /// A lock ends on a node, where tokens are looked at.
    pub(crate) lapses: u8,
    /// The clock of a node gains a tick.
    pub(crate) drifts: u8,
    /// The clock of a node steps.
    pub(crate) steps: u8,
    /// A node restarts with all that it had.
    pub(crate) restarts: u8,
    /// A node restarts, or is emptied, and has nothing.
    pub(crate) forgets: u8,
    /// An answer is lost.
    pub(crate) losses: u8,
}

/// One mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A token is written wherever the lock is ours, whatever stands there.
    WriteAnyToken,
    /// The larger of two tokens stays, and that counts as written.
    KeepLargerToken,
    /// The token does not count from the clocks, only from the largest token that was seen.
    NoClockInToken,
    /// A node that has just started has a vote.
    NoQuarantine,
    /// The clocks of nodes that decide together may differ by any time.
    NoAgreement,
    /// The lease counts from the grant, not from before the first request.
    CountFromGrant,
    /// The holder believes as long as the nodes keep the lock by their own clocks.
    NoMargin,
    /// What was set again on a node that has no vote counts in the next renewal.
    CountRepaired,
    /// A release deletes the lock, whoever holds it.
    DeleteWithoutCompare,
    /// One node is enough.
    OneVote,
}

impl Rules {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bugs.contains(&bug)
    }

    /// When a lock ends that is set when the clock of the node says `clock`.
    pub(crate) fn until(&self, clock: Ticks) -> Ticks {
        if self.tokens { Ticks::MAX } else { clock + self.ttl }
    }

    pub(crate) fn is_enough(&self, nodes: Nodes) -> bool {
        decide(nodes) || self.has(Bug::OneVote) && nodes != 0
    }

    /// For how long a client believes that asked at some moment.
    pub(crate) fn belief(&self) -> Ticks {
        if self.has(Bug::NoMargin) { self.ttl } else { self.ttl - self.margin }
    }
}
