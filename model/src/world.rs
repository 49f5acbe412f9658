//! A world: the whole state at one moment, and the actions that change it.

use crate::{
    Bug, Event, EventCounts, Id, Rules, Ticks,
    client::{Client, Effect, Stage, UnansweredRequest},
    judge::Judge,
    resource::Resource,
    rules::{Faults, PerClient},
    server::{Call, Hold, Server, Value},
    wire::{Aged, Reply, Request, Wire},
};

/// The whole state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) clients: PerClient<Client>,
    pub(crate) wires: PerClient<Wire>,
    pub(crate) foreign: Foreign,
    pub(crate) resource: Resource,
    /// The faults that may still happen.
    pub(crate) faults: Faults,
    pub(crate) judge: Judge,
}

/// Another program with the plain token lock: it sets the key with an expiry if the key is absent, and deletes the key
/// if the value is still its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Foreign {
    /// How many more times the other program acquires the name.
    pub(crate) takes: u8,
    /// For how long the lock of the other program is still valid.
    pub(crate) left: Ticks,
}

/// The rules, and the counters of seen events.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) events: &'a EventCounts,
}

impl World {
    pub(crate) fn new(rules: &Rules) -> Self {
        let foreign = Foreign { takes: rules.foreign_takes, left: 0 };
        Self { faults: rules.faults, foreign, ..Self::default() }
    }

    /// A client begins its claim.
    pub(crate) fn claim(&mut self, id: Id) {
        self.wires[id].connect();
        let request = self.clients[id].claim();
        self.send(id, request);
    }

    /// A waiter asks for the state of its claim.
    pub(crate) fn ask(&mut self, id: Id) {
        if let Stage::Waiting(waiting) = &mut self.clients[id].stage {
            let request = waiting.ask();
            self.send(id, request);
        }
    }

    /// A holder renews its hold.
    pub(crate) fn renew(&mut self, id: Id) {
        if let Some(request) = self.clients[id].renew() {
            self.send(id, request);
        }
    }

    /// A holder does the next step of its work on the resource.
    pub(crate) fn work(&mut self, id: Id, context: Context<'_>) {
        if let Stage::Holding(holding) = &mut self.clients[id].stage {
            self.resource.work(holding, context.rules.section, context.events);
        }
    }

    /// A client gives up its claim, or drops its guard.
    pub(crate) fn leave(&mut self, id: Id, context: Context<'_>) {
        let hold = match &self.clients[id].stage {
            Stage::Holding(holding) => Some((holding.token, holding.valid_for)),
            _ => None,
        };
        self.wires[id].forget();
        if hold.is_none() && context.rules.has(Bug::NoReleaseAfterCancel) {
            self.clients[id].stage = Stage::Done;
            self.tidy(id);
        } else {
            let request = self.clients[id].leave(hold, context.rules);
            self.apply_effect(id, Effect::Send(request), context);
        }
    }

    /// A client dies.
    pub(crate) fn die(&mut self, id: Id, rules: &Rules) {
        self.wires[id].break_connection(rules);
        self.clients[id].stage = Stage::Dead;
        self.tidy(id);
    }

    /// Serves the next request on a connection.
    pub(crate) fn serve_next(&mut self, id: Id, context: Context<'_>) {
        let request = self.wires[id].requests.remove(0).message;
        let reply = self.serve(id, request, context);
        self.wires[id].answer(reply);
    }

    /// Serves a request whose connection has broken after the request was sent.
    pub(crate) fn serve_late(&mut self, id: Id, index: usize, context: Context<'_>) {
        let (request, _) = self.wires[id].late.remove(index);
        self.serve(id, request, context);
    }

    /// Serves a request of a client on the server. Then lets the judge compare the states of the server before and
    /// after it.
    fn serve(&mut self, id: Id, request: Request, context: Context<'_>) -> Reply {
        let before = self.server.clone();
        let mut call =
            Call { rules: context.rules, events: context.events, wires: &mut self.wires, caller: id };
        let reply = self.server.serve(request, &mut call);
        self.judge(&before, id, request, context.events);
        reply
    }

    /// The client reads an answer.
    pub(crate) fn answer(&mut self, id: Id, context: Context<'_>) {
        let Some(reply) = self.wires[id].reply.take() else { return };
        if matches!(&self.clients[id].stage, Stage::Leaving(leaving) if leaving.is_repeated) {
            context.events.add(Event::ReleasedAgain);
        }
        let effect = self.clients[id].answered(reply, context.rules, context.events);
        self.apply_effect(id, effect, context);
    }

    /// The client stops waiting for an answer.
    pub(crate) fn forget(&mut self, id: Id, context: Context<'_>) {
        self.wires[id].forget();
        let effect = self.clients[id].unanswered(context.rules);
        self.apply_effect(id, effect, context);
    }

    /// The client receives a push.
    pub(crate) fn receive(&mut self, id: Id, context: Context<'_>) {
        let push = self.wires[id].pushes.remove(0);
        let effect = self.clients[id].receive(push, context.rules, context.events);
        self.apply_effect(id, effect, context);
    }

    /// A connection breaks.
    pub(crate) fn break_connection(&mut self, id: Id, context: Context<'_>) {
        self.wires[id].break_connection(context.rules);
        let effect = self.clients[id].break_connection(context.rules);
        self.apply_effect(id, effect, context);
    }

    /// A new connection is made.
    pub(crate) fn reconnect(&mut self, id: Id, rules: &Rules) {
        self.wires[id].connect();
        if let Some(request) = self.clients[id].reconnected(rules) {
            self.send(id, request);
        }
    }

    /// Does what a client does because of a message.
    fn apply_effect(&mut self, id: Id, effect: Effect, context: Context<'_>) {
        match effect {
            Effect::Nothing => {}
            Effect::Send(request) => self.send(id, request),
            Effect::Reported(truth) => self.judge.release_lied |= !truth,
            Effect::Hold(grant) => {
                if context.rules.ids().any(|id| self.is_paused(id)) {
                    context.events.add(Event::Overtaken);
                }
                self.judge.hold_began(grant);
            }
        }
        self.tidy(id);
    }

    /// Sends a request. Without a connection the request is dropped, because the client asks again after the reconnect.
    fn send(&mut self, id: Id, request: Request) {
        if self.wires[id].is_up {
            self.wires[id].requests.push(Aged::new(request));
        }
    }

    /// Removes state that can have no effect any more: pushed grants for a client that does not wait, and the record of
    /// the unanswered request of a client that is over.
    fn tidy(&mut self, id: Id) {
        let client = &mut self.clients[id];
        if !matches!(client.stage, Stage::Waiting(_)) {
            self.wires[id].pushes.clear();
        }
        if client.is_over() {
            client.unanswered_request = UnansweredRequest::None;
        }
    }

    /// Another program acquires the free name.
    pub(crate) fn foreign_takes(&mut self, context: Context<'_>) {
        if self.server.counter > 0 && !self.server.queue.is_empty() {
            context.events.add(Event::ForeignBetween);
        }
        self.foreign = Foreign { takes: self.foreign.takes - 1, left: context.rules.ttl };
        self.server.lock = Some((Value::Foreign, context.rules.ttl));
    }

    /// The other program deletes the key if the value is still its own.
    pub(crate) fn foreign_frees(&mut self) {
        self.foreign.left = 0;
        self.server.lock = self.server.lock.filter(|(value, _)| *value != Value::Foreign);
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        let waits = rules.ids().any(|id| matches!(self.clients[id].stage, Stage::Waiting(_)));
        self.judge.tick(waits && !self.is_in_use(), rules);
        self.server.tick(rules);
        self.clients.iter_mut().for_each(|client| client.tick(rules));
        self.wires.iter_mut().for_each(|wire| wire.tick(rules));
        self.foreign.left = self.foreign.left.saturating_sub(1);
    }

    /// Whether there is a message to send, serve or receive.
    pub(crate) fn is_busy(&self, rules: &Rules) -> bool {
        rules.ids().any(|id| match &self.clients[id].stage {
            Stage::Idle | Stage::Done | Stage::Dead => false,
            Stage::Waiting(waiting) if waiting.is_due() => true,
            _ => !self.wires[id].is_up || !self.wires[id].is_quiet(),
        })
    }

    /// How many clients and other programs hold the name now, as far as each of them knows.
    pub(crate) fn valid_holders(&self, rules: &Rules) -> usize {
        let ours = rules.ids().filter(|&id| self.clients[id].valid_hold().is_some()).count();
        ours + usize::from(self.foreign.left > 0)
    }

    /// Whether the name is held by another program, or by a client that knows of its own hold.
    fn is_in_use(&self) -> bool {
        let knows = |hold: Hold| match &self.clients[hold.id].stage {
            Stage::Holding(holding) => holding.token == hold.token,
            _ => false,
        };
        self.foreign.left > 0 || self.server.current_hold().is_some_and(knows)
    }

    /// Whether a holder has lost its hold but has not finished its work.
    fn is_paused(&self, id: Id) -> bool {
        matches!(&self.clients[id].stage, Stage::Holding(holding) if holding.valid_for == 0)
    }
}
