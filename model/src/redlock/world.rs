//! A world: nodes, clients, requests in flight, and the judge's memory.

use std::fmt;

use super::{
    client::{Attempt, Client, Hold, Renewal, Stage},
    node::Node,
    rules::{ALL_NODES, Bug, Faults, MAX_CLIENTS, NODES, Nodes, Rules, Ticks},
};

/// What every clock shows at first, so that tokens begin at 1.
const BEGIN: Ticks = 1;

/// One world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The time that the clients' clock shows. This clock is right.
    pub(crate) now: Ticks,
    pub(crate) nodes: [Node; NODES],
    pub(crate) clients: [Client; MAX_CLIENTS],
    pub(crate) faults: Faults,
    /// The largest token that was granted.
    pub(crate) newest: Ticks,
    /// The number of grants.
    pub(crate) grants: u8,
    /// All tokens that were granted. Each token is one bit.
    pub(crate) granted: u64,
    /// Whether a token was granted twice, or a token was granted that is not larger than all tokens granted before its
    /// claim began.
    pub(crate) token_went_back: bool,
}

impl World {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            now: BEGIN,
            nodes: std::array::from_fn(|_| Node::new(BEGIN)),
            clients: std::array::from_fn(|_| Client::new()),
            faults: rules.faults,
            newest: 0,
            grants: 0,
            granted: 0,
            token_went_back: false,
        }
    }

    /// Begins the claim of a client. `guess` is the guessed token, or 0.
    pub(crate) fn claim(&mut self, id: u8, guess: Ticks) {
        let client = &mut self.clients[usize::from(id)];
        client.stage = Stage::Claiming(Attempt {
            sent: self.now,
            token: guess,
            newest_before: self.newest,
            ..Attempt::default()
        });
        (client.locks, client.guess) = (ALL_NODES, guess);
    }

    /// A node serves a lock request; the client receives the answer if `received`.
    pub(crate) fn serve_lock(&mut self, id: u8, index: usize, received: bool, rules: &Rules) {
        let (node, client) = (&mut self.nodes[index], &mut self.clients[usize::from(id)]);
        client.locks &= !(1 << index);
        let (before, guess) = (node.token, client.guess);
        let locked = node.lock(id, rules);
        let written = locked && guess > 0 && node.write(id, guess, rules);
        if let (Stage::Claiming(attempt), true, true) = (&mut client.stage, locked, received) {
            attempt.votes |= 1 << index;
            attempt.clock_lead[index] = node.clock - self.now;
            attempt.largest_token_seen = attempt.largest_token_seen.max(if written { guess } else { before });
            // If the guessed token is smaller than the clock of the node that wrote it, the write does not count.
            let behind = node.clock > guess && !rules.has(Bug::NoClockInToken);
            if written && !behind && attempt.token == guess {
                attempt.written |= 1 << index;
            }
        }
    }

    /// The token that a client would write next, if it has the lock on enough nodes.
    pub(crate) fn next_token(&self, id: u8, rules: &Rules) -> Option<Ticks> {
        let client = &self.clients[usize::from(id)];
        let Stage::Claiming(attempt) = &client.stage else { return None };
        if !rules.tokens {
            return None;
        }
        let agreed = Self::agreed(attempt, attempt.votes, rules);
        let clock_lead =
            (0..NODES).filter(|node| agreed & 1 << node != 0).map(|node| attempt.clock_lead[node]);
        let clock = if rules.has(Bug::NoClockInToken) { 0 } else { self.now + clock_lead.max()? };
        let next = clock.max(attempt.largest_token_seen + 1);
        (rules.is_enough(agreed) && !rules.is_enough(attempt.written) && next > attempt.token).then_some(next)
    }

    /// The largest subset of these nodes whose clocks differ by no more than the rules allow.
    fn agreed(attempt: &Attempt, nodes: Nodes, rules: &Rules) -> Nodes {
        if rules.has(Bug::NoAgreement) { nodes } else { attempt.agreed(nodes, rules.max_clock_difference) }
    }

    /// Begins to write a token to the nodes on which the client has the lock.
    pub(crate) fn write(&mut self, id: u8, token: Ticks) {
        let client = &mut self.clients[usize::from(id)];
        let Stage::Claiming(attempt) = &mut client.stage else { return };
        (attempt.token, attempt.written) = (token, 0);
        (client.writes, client.token) = (attempt.votes, token);
    }

    /// A node serves a token write; the client receives the answer if `received`.
    pub(crate) fn serve_write(&mut self, id: u8, index: usize, received: bool, rules: &Rules) {
        let (node, client) = (&mut self.nodes[index], &mut self.clients[usize::from(id)]);
        client.writes &= !(1 << index);
        let token = client.token;
        let written = node.quarantine_left == 0 && node.write(id, token, rules);
        if let (Stage::Claiming(attempt), true) = (&mut client.stage, received) {
            if written && attempt.token == token {
                attempt.written |= 1 << index;
            }
            if !written {
                attempt.largest_token_seen = attempt.largest_token_seen.max(node.token);
            }
        }
    }

    /// Whether the client can become a holder now, by the answers that it has received so far.
    pub(crate) fn may_become_holder(&self, id: u8, rules: &Rules) -> bool {
        let Stage::Claiming(attempt) = &self.clients[usize::from(id)].stage else { return false };
        let agreed = Self::agreed(
            attempt,
            if rules.tokens { attempt.written & attempt.votes } else { attempt.votes },
            rules,
        );
        let may_be_late = rules.tokens || rules.has(Bug::CountFromGrant);
        let is_late = self.now >= attempt.sent + rules.validity() && !may_be_late;
        rules.is_enough(agreed) && !is_late
    }

    /// Makes the client a holder.
    pub(crate) fn become_holder(&mut self, id: u8, rules: &Rules) {
        let client = &mut self.clients[usize::from(id)];
        let Stage::Claiming(attempt) = &client.stage else { return };
        let (token, sent) = (attempt.token, attempt.sent);
        self.grants += 1;
        self.token_went_back |=
            rules.tokens && (token <= attempt.newest_before || self.granted >> token & 1 != 0);
        if rules.tokens {
            self.newest = self.newest.max(token);
            self.granted |= 1 << token;
        }
        let sent = if rules.has(Bug::CountFromGrant) { self.now } else { sent };
        client.stage = Stage::Holding(Hold { valid_until: sent + rules.validity(), renewal: None });
    }

    /// Ends a client. If `releases`, its locks are deleted now; otherwise they stay until their leases end. A release
    /// that arrives late is not modelled, because it would have the same effect as the end of the lease.
    pub(crate) fn leave(&mut self, id: u8, releases: bool, rules: &Rules) {
        let client = &mut self.clients[usize::from(id)];
        let (stage, renewals) = (Stage::Done, 0);
        *client = Client { stage, renewals, token: 0, ..client.clone() };
        client.writes = 0;
        if !rules.late {
            client.locks = 0;
        }
        if releases {
            self.nodes.iter_mut().for_each(|node| node.release(id, rules));
        }
    }

    /// Begins a renewal on all nodes.
    pub(crate) fn renew(&mut self, id: u8) {
        let client = &mut self.clients[usize::from(id)];
        let Stage::Holding(hold) = &mut client.stage else { return };
        hold.renewal = Some(Renewal { sent: self.now, renewed: 0, missing: 0 });
        client.renewals = ALL_NODES;
    }

    /// A node serves a renewal; the client receives the answer if `received`.
    pub(crate) fn serve_renewal(&mut self, id: u8, index: usize, received: bool, rules: &Rules) {
        let (node, client) = (&mut self.nodes[index], &mut self.clients[usize::from(id)]);
        client.renewals &= !(1 << index);
        let is_renewed =
            node.renew(id, rules) && (node.quarantine_left == 0 || rules.has(Bug::CountRepaired));
        let is_missing = node.lock.is_none();
        if let (Stage::Holding(Hold { renewal: Some(renewal), .. }), true) = (&mut client.stage, received) {
            renewal.renewed |= Nodes::from(is_renewed) << index;
            renewal.missing |= Nodes::from(is_missing) << index;
        }
    }

    /// Ends a renewal by counting its answers. If a majority has renewed, extends the validity of the hold and sets
    /// missing locks again; otherwise the hold stays as it is.
    pub(crate) fn conclude(&mut self, id: u8, rules: &Rules) {
        let client = &mut self.clients[usize::from(id)];
        let Stage::Holding(hold) = &mut client.stage else { return };
        let Some(Renewal { sent, renewed, missing }) = hold.renewal.take() else { return };
        client.renewals = 0;
        if rules.is_enough(renewed) {
            hold.valid_until = hold.valid_until.max(sent + rules.validity());
        }
        if rules.is_enough(renewed) {
            let nodes_without_lock = (0..NODES).filter(|index| missing & 1 << index != 0);
            nodes_without_lock.for_each(|index| self.nodes[index].repair(id, rules));
        }
    }

    /// Puts the nodes into a fixed order. Nodes are alike, so worlds that differ only in the order of their nodes
    /// become one world.
    pub(crate) fn sort_nodes(&mut self) {
        let key = |index: &usize| {
            (&self.nodes[*index], self.clients.each_ref().map(|client| client.sort_key(*index)))
        };
        let mut order: [usize; NODES] = std::array::from_fn(|index| index);
        order.sort_by(|one, other| key(one).cmp(&key(other)));
        if order.is_sorted() {
            return;
        }
        self.nodes = order.map(|index| self.nodes[index].clone());
        self.clients.iter_mut().for_each(|client| client.reorder(order));
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        self.now += 1;
        self.nodes.iter_mut().for_each(|node| node.advance_clock(1, rules));
    }

    /// The largest token that any client writes.
    pub(crate) fn largest_token(&self) -> Ticks {
        let tokens = self.clients.iter().map(|client| match &client.stage {
            Stage::Claiming(attempt) => attempt.token,
            _ => 0,
        });
        tokens.max().unwrap_or(0)
    }

    /// How many clients rely on a hold now.
    pub(crate) fn valid_holders(&self) -> usize {
        self.clients.iter().filter(|client| client.is_valid(self.now)).count()
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.now)?;
        for node in &self.nodes {
            let Node { clock, lock, token, quarantine_left } = node;
            write!(f, " [{clock} {lock:?} token {token} young {quarantine_left}]")?;
        }
        for client in self.clients.iter().filter(|client| client.stage != Stage::Idle) {
            write!(f, " {:?}", client.stage)?;
        }
        Ok(())
    }
}
