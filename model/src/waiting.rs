//! A claim that asks for the name and waits for notifications: models `pure/wait.rs` and `driver/keeper/drive.rs` in
//! `crates/core/src`, and how `pure/server_clock.rs` there dates a pushed grant.

use crate::{
    Bug, Rules, Sight, Sights, Ticks,
    client::{Client, Stage, Then},
    wire::{Aged, Grant, How, Reply, Request},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub(crate) how: How,
    /// How long ago the request in flight left.
    pub(crate) asked: Option<Ticks>,
    /// The ticks until it asks again, if no notification arrives before.
    ask_in: Ticks,
    clock: Option<ServerClock>,
    /// A notification arrived while a request was in flight.
    pub(crate) notified: bool,
    /// The pushed grant, and for how long it may count as valid.
    pushed: Option<(Grant, Ticks)>,
}

/// The latest known reading of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ServerClock {
    /// How long ago the request left whose answer contained it.
    sent: Ticks,
    /// How long ago, by the server's clock, that request was served.
    served: Ticks,
}

impl Waiting {
    /// The first request leaves.
    pub(crate) fn new() -> Self {
        Self { how: How::Create, asked: Some(0), ask_in: 0, clock: None, notified: false, pushed: None }
    }

    /// Whether it is time to ask.
    pub(crate) fn is_due(&self) -> bool {
        self.asked.is_none() && self.ask_in == 0
    }

    pub(crate) fn ask(&mut self) -> Request {
        (self.asked, self.ask_in) = (Some(0), 0);
        Request::Claim(self.how)
    }

    pub(crate) fn reconnected(&mut self, rules: &Rules) -> Option<Request> {
        self.clock = Some(ServerClock { sent: 0, served: 0 });
        let asks = self.how == How::Create || !rules.has(Bug::NoAskAfterReconnect);
        asks.then(|| self.ask())
    }

    pub(crate) fn tick(&mut self, rules: &Rules) {
        self.asked = self.asked.map(|sent| (sent + 1).min(rules.ttl));
        if !rules.has(Bug::NoPoll) || self.how == How::Create {
            self.ask_in = self.ask_in.saturating_sub(1);
        }
        // A reading older than the claim time would date every grant too early to be of use.
        let older = |clock: ServerClock| ServerClock { sent: clock.sent + 1, served: clock.served + 1 };
        self.clock = self.clock.map(older).filter(|clock| clock.sent < rules.claim_time);
        self.pushed = self.pushed.map(|(grant, left)| (grant, left.saturating_sub(1)));
    }

    /// R16: for how long a pushed grant may count as valid. It is taken to be as old as the reading of the server's
    /// clock allows.
    fn trust(&self, push: Aged<Grant>, rules: &Rules, sights: &Sights) -> Ticks {
        if rules.has(Bug::PushIsTruth) {
            return rules.claim_time;
        }
        let Some(clock) = self.clock else {
            sights.add(Sight::UndatedPush);
            return 0;
        };
        let left = rules.claim_time.saturating_sub(clock.sent + push.age.saturating_sub(clock.served));
        if left == 0 {
            sights.add(Sight::LatePush);
        }
        left
    }
}

impl Client {
    /// Handles the server's answer about the claim.
    pub(crate) fn claim_answered(&mut self, reply: Aged<Reply>, rules: &Rules, sights: &Sights) -> Then {
        let Stage::Waiting(waiting) = &mut self.stage else { return Then::Nothing };
        let sent = waiting.asked.take().unwrap_or_default();
        waiting.clock = (sent < rules.claim_time).then_some(ServerClock { sent, served: reply.age });
        match reply.what {
            Reply::Held(grant) => {
                // R1: the lease counts from before the request left.
                let counted = if rules.has(Bug::CountFromAnswer) { 0 } else { sent };
                if counted < rules.ttl {
                    return self.hold(grant, rules.ttl - counted);
                }
                sights.add(Sight::GrantCameTooLate);
                Then::Send(self.leave(None, rules))
            }
            Reply::Waiting { free_in } => {
                waiting.how = How::Ask;
                waiting.ask_in = free_in.map_or(rules.poll, |free_in| free_in.min(rules.poll));
                if waiting.notified { self.listen() } else { Then::Nothing }
            }
            // The claim is gone. But a late request of it may still arrive, and the server need not have a tombstone by
            // then.
            _ if !rules.has(Bug::GoneIsTrusted) => Then::Send(self.leave(None, rules)),
            _ => {
                self.stage = Stage::Done;
                Then::Nothing
            }
        }
    }

    /// A pushed grant arrives. While a request is in flight, the grant is stored until the answer.
    pub(crate) fn receive(&mut self, push: Aged<Grant>, rules: &Rules, sights: &Sights) -> Then {
        let Stage::Waiting(waiting) = &mut self.stage else { return Then::Nothing };
        waiting.pushed = Some((push.what, waiting.trust(push, rules, sights)));
        waiting.notified = true;
        if waiting.asked.is_some() { Then::Nothing } else { self.listen() }
    }

    /// Handles a notification when no request is in flight: the grant counts as long as it is valid, else the client
    /// asks.
    pub(crate) fn listen(&mut self) -> Then {
        let Stage::Waiting(waiting) = &mut self.stage else { return Then::Nothing };
        waiting.notified = false;
        match waiting.pushed.take() {
            Some((grant, left @ 1..)) => self.hold(grant, left),
            _ => Then::Send(waiting.ask()),
        }
    }
}
