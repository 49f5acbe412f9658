//! One client and its one claim. Models the keeper, the leases and the guards of `crates/core`, and the requests in
//! flight of `crates/core/src/pure/in_flight.rs`.

use crate::{
    Bug, EventCounts, Rules, Ticks,
    leaving::Leaving,
    resource::Progress,
    server::Token,
    waiting::Waiting,
    wire::{Aged, Grant, Reply, Request},
};

/// One client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) stage: Stage,
    pub(crate) unanswered_request: UnansweredRequest,
}

/// The stage of the client's claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// The client has not claimed yet.
    #[default]
    Idle,
    Waiting(Waiting),
    Holding(Holding),
    /// The client releases its hold, or gives up its claim.
    Leaving(Leaving),
    /// The claim of the client is over.
    Done,
    /// The client has died.
    Dead,
}

/// Whether a request without an answer may still arrive at the server, although the client does not wait for the answer
/// any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum UnansweredRequest {
    /// There is no such request.
    #[default]
    None,
    /// Such a request is on the current connection. The server serves it before a release that is sent later.
    OnConnection,
    /// Such a request is on a broken connection. It may arrive after the release.
    OnBrokenConnection,
}

/// The state of a client that holds a guard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) token: Token,
    /// For how long the hold is still valid. At 0 the hold is lost.
    pub(crate) valid_for: Ticks,
    /// How long ago the renewal in flight was sent. `None`: no renewal is in flight.
    pub(crate) renewal_age: Option<Ticks>,
    pub(crate) progress: Progress,
}

/// What the client does because of a message.
#[derive(Clone, Copy)]
pub(crate) enum Effect {
    Nothing,
    Send(Request),
    /// The client begins to hold.
    Hold(Grant),
    /// The user gets the result of the release. The flag says whether this result is true.
    Reported(bool),
}

impl Client {
    /// Begins the claim. Returns the first request of the claim.
    pub(crate) fn claim(&mut self) -> Request {
        let waiting = Waiting::new();
        let request = Request::Claim(waiting.how);
        self.stage = Stage::Waiting(waiting);
        request
    }

    /// Makes the client a holder. Its grant is valid for `valid_for`.
    pub(crate) fn hold(&mut self, grant: Grant, valid_for: Ticks) -> Effect {
        let progress = Progress::Begun;
        self.stage = Stage::Holding(Holding { token: grant.token, valid_for, renewal_age: None, progress });
        Effect::Hold(grant)
    }

    /// Handles the answer to the request in flight.
    pub(crate) fn answered(&mut self, reply: Aged<Reply>, rules: &Rules, events: &EventCounts) -> Effect {
        match &mut self.stage {
            Stage::Waiting(_) => self.claim_answered(reply, rules, events),
            Stage::Holding(holding) => {
                holding.renewed(reply.message, rules);
                Effect::Nothing
            }
            Stage::Leaving(leaving) => {
                let effect = leaving.conclude(reply.message);
                self.stage = Stage::Done;
                effect
            }
            Stage::Idle | Stage::Done | Stage::Dead => Effect::Nothing,
        }
    }

    /// Stops waiting for the answer to the request in flight. The server may have served this request already, or may
    /// serve it later.
    pub(crate) fn unanswered(&mut self, rules: &Rules) -> Effect {
        match &mut self.stage {
            Stage::Waiting(waiting) if waiting.request_age.is_some() => {
                waiting.request_age = None;
                if self.unanswered_request == UnansweredRequest::None {
                    self.unanswered_request = UnansweredRequest::OnConnection;
                }
                if waiting.notified { self.handle_notification() } else { Effect::Nothing }
            }
            Stage::Holding(holding) => {
                if let Some(age) = holding.renewal_age.take()
                    && rules.has(Bug::UnknownExtends)
                {
                    holding.valid_for = rules.ttl - age;
                }
                Effect::Nothing
            }
            Stage::Leaving(leaving) => {
                leaving.is_repeated = true;
                Effect::Send(self.release(rules))
            }
            _ => Effect::Nothing,
        }
    }

    /// Handles the break of the connection.
    pub(crate) fn break_connection(&mut self, rules: &Rules) -> Effect {
        let effect = self.unanswered(rules);
        if self.unanswered_request == UnansweredRequest::OnConnection {
            self.unanswered_request = UnansweredRequest::OnBrokenConnection;
        }
        effect
    }

    /// Handles a new connection, whose first answer gives the server's clock. Returns the request that the client sends
    /// on it, if any.
    pub(crate) fn reconnected(&mut self, rules: &Rules) -> Option<Request> {
        match &mut self.stage {
            Stage::Waiting(waiting) => waiting.reconnected(rules),
            Stage::Leaving(_) => Some(self.release(rules)),
            _ => None,
        }
    }

    /// Renews the hold.
    pub(crate) fn renew(&mut self) -> Option<Request> {
        let Stage::Holding(holding) = &mut self.stage else { return None };
        holding.renewal_age = Some(0);
        Some(Request::Renew(holding.token))
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        match &mut self.stage {
            Stage::Waiting(waiting) => waiting.tick(rules),
            Stage::Holding(holding) => {
                holding.valid_for = holding.valid_for.saturating_sub(1);
                holding.renewal_age = holding.renewal_age.map(|age| (age + 1).min(rules.ttl));
            }
            Stage::Leaving(leaving) => leaving.lease_left = leaving.lease_left.saturating_sub(1),
            Stage::Idle | Stage::Done | Stage::Dead => {}
        }
    }

    /// The token of the client's hold if the hold is valid now, and for how long it is valid.
    pub(crate) fn valid_hold(&self) -> Option<(Token, Ticks)> {
        match &self.stage {
            Stage::Holding(Holding { token, valid_for: valid_for @ 1.., .. }) => Some((*token, *valid_for)),
            _ => None,
        }
    }

    /// Whether the client has nothing left to do.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Dead)
    }
}

impl Holding {
    /// R1: the new deadline counts from the time at which the renewal was sent. R5: nothing revives a lost hold.
    fn renewed(&mut self, reply: Reply, rules: &Rules) {
        let age = self.renewal_age.take().unwrap_or_default();
        if reply == Reply::Lost {
            self.valid_for = 0;
        } else if self.valid_for > 0 {
            self.valid_for = self.valid_for.max(rules.ttl.saturating_sub(age));
        }
    }
}
