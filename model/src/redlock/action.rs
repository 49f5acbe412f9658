//! The actions that may happen next in a world of the Redlock model.

use stateright::{Model, Property};

use super::{
    client::{Hold, Stage},
    properties,
    rules::{NODES, Nodes, Rules, Ticks},
    world::World,
};

/// One action. The first number is the client. An index of type `usize` is the node. The last field of an action that
/// serves a request says whether the client receives the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A client claims the name. The second field is the token that it guesses; 0: it guesses none.
    Claim(u8, Ticks),
    /// A node serves a lock request.
    Lock(u8, usize, bool),
    /// A client begins to write this token to the nodes.
    Mint(u8, Ticks),
    /// A node serves a token write.
    Write(u8, usize, bool),
    /// A client decides that it holds the name.
    BecomeHolder(u8),
    /// A client ends. `true`: it releases its locks. `false`: it dies, or gives up and leaves its locks.
    Leave(u8, bool),
    /// A holder renews.
    Renew(u8),
    /// A node serves a renewal.
    Extend(u8, usize, bool),
    /// A holder counts the answers to its renewal.
    Conclude(u8),
    /// A lock ends on a node before its expiry.
    Lapse(usize),
    /// The clock of a node gains a tick.
    Drift(usize),
    /// The clock of a node steps by this many ticks.
    Step(usize, Ticks),
    /// A node restarts with its data.
    Restart(usize),
    /// A node restarts without its data.
    Forget(usize),
    /// Time passes.
    Tick,
}

/// All worlds that can be reached under a set of rules.
#[derive(Debug)]
pub(crate) struct Protocol {
    pub(crate) rules: Rules,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.rules)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        (0..self.rules.clients).for_each(|id| world.actions_of(id, &self.rules, actions));
        for index in 0..NODES {
            let faults = &world.faults;
            actions.extend(
                (world.faults.lapses > 0 && world.nodes[index].lock.is_some())
                    .then_some(Action::Lapse(index)),
            );
            let node_faults = [
                (faults.drifts > 0, Action::Drift(index)),
                (faults.restarts > 0, Action::Restart(index)),
                (faults.forgets > 0, Action::Forget(index)),
            ];
            actions.extend(
                node_faults.into_iter().filter(|(is_possible, _)| *is_possible).map(|(_, action)| action),
            );
            let steps = self.rules.steps.iter().filter(|_| faults.steps > 0);
            actions.extend(steps.map(|ticks| Action::Step(index, *ticks)));
        }
        if world.now < self.rules.horizon {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.perform(action, &self.rules);
        next.sort_nodes();
        Some(next)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.largest_token() <= self.rules.max_token
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

impl World {
    /// Adds the actions of a client and of its requests in flight.
    fn actions_of(&self, id: u8, rules: &Rules, actions: &mut Vec<Action>) {
        let client = &self.clients[usize::from(id)];
        let may_be_received = || std::iter::once(true).chain((self.faults.losses > 0).then_some(false));
        let indices = |nodes: Nodes| (0..NODES).filter(move |index| nodes & 1 << index != 0);
        match &client.stage {
            // Clients that have not claimed are alike. To avoid equal worlds, they claim in the order of their numbers.
            Stage::Idle if id == 0 || self.clients[usize::from(id) - 1].stage != Stage::Idle => {
                actions.push(Action::Claim(id, 0));
                if rules.guesses {
                    actions.extend([self.now, self.now + 1].map(|guess| Action::Claim(id, guess)));
                }
            }
            Stage::Idle | Stage::Done => {}
            Stage::Claiming(_) => {
                actions.extend(self.next_token(id, rules).map(|token| Action::Mint(id, token)));
                actions.extend(self.may_become_holder(id, rules).then_some(Action::BecomeHolder(id)));
                // The client gives up or dies. The locks that it has set end with their lease.
                actions.extend((!rules.tokens).then_some(Action::Leave(id, false)));
            }
            Stage::Holding(Hold { renewal, valid_until }) => {
                let may_renew = id < rules.renews && renewal.is_none() && self.now < *valid_until;
                actions.extend(may_renew.then_some(Action::Renew(id)));
                actions.extend(renewal.is_some().then_some(Action::Conclude(id)));
                let releases_or_dies: &[bool] = if rules.tokens { &[] } else { &[true, false] };
                actions.extend(releases_or_dies.iter().map(|releases| Action::Leave(id, *releases)));
            }
        }
        let reads_answers = !matches!(client.stage, Stage::Done);
        for index in indices(client.locks) {
            actions.extend(
                may_be_received()
                    .filter(|received| reads_answers || *received)
                    .map(|received| Action::Lock(id, index, received)),
            );
        }
        for index in indices(client.writes) {
            actions.extend(
                may_be_received()
                    .filter(|received| reads_answers || *received)
                    .map(|received| Action::Write(id, index, received)),
            );
        }
        for index in indices(client.renewals) {
            actions.extend(may_be_received().map(|received| Action::Extend(id, index, received)));
        }
    }

    /// Performs an action.
    fn perform(&mut self, action: Action, rules: &Rules) {
        if let Action::Lock(.., false) | Action::Write(.., false) | Action::Extend(.., false) = action {
            self.faults.losses -= 1;
        }
        match action {
            Action::Claim(id, guess) => self.claim(id, guess),
            Action::Lock(id, index, received) => self.serve_lock(id, index, received, rules),
            Action::Mint(id, token) => self.write(id, token),
            Action::Write(id, index, received) => self.serve_write(id, index, received, rules),
            Action::BecomeHolder(id) => self.become_holder(id, rules),
            Action::Leave(id, releases) => self.leave(id, releases, rules),
            Action::Renew(id) => self.renew(id),
            Action::Extend(id, index, received) => self.serve_renewal(id, index, received, rules),
            Action::Conclude(id) => self.conclude(id, rules),
            Action::Lapse(index) => {
                self.faults.lapses -= 1;
                self.nodes[index].lock = None;
            }
            Action::Drift(index) => {
                self.faults.drifts -= 1;
                self.nodes[index].advance_clock(1, rules);
            }
            Action::Step(index, ticks) => {
                self.faults.steps -= 1;
                self.nodes[index].advance_clock(ticks, rules);
            }
            Action::Restart(index) => {
                self.faults.restarts -= 1;
                self.nodes[index].restart(false, rules);
            }
            Action::Forget(index) => {
                self.faults.forgets -= 1;
                self.nodes[index].restart(true, rules);
            }
            Action::Tick => self.tick(rules),
        }
    }
}
