//! The actions that may happen next in a world of the Redis model.

use stateright::{Model, Property};

use crate::{
    Id, Rules, Sights, World, client::Stage, properties, resource::Progress, rules::Section,
    wire::Subscription, world::By,
};

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A client claims the name.
    Claim(Id),
    /// A waiter asks for the state of its claim.
    Ask(Id),
    /// A waiter gives up.
    GiveUp(Id),
    /// A holder renews its hold.
    Renew(Id),
    /// A holder does the next step under the lock.
    Work(Id),
    /// A guard is dropped.
    Release(Id),
    /// A client dies.
    Die(Id),
    /// The next request of a client is served.
    Serve(Id),
    /// A request on a broken connection of a client is served after all.
    ServeLate(Id, usize),
    /// A client reads an answer.
    Answer(Id),
    /// A client stops waiting for an answer, while its connection works.
    Forget(Id),
    /// A client receives a pushed grant.
    Receive(Id),
    /// The notification of a pushed grant is lost.
    Mishear(Id),
    /// A connection breaks; its client notices.
    Cut(Id),
    /// The server notices that a connection broke.
    Notice(Id),
    /// A client makes a new connection.
    Reconnect(Id),
    /// Another program takes the name.
    ForeignTakes,
    /// The other program frees the name.
    ForeignFrees,
    /// Time passes.
    Tick,
}

/// All worlds that are reachable under some rules.
#[derive(Debug)]
pub(crate) struct Protocol {
    /// The rules.
    pub rules: Rules,
    /// The events seen on the way.
    pub sights: Sights,
}

impl Model for Protocol {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.rules)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for id in self.rules.ids() {
            world.actions_of(id, &self.rules, actions);
            world.actions_on_wire(id, actions);
        }
        if world.foreign.takes > 0 && world.foreign.left == 0 && world.server.lock.is_none() {
            actions.push(Action::ForeignTakes);
        }
        if world.foreign.left > 0 {
            actions.push(Action::ForeignFrees);
        }
        if self.rules.slow || !world.is_busy(&self.rules) {
            actions.push(Action::Tick);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.perform(action, By { rules: &self.rules, sights: &self.sights });
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.server.counter <= self.rules.most_grants
    }
}

impl World {
    /// Adds the actions of a client.
    fn actions_of(&self, id: Id, rules: &Rules, actions: &mut Vec<Action>) {
        let (faults, up) = (&self.faults, self.wires[id].up);
        // Without slow steps, messages in flight arrive before their client dies.
        let dies = rules.slow || self.wires[id].is_quiet();
        let mut may = |action, possible: bool| {
            if possible {
                actions.push(action);
            }
        };
        match &self.clients[id].stage {
            // Idle clients are alike, so they claim in the order of their numbers.
            Stage::Idle => {
                may(Action::Claim(id), id.0 == 0 || self.clients[Id(id.0 - 1)].stage != Stage::Idle);
            }
            Stage::Waiting(waiting) => {
                may(Action::Ask(id), up && waiting.is_due());
                may(Action::GiveUp(id), faults.cancels > 0);
                may(Action::Die(id), dies && faults.dead_waiters > 0);
            }
            Stage::Holding(holding) => {
                let renews = rules.renews && (1..rules.ttl).contains(&holding.left);
                may(Action::Renew(id), up && renews && holding.renewal.is_none());
                may(Action::Work(id), rules.section != Section::Empty && holding.progress != Progress::Over);
                may(
                    Action::Release(id),
                    rules.section == Section::Empty || holding.progress == Progress::Over,
                );
                may(Action::Die(id), dies && faults.dead_holders > 0);
            }
            Stage::Leaving(_) => may(Action::Die(id), dies && faults.dead_holders > 0),
            Stage::Done | Stage::Dead => {}
        }
    }

    /// Adds the actions on the connections of a client.
    fn actions_on_wire(&self, id: Id, actions: &mut Vec<Action>) {
        let (wire, faults) = (&self.wires[id], &self.faults);
        let mut may = |action, possible: bool| {
            if possible {
                actions.push(action);
            }
        };
        (0..wire.late.len()).for_each(|at| may(Action::ServeLate(id, at), true));
        may(Action::Notice(id), wire.subscription == Subscription::HalfOpen);
        if matches!(self.clients[id].stage, Stage::Idle | Stage::Done | Stage::Dead) {
            return;
        }
        may(Action::Serve(id), wire.up && !wire.requests.is_empty());
        may(Action::Answer(id), wire.reply.is_some());
        let waits = wire.reply.is_some() || wire.requests.len() > wire.unwanted;
        may(Action::Forget(id), faults.timeouts > 0 && waits);
        may(Action::Receive(id), !wire.pushes.is_empty());
        may(Action::Mishear(id), faults.losses > 0 && !wire.pushes.is_empty());
        may(Action::Cut(id), faults.breaks > 0 && wire.up);
        may(Action::Reconnect(id), !wire.up);
    }

    /// Performs an action.
    fn perform(&mut self, action: Action, by: By<'_>) {
        let (rules, faults) = (by.rules, &mut self.faults);
        match action {
            Action::Claim(id) => self.claim(id),
            Action::Ask(id) => self.ask(id),
            Action::Renew(id) => self.renew(id),
            Action::Work(id) => self.work(id, by),
            Action::Release(id) => self.leave(id, by),
            Action::GiveUp(id) => {
                faults.cancels -= 1;
                self.leave(id, by);
            }
            Action::Die(id) => {
                match self.clients[id].stage {
                    Stage::Waiting(_) => faults.dead_waiters -= 1,
                    _ => faults.dead_holders -= 1,
                }
                self.die(id, rules);
            }
            Action::Serve(id) => self.serve_next(id, by),
            Action::ServeLate(id, at) => self.serve_late(id, at, by),
            Action::Answer(id) => self.answer(id, by),
            Action::Forget(id) => {
                faults.timeouts -= 1;
                self.forget(id, by);
            }
            Action::Receive(id) => self.receive(id, by),
            Action::Mishear(id) => {
                faults.losses -= 1;
                self.wires[id].pushes.remove(0);
            }
            Action::Cut(id) => {
                faults.breaks -= 1;
                self.cut(id, by);
            }
            Action::Notice(id) => self.wires[id].subscription = Subscription::Shut,
            Action::Reconnect(id) => self.reconnect(id, rules),
            Action::ForeignTakes => self.foreign_takes(by),
            Action::ForeignFrees => self.foreign_frees(),
            Action::Tick => self.tick(rules),
        }
    }
}
