//! A claim that asks for the name and waits for notifications. Models `pure/wait.rs` and `driver/keeper/drive.rs` in
//! `crates/core/src`, and how `pure/server_clock.rs` computes the age of a pushed grant there.

use crate::{
    Bug, Event, EventCounts, Rules, Ticks,
    client::{Client, Effect, Stage},
    wire::{Aged, Grant, How, Reply, Request},
};

/// The state of a claim that waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    /// Whether the next request also creates the claim on the server, or only asks for its state.
    pub(crate) how: How,
    /// How long ago the request in flight was sent. `None`: no request is in flight.
    pub(crate) request_age: Option<Ticks>,
    /// The ticks until the claim asks again, if no notification arrives before.
    ask_again_in: Ticks,
    /// The server's clock, as far as the client knows it.
    clock: Option<ServerClock>,
    /// Whether a notification arrived while a request was in flight.
    pub(crate) notified: bool,
    /// The pushed grant that has arrived, and for how long it counts as valid.
    pushed: Option<(Grant, Ticks)>,
}

/// The newest known reading of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ServerClock {
    /// How long ago the request was sent whose answer had this reading.
    sent: Ticks,
    /// How long ago, by the server's clock, this request was served.
    served: Ticks,
}

impl Waiting {
    /// The state when the first request is sent.
    pub(crate) fn new() -> Self {
        Self {
            how: How::Create,
            request_age: Some(0),
            ask_again_in: 0,
            clock: None,
            notified: false,
            pushed: None,
        }
    }

    /// Whether it is time to ask.
    pub(crate) fn is_due(&self) -> bool {
        self.request_age.is_none() && self.ask_again_in == 0
    }

    /// Asks for the state of the claim.
    pub(crate) fn ask(&mut self) -> Request {
        (self.request_age, self.ask_again_in) = (Some(0), 0);
        Request::Claim(self.how)
    }

    /// Handles a new connection. Returns the request by which the waiting client asks for the state of its claim.
    pub(crate) fn reconnected(&mut self, rules: &Rules) -> Option<Request> {
        self.clock = Some(ServerClock { sent: 0, served: 0 });
        let asks = self.how == How::Create || !rules.has(Bug::NoAskAfterReconnect);
        asks.then(|| self.ask())
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        self.request_age = self.request_age.map(|age| (age + 1).min(rules.ttl));
        if !rules.has(Bug::NoPoll) || self.how == How::Create {
            self.ask_again_in = self.ask_again_in.saturating_sub(1);
        }
        // With a reading that is older than the claim time, every pushed grant would count as lapsed. So such a reading
        // is dropped.
        let aged = |clock: ServerClock| ServerClock { sent: clock.sent + 1, served: clock.served + 1 };
        self.clock = self.clock.map(aged).filter(|clock| clock.sent < rules.claim_time);
        self.pushed = self.pushed.map(|(grant, left)| (grant, left.saturating_sub(1)));
    }

    /// R16: for how long a pushed grant counts as valid. The client does not know the age of the grant. It assumes the
    /// largest age that the newest reading of the server's clock allows.
    fn push_validity(&self, push: Aged<Grant>, rules: &Rules, events: &EventCounts) -> Ticks {
        if rules.has(Bug::PushIsTruth) {
            return rules.claim_time;
        }
        let Some(clock) = self.clock else {
            events.add(Event::UndatedPush);
            return 0;
        };
        let left = rules.claim_time.saturating_sub(clock.sent + push.age.saturating_sub(clock.served));
        if left == 0 {
            events.add(Event::LatePush);
        }
        left
    }
}

impl Client {
    /// Handles the server's answer about the claim.
    pub(crate) fn claim_answered(
        &mut self,
        reply: Aged<Reply>,
        rules: &Rules,
        events: &EventCounts,
    ) -> Effect {
        let Stage::Waiting(waiting) = &mut self.stage else { return Effect::Nothing };
        let request_age = waiting.request_age.take().unwrap_or_default();
        waiting.clock =
            (request_age < rules.claim_time).then_some(ServerClock { sent: request_age, served: reply.age });
        match reply.message {
            Reply::Held(grant) => {
                // R1: the lease counts from the time at which the request was sent.
                let lease_age = if rules.has(Bug::CountFromAnswer) { 0 } else { request_age };
                if lease_age < rules.ttl {
                    return self.hold(grant, rules.ttl - lease_age);
                }
                events.add(Event::GrantCameTooLate);
                Effect::Send(self.leave(None, rules))
            }
            Reply::Waiting { free_in } => {
                waiting.how = How::Ask;
                waiting.ask_again_in =
                    free_in.map_or(rules.poll_interval, |free_in| free_in.min(rules.poll_interval));
                if waiting.notified { self.handle_notification() } else { Effect::Nothing }
            }
            // The claim is gone, but a late request of the claim may still arrive at a time when the server has no
            // tombstone any more. So the claim is released.
            _ if !rules.has(Bug::GoneIsTrusted) => Effect::Send(self.leave(None, rules)),
            _ => {
                self.stage = Stage::Done;
                Effect::Nothing
            }
        }
    }

    /// Handles a pushed grant. If a request is in flight, the grant is stored until the answer arrives.
    pub(crate) fn receive(&mut self, push: Aged<Grant>, rules: &Rules, events: &EventCounts) -> Effect {
        let Stage::Waiting(waiting) = &mut self.stage else { return Effect::Nothing };
        waiting.pushed = Some((push.message, waiting.push_validity(push, rules, events)));
        waiting.notified = true;
        if waiting.request_age.is_some() { Effect::Nothing } else { self.handle_notification() }
    }

    /// Handles a notification when no request is in flight. If the pushed grant is still valid, the client holds;
    /// otherwise it asks.
    pub(crate) fn handle_notification(&mut self) -> Effect {
        let Stage::Waiting(waiting) = &mut self.stage else { return Effect::Nothing };
        waiting.notified = false;
        match waiting.pushed.take() {
            Some((grant, left @ 1..)) => self.hold(grant, left),
            _ => Effect::Send(waiting.ask()),
        }
    }
}
