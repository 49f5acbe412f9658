//! The actions that may happen next in a world of the Redis model.

use stateright::{Model, Property};

use crate::{
    EventCounts, Id, Rules, World, client::Stage, properties, resource::Progress, rules::Section,
    wire::Subscription, world::Context,
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
    /// A request is served although the connection on which it was sent has broken meanwhile.
    ServeLate(Id, usize),
    /// A client reads an answer.
    ReadAnswer(Id),
    /// A client stops waiting for an answer although its connection works.
    ForgetRequest(Id),
    /// A client receives a pushed grant.
    ReceivePush(Id),
    /// The notification of a pushed grant is lost.
    LosePush(Id),
    /// A connection breaks. Its client notices that.
    Disconnect(Id),
    /// The server notices that the connection of a client has broken.
    NoticeBreak(Id),
    /// A client makes a new connection.
    Reconnect(Id),
    /// Another program acquires its own lock on the name.
    ForeignTakes,
    /// The other program releases its lock.
    ForeignFrees,
    /// Time passes.
    Tick,
}

/// All worlds that can be reached under a set of rules.
#[derive(Debug)]
pub(crate) struct Protocol {
    /// The rules.
    pub rules: Rules,
    /// How often each event was seen during the search.
    pub events: EventCounts,
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
        next.perform(action, Context { rules: &self.rules, events: &self.events });
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.server.counter <= self.rules.max_grants
    }
}

impl World {
    /// Adds the actions of a client.
    fn actions_of(&self, id: Id, rules: &Rules, actions: &mut Vec<Action>) {
        let (faults, is_up) = (&self.faults, self.wires[id].is_up);
        // In a run without slow steps, messages in flight arrive before the client that sent or receives them dies.
        let may_die = rules.slow || self.wires[id].is_quiet();
        let mut add_if = |action, possible: bool| {
            if possible {
                actions.push(action);
            }
        };
        match &self.clients[id].stage {
            // Clients that have not claimed are alike. To avoid equal worlds, they claim in the order of their numbers.
            Stage::Idle => {
                add_if(Action::Claim(id), id.0 == 0 || self.clients[Id(id.0 - 1)].stage != Stage::Idle);
            }
            Stage::Waiting(waiting) => {
                add_if(Action::Ask(id), is_up && waiting.is_due());
                add_if(Action::GiveUp(id), faults.cancels > 0);
                add_if(Action::Die(id), may_die && faults.dead_waiters > 0);
            }
            Stage::Holding(holding) => {
                let may_renew = rules.renews && (1..rules.ttl).contains(&holding.valid_for);
                add_if(Action::Renew(id), is_up && may_renew && holding.renewal_age.is_none());
                add_if(
                    Action::Work(id),
                    rules.section != Section::Empty && holding.progress != Progress::Over,
                );
                add_if(
                    Action::Release(id),
                    rules.section == Section::Empty || holding.progress == Progress::Over,
                );
                add_if(Action::Die(id), may_die && faults.dead_holders > 0);
            }
            Stage::Leaving(_) => add_if(Action::Die(id), may_die && faults.dead_holders > 0),
            Stage::Done | Stage::Dead => {}
        }
    }

    /// Adds the actions on the present and the earlier connections of a client.
    fn actions_on_wire(&self, id: Id, actions: &mut Vec<Action>) {
        let (wire, faults) = (&self.wires[id], &self.faults);
        let mut add_if = |action, possible: bool| {
            if possible {
                actions.push(action);
            }
        };
        (0..wire.late.len()).for_each(|index| add_if(Action::ServeLate(id, index), true));
        add_if(Action::NoticeBreak(id), wire.subscription == Subscription::HalfOpen);
        if matches!(self.clients[id].stage, Stage::Idle | Stage::Done | Stage::Dead) {
            return;
        }
        add_if(Action::Serve(id), wire.is_up && !wire.requests.is_empty());
        add_if(Action::ReadAnswer(id), wire.reply.is_some());
        let awaits_answer = wire.reply.is_some() || wire.requests.len() > wire.unwanted_answers;
        add_if(Action::ForgetRequest(id), faults.timeouts > 0 && awaits_answer);
        add_if(Action::ReceivePush(id), !wire.pushes.is_empty());
        add_if(Action::LosePush(id), faults.losses > 0 && !wire.pushes.is_empty());
        add_if(Action::Disconnect(id), faults.breaks > 0 && wire.is_up);
        add_if(Action::Reconnect(id), !wire.is_up);
    }

    /// Performs an action.
    fn perform(&mut self, action: Action, context: Context<'_>) {
        let (rules, faults) = (context.rules, &mut self.faults);
        match action {
            Action::Claim(id) => self.claim(id),
            Action::Ask(id) => self.ask(id),
            Action::Renew(id) => self.renew(id),
            Action::Work(id) => self.work(id, context),
            Action::Release(id) => self.leave(id, context),
            Action::GiveUp(id) => {
                faults.cancels -= 1;
                self.leave(id, context);
            }
            Action::Die(id) => {
                match self.clients[id].stage {
                    Stage::Waiting(_) => faults.dead_waiters -= 1,
                    _ => faults.dead_holders -= 1,
                }
                self.die(id, rules);
            }
            Action::Serve(id) => self.serve_next(id, context),
            Action::ServeLate(id, index) => self.serve_late(id, index, context),
            Action::ReadAnswer(id) => self.answer(id, context),
            Action::ForgetRequest(id) => {
                faults.timeouts -= 1;
                self.forget(id, context);
            }
            Action::ReceivePush(id) => self.receive(id, context),
            Action::LosePush(id) => {
                faults.losses -= 1;
                self.wires[id].pushes.remove(0);
            }
            Action::Disconnect(id) => {
                faults.breaks -= 1;
                self.break_connection(id, context);
            }
            Action::NoticeBreak(id) => self.wires[id].subscription = Subscription::Shut,
            Action::Reconnect(id) => self.reconnect(id, rules),
            Action::ForeignTakes => self.foreign_takes(context),
            Action::ForeignFrees => self.foreign_frees(),
            Action::Tick => self.tick(rules),
        }
    }
}
