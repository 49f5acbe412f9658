//! A world: nodes, clients, requests in flight, and the judge's memory.

use std::fmt;

use super::{
    client::{Client, Hold, Round, Stage},
    node::Node,
    rules::{ALL, Bug, Faults, MOST_CLIENTS, NODES, Nodes, Rules, Ticks},
};

/// The reading of every clock at first: tokens begin at 1.
const BEGIN: Ticks = 1;

/// One world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The clients' clock, which is right.
    pub(crate) now: Ticks,
    pub(crate) nodes: [Node; NODES],
    pub(crate) clients: [Client; MOST_CLIENTS],
    pub(crate) faults: Faults,
    /// The newest token that was granted.
    pub(crate) newest: Ticks,
    /// The number of grants.
    pub(crate) grants: u8,
    /// All tokens that were granted, a bit for each.
    pub(crate) granted: u64,
    /// Whether a token was granted twice, or is not larger than a token that was granted before its claim began.
    pub(crate) went_back: bool,
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
            went_back: false,
        }
    }

    /// Begins the claim of a client.
    pub(crate) fn claim(&mut self, id: u8, guess: Ticks) {
        let client = &mut self.clients[usize::from(id)];
        client.stage =
            Stage::Asks(Round { sent: self.now, token: guess, floor: self.newest, ..Round::default() });
        (client.locks, client.guess) = (ALL, guess);
    }

    /// A node serves a lock request; the client receives the answer if `received`.
    pub(crate) fn serve_lock(&mut self, id: u8, at: usize, received: bool, rules: &Rules) {
        let (node, client) = (&mut self.nodes[at], &mut self.clients[usize::from(id)]);
        client.locks &= !(1 << at);
        let (before, guess) = (node.token, client.guess);
        let locked = node.lock(id, rules);
        let written = locked && guess > 0 && node.write(id, guess, rules);
        if let (Stage::Asks(round), true, true) = (&mut client.stage, locked, received) {
            round.votes |= 1 << at;
            round.ahead[at] = node.clock - self.now;
            round.seen = round.seen.max(if written { guess } else { before });
            // A guess may be behind the clock of the node that took it.
            let behind = node.clock > guess && !rules.has(Bug::NoClockInToken);
            if written && !behind && round.token == guess {
                round.written |= 1 << at;
            }
        }
    }

    /// The next token, if its client has locked enough nodes to write one.
    pub(crate) fn next_token(&self, id: u8, rules: &Rules) -> Option<Ticks> {
        let client = &self.clients[usize::from(id)];
        let Stage::Asks(round) = &client.stage else { return None };
        if !rules.tokens {
            return None;
        }
        let agreed = Self::agreed(round, round.votes, rules);
        let ahead = (0..NODES).filter(|node| agreed & 1 << node != 0).map(|node| round.ahead[node]);
        let clock = if rules.has(Bug::NoClockInToken) { 0 } else { self.now + ahead.max()? };
        let next = clock.max(round.seen + 1);
        (rules.is_enough(agreed) && !rules.is_enough(round.written) && next > round.token).then_some(next)
    }

    fn agreed(round: &Round, nodes: Nodes, rules: &Rules) -> Nodes {
        if rules.has(Bug::NoAgreement) { nodes } else { round.agreed(nodes, rules.agree) }
    }

    /// Begins to write a token on the locked nodes.
    pub(crate) fn write(&mut self, id: u8, token: Ticks) {
        let client = &mut self.clients[usize::from(id)];
        let Stage::Asks(round) = &mut client.stage else { return };
        (round.token, round.written) = (token, 0);
        (client.writes, client.token) = (round.votes, token);
    }

    /// A node serves a token write; the client receives the answer if `received`.
    pub(crate) fn serve_write(&mut self, id: u8, at: usize, received: bool, rules: &Rules) {
        let (node, client) = (&mut self.nodes[at], &mut self.clients[usize::from(id)]);
        client.writes &= !(1 << at);
        let token = client.token;
        let written = node.young == 0 && node.write(id, token, rules);
        if let (Stage::Asks(round), true) = (&mut client.stage, received) {
            if written && round.token == token {
                round.written |= 1 << at;
            }
            if !written {
                round.seen = round.seen.max(node.token);
            }
        }
    }

    /// Whether the client's answers make it a holder now.
    pub(crate) fn may_take(&self, id: u8, rules: &Rules) -> bool {
        let Stage::Asks(round) = &self.clients[usize::from(id)].stage else { return false };
        let agreed =
            Self::agreed(round, if rules.tokens { round.written & round.votes } else { round.votes }, rules);
        let may_be_late = rules.tokens || rules.has(Bug::CountFromGrant);
        let late = self.now >= round.sent + rules.validity() && !may_be_late;
        rules.is_enough(agreed) && !late
    }

    /// Makes the client a holder.
    pub(crate) fn take(&mut self, id: u8, rules: &Rules) {
        let client = &mut self.clients[usize::from(id)];
        let Stage::Asks(round) = &client.stage else { return };
        let (token, sent) = (round.token, round.sent);
        self.grants += 1;
        self.went_back |= rules.tokens && (token <= round.floor || self.granted >> token & 1 != 0);
        if rules.tokens {
            self.newest = self.newest.max(token);
            self.granted |= 1 << token;
        }
        let sent = if rules.has(Bug::CountFromGrant) { self.now } else { sent };
        client.stage = Stage::Holds(Hold { until: sent + rules.validity(), renewal: None });
    }

    /// Ends a client, which releases its locks or dies. A release that arrives late has the same effect as the end of
    /// the lease.
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

    pub(crate) fn renew(&mut self, id: u8) {
        let client = &mut self.clients[usize::from(id)];
        let Stage::Holds(hold) = &mut client.stage else { return };
        hold.renewal = Some((self.now, 0, 0));
        client.renewals = ALL;
    }

    /// A node serves a renewal; the client receives the answer if `received`.
    pub(crate) fn serve_renewal(&mut self, id: u8, at: usize, received: bool, rules: &Rules) {
        let (node, client) = (&mut self.nodes[at], &mut self.clients[usize::from(id)]);
        client.renewals &= !(1 << at);
        let extended = node.renew(id, rules) && (node.young == 0 || rules.has(Bug::CountRepaired));
        let free = node.lock.is_none();
        if let (Stage::Holds(Hold { renewal: Some((_, has, lacks)), .. }), true) =
            (&mut client.stage, received)
        {
            *has |= Nodes::from(extended) << at;
            *lacks |= Nodes::from(free) << at;
        }
    }

    /// Counts the answers to a renewal: extends the validity of the hold, and sets missing locks again.
    pub(crate) fn conclude(&mut self, id: u8, rules: &Rules) {
        let client = &mut self.clients[usize::from(id)];
        let Stage::Holds(hold) = &mut client.stage else { return };
        let Some((sent, has, lacks)) = hold.renewal.take() else { return };
        client.renewals = 0;
        if rules.is_enough(has) {
            hold.until = hold.until.max(sent + rules.validity());
        }
        if rules.is_enough(has) {
            let lack = (0..NODES).filter(|at| lacks & 1 << at != 0);
            lack.for_each(|at| self.nodes[at].repair(id, rules));
        }
    }

    /// Sorts the nodes, because nodes are alike: worlds that differ only in the order of their nodes become one.
    pub(crate) fn settle(&mut self) {
        let key = |at: &usize| (&self.nodes[*at], self.clients.each_ref().map(|client| client.about(*at)));
        let mut order: [usize; NODES] = std::array::from_fn(|at| at);
        order.sort_by(|one, other| key(one).cmp(&key(other)));
        if order.is_sorted() {
            return;
        }
        self.nodes = order.map(|at| self.nodes[at].clone());
        self.clients.iter_mut().for_each(|client| client.reorder(order));
    }

    pub(crate) fn tick(&mut self, rules: &Rules) {
        self.now += 1;
        self.nodes.iter_mut().for_each(|node| node.pass(1, rules));
    }

    /// The largest token that any client writes.
    pub(crate) fn largest(&self) -> Ticks {
        let asked = self.clients.iter().map(|client| match &client.stage {
            Stage::Asks(round) => round.token,
            _ => 0,
        });
        asked.max().unwrap_or(0)
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
            let Node { clock, lock, token, young } = node;
            write!(f, " [{clock} {lock:?} token {token} young {young}]")?;
        }
        for client in self.clients.iter().filter(|client| client.stage != Stage::Idle) {
            write!(f, " {:?}", client.stage)?;
        }
        Ok(())
    }
}
