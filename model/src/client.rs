//! One client and its one claim: models the keeper, the leases and the guards of `crates/core`, and the requests in
//! flight of `crates/core/src/pure/in_flight.rs`.

use crate::{
    Bug, Rules, Sights, Ticks,
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
    pub(crate) unsettled: Unsettled,
}

/// The stage of the client's claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Waiting(Waiting),
    Holding(Holding),
    Leaving(Leaving),
    Done,
    Dead,
}

/// Where a request of the claim may be that has no answer yet, although the client has stopped waiting for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Unsettled {
    #[default]
    Nowhere,
    /// On the current connection: a release is served after it.
    Here,
    /// On a broken connection: it may arrive after the release.
    Elsewhere,
}

/// The state of a client that holds a guard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) token: Token,
    /// For how long the hold is still valid; the hold is lost at 0.
    pub(crate) left: Ticks,
    /// How long ago the renewal in flight was sent.
    pub(crate) renewal: Option<Ticks>,
    pub(crate) progress: Progress,
}

/// The consequence of a message to a client.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    Nothing,
    Send(Request),
    /// The client holds from now on.
    Hold(Grant),
    /// The user gets the result of the release; `true` if the result is true.
    Reported(bool),
}

impl Client {
    /// Begins the claim. Returns its first request.
    pub(crate) fn claim(&mut self) -> Request {
        let waiting = Waiting::new();
        let request = Request::Claim(waiting.how);
        self.stage = Stage::Waiting(waiting);
        request
    }

    /// Makes the client a holder, whose grant is valid for `left`.
    pub(crate) fn hold(&mut self, grant: Grant, left: Ticks) -> Then {
        let progress = Progress::Begun;
        self.stage = Stage::Holding(Holding { token: grant.token, left, renewal: None, progress });
        Then::Hold(grant)
    }

    /// Handles the answer to the request in flight.
    pub(crate) fn answered(&mut self, reply: Aged<Reply>, rules: &Rules, sights: &Sights) -> Then {
        match &mut self.stage {
            Stage::Waiting(_) => self.claim_answered(reply, rules, sights),
            Stage::Holding(holding) => {
                holding.renewed(reply.what, rules);
                Then::Nothing
            }
            Stage::Leaving(leaving) => {
                let then = leaving.conclude(reply.what);
                self.stage = Stage::Done;
                then
            }
            Stage::Idle | Stage::Done | Stage::Dead => Then::Nothing,
        }
    }

    /// Stops waiting for the request in flight, which may have been served, or may be served later.
    pub(crate) fn unanswered(&mut self, rules: &Rules) -> Then {
        match &mut self.stage {
            Stage::Waiting(waiting) if waiting.asked.is_some() => {
                waiting.asked = None;
                if self.unsettled == Unsettled::Nowhere {
                    self.unsettled = Unsettled::Here;
                }
                if waiting.notified { self.listen() } else { Then::Nothing }
            }
            Stage::Holding(holding) => {
                if let Some(sent) = holding.renewal.take()
                    && rules.has(Bug::UnknownExtends)
                {
                    holding.left = rules.ttl - sent;
                }
                Then::Nothing
            }
            Stage::Leaving(leaving) => {
                leaving.again = true;
                Then::Send(self.release(rules))
            }
            _ => Then::Nothing,
        }
    }

    /// Handles the break of the connection.
    pub(crate) fn cut(&mut self, rules: &Rules) -> Then {
        let then = self.unanswered(rules);
        if self.unsettled == Unsettled::Here {
            self.unsettled = Unsettled::Elsewhere;
        }
        then
    }

    /// Handles a new connection, on which the server's clock is known. Returns the request with which the client asks
    /// again.
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
        holding.renewal = Some(0);
        Some(Request::Renew(holding.token))
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        match &mut self.stage {
            Stage::Waiting(waiting) => waiting.tick(rules),
            Stage::Holding(holding) => {
                holding.left = holding.left.saturating_sub(1);
                holding.renewal = holding.renewal.map(|sent| (sent + 1).min(rules.ttl));
            }
            Stage::Leaving(leaving) => leaving.left = leaving.left.saturating_sub(1),
            Stage::Idle | Stage::Done | Stage::Dead => {}
        }
    }

    /// The token of the hold that is valid now, and for how long.
    pub(crate) fn valid_hold(&self) -> Option<(Token, Ticks)> {
        match &self.stage {
            Stage::Holding(Holding { token, left: left @ 1.., .. }) => Some((*token, *left)),
            _ => None,
        }
    }

    /// Whether the client has nothing left to do.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Dead)
    }
}

impl Holding {
    /// R1: the deadline counts from when the renewal left. R5: nothing revives a lost hold.
    fn renewed(&mut self, reply: Reply, rules: &Rules) {
        let sent = self.renewal.take().unwrap_or_default();
        if reply == Reply::Lost {
            self.left = 0;
        } else if self.left > 0 {
            self.left = self.left.max(rules.ttl.saturating_sub(sent));
        }
    }
}
