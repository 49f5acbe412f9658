//! A claim that asks for the name and waits for news: what `wait.rs` and `keeper/drive.rs` in `crates/core/src` do, and
//! how `clock.rs` in `crates/redis/src` dates a pushed grant.

use crate::{
    Bug, Rules, Sight, Sights, Ticks,
    client::{Client, Stage, Then},
    wire::{Aged, Grant, How, Reply, Request},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Waiting {
    pub(crate) how: How,
    /// How long ago the request under way left.
    pub(crate) asked: Option<Ticks>,
    /// When it asks again, if it hears nothing before.
    ask_in: Ticks,
    clock: Option<ServerClock>,
    /// News came during a request.
    pub(crate) rang: bool,
    /// The grant of which they told, and for how long it may be believed in.
    pushed: Option<(Grant, Ticks)>,
}

/// The newest that is known of the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ServerClock {
    /// How long ago the request left that told of it.
    sent: Ticks,
    /// How long ago, by the server's clock, it was served.
    said: Ticks,
}

impl Waiting {
    /// The first request leaves.
    pub(crate) fn new() -> Self {
        Self { how: How::Create, asked: Some(0), ask_in: 0, clock: None, rang: false, pushed: None }
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
        self.clock = Some(ServerClock { sent: 0, said: 0 });
        let asks = self.how == How::Create || !rules.has(Bug::NoAskAfterReconnect);
        asks.then(|| self.ask())
    }

    pub(crate) fn tick(&mut self, rules: &Rules) {
        self.asked = self.asked.map(|sent| (sent + 1).min(rules.ttl));
        if !rules.has(Bug::NoPoll) || self.how == How::Create {
            self.ask_in = self.ask_in.saturating_sub(1);
        }
        // What is older than the claim time dates every grant too early to be worth anything.
        let older = |clock: ServerClock| ServerClock { sent: clock.sent + 1, said: clock.said + 1 };
        self.clock = self.clock.map(older).filter(|clock| clock.sent < rules.claim_time);
        self.pushed = self.pushed.map(|(grant, left)| (grant, left.saturating_sub(1)));
    }

    /// R16: for how long a pushed grant may be believed in. It is taken to be as old as what the server's clock said allows.
    fn trust(&self, push: Aged<Grant>, rules: &Rules, sights: &Sights) -> Ticks {
        if rules.has(Bug::PushIsTruth) {
            return rules.claim_time;
        }
        let Some(clock) = self.clock else {
            sights.add(Sight::UndatedPush);
            return 0;
        };
        let left = rules.claim_time.saturating_sub(clock.sent + push.age.saturating_sub(clock.said));
        if left == 0 {
            sights.add(Sight::LatePush);
        }
        left
    }
}

impl Client {
    /// The server says where the claim stands.
    pub(crate) fn placed(&mut self, reply: Aged<Reply>, rules: &Rules, sights: &Sights) -> Then {
        let Stage::Waiting(waiting) = &mut self.stage else { return Then::Nothing };
        let sent = waiting.asked.take().unwrap_or_default();
        waiting.clock = (sent < rules.claim_time).then_some(ServerClock { sent, said: reply.age });
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
                if waiting.rang { self.listen() } else { Then::Nothing }
            }
            // Gone. But a request of the claim may still arrive, and it need not be known for dead by then.
            _ if !rules.has(Bug::GoneIsTrusted) => Then::Send(self.leave(None, rules)),
            _ => {
                self.stage = Stage::Done;
                Then::Nothing
            }
        }
    }

    /// A pushed grant is heard. During a request it is kept for afterwards.
    pub(crate) fn hear(&mut self, push: Aged<Grant>, rules: &Rules, sights: &Sights) -> Then {
        let Stage::Waiting(waiting) = &mut self.stage else { return Then::Nothing };
        waiting.pushed = Some((push.what, waiting.trust(push, rules, sights)));
        waiting.rang = true;
        if waiting.asked.is_some() { Then::Nothing } else { self.listen() }
    }

    /// News came, and no request is under way: the grant is believed in while it stands, else the client asks.
    pub(crate) fn listen(&mut self) -> Then {
        let Stage::Waiting(waiting) = &mut self.stage else { return Then::Nothing };
        waiting.rang = false;
        match waiting.pushed.take() {
            Some((grant, left @ 1..)) => self.hold(grant, left),
            _ => Then::Send(waiting.ask()),
        }
    }
}
