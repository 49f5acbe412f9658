//! One client and its one claim: what the keeper, the leases and the guards of `crates/core` do about it, and what
//! `crates/redis/src/in_flight.rs` remembers.

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

/// Where a request of the claim without an answer may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Unsettled {
    #[default]
    Nowhere,
    /// On this connection: a release follows it.
    Here,
    /// On one that broke: it may come after the release.
    Elsewhere,
}

/// A guard stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) token: Token,
    /// For how long the hold is believed in; it is lost at 0.
    pub(crate) left: Ticks,
    /// How long ago the renewal under way left.
    pub(crate) renewal: Option<Ticks>,
    pub(crate) progress: Progress,
}

/// What follows from what a client hears.
#[derive(Clone, Copy)]
pub(crate) enum Then {
    Nothing,
    Send(Request),
    /// From now on it believes to hold.
    Believe(Grant),
    /// Its user was told what became of the hold, and whether that is true.
    Told(bool),
}

impl Client {
    /// The claim is made.
    pub(crate) fn claim(&mut self) -> Request {
        let waiting = Waiting::new();
        let request = Request::Claim(waiting.how);
        self.stage = Stage::Waiting(waiting);
        request
    }

    /// A grant is believed in for `left`.
    pub(crate) fn hold(&mut self, grant: Grant, left: Ticks) -> Then {
        let progress = Progress::Begun;
        self.stage = Stage::Holding(Holding { token: grant.token, left, renewal: None, progress });
        Then::Believe(grant)
    }

    /// The server answered the request under way.
    pub(crate) fn answered(&mut self, reply: Aged<Reply>, rules: &Rules, sights: &Sights) -> Then {
        match &mut self.stage {
            Stage::Waiting(_) => self.placed(reply, rules, sights),
            Stage::Holding(holding) => {
                holding.renewed(reply.what, rules);
                Then::Nothing
            }
            Stage::Leaving(leaving) => {
                let then = leaving.concludes(reply.what);
                self.stage = Stage::Done;
                then
            }
            Stage::Idle | Stage::Done | Stage::Dead => Then::Nothing,
        }
    }

    /// The request under way was not answered in time: it may have been served, or may still be.
    pub(crate) fn unanswered(&mut self, rules: &Rules) -> Then {
        match &mut self.stage {
            Stage::Waiting(waiting) if waiting.asked.is_some() => {
                waiting.asked = None;
                if self.unsettled == Unsettled::Nowhere {
                    self.unsettled = Unsettled::Here;
                }
                if waiting.rang { self.listen() } else { Then::Nothing }
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

    /// The connection broke.
    pub(crate) fn cut(&mut self, rules: &Rules) -> Then {
        let then = self.unanswered(rules);
        if self.unsettled == Unsettled::Here {
            self.unsettled = Unsettled::Elsewhere;
        }
        then
    }

    /// A new connection was made, and the server's clock was asked: everything is asked again.
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

    /// Time passes.
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

    /// The hold that the client believes in now, and for how long.
    pub(crate) fn belief(&self) -> Option<(Token, Ticks)> {
        match &self.stage {
            Stage::Holding(Holding { token, left: left @ 1.., .. }) => Some((*token, *left)),
            _ => None,
        }
    }

    /// Whether it has nothing more to do.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Done | Stage::Dead)
    }
}

impl Holding {
    /// R1: the deadline counts from when the renewal left. R5: nothing revives a lost hold.
    fn renewed(&mut self, said: Reply, rules: &Rules) {
        let sent = self.renewal.take().unwrap_or_default();
        if said == Reply::Lost {
            self.left = 0;
        } else if self.left > 0 {
            self.left = self.left.max(rules.ttl.saturating_sub(sent));
        }
    }
}
