//! The end of a claim. Models `keeper/clean.rs` and `local/release.rs` in `crates/core/src/driver`.

use crate::{
    Bug, Rules, Ticks,
    client::{Client, Effect, Stage, UnansweredRequest},
    server::Token,
    waiting::Waiting,
    wire::{Reply, Request},
};

/// The state of a claim that is being released.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaving {
    /// The token of the claim's hold. `None`: the client does not know of a hold.
    pub(crate) token: Option<Token>,
    /// Whether the user waits for the result of the release.
    user_waits: bool,
    /// The ticks for which it is still certain that the lease of the hold has not lapsed.
    pub(crate) lease_left: Ticks,
    /// Whether the release in flight repeats an earlier release of this claim.
    pub(crate) is_repeated: bool,
    /// The true result: whether a release of this claim has freed the hold.
    pub(crate) freed: bool,
}

impl Client {
    /// Drops the guard, or gives up the claim. `hold`: the token of the hold, and for how long the hold is valid.
    pub(crate) fn leave(&mut self, hold: Option<(Token, Ticks)>, rules: &Rules) -> Request {
        if let Stage::Waiting(Waiting { request_age: Some(_), .. }) = self.stage
            && self.unanswered_request == UnansweredRequest::None
        {
            self.unanswered_request = UnansweredRequest::OnConnection;
        }
        let (token, valid_for) = hold.unzip();
        let lease_left = valid_for.unwrap_or_default();
        // If the guard knows that the hold is lost, the user gets the result at once and does not wait.
        self.stage = Stage::Leaving(Leaving {
            token,
            user_waits: lease_left > 0,
            lease_left,
            is_repeated: false,
            freed: false,
        });
        self.release(rules)
    }

    /// The release request. R9: it leaves a tombstone if a request of the claim may arrive after the release.
    pub(crate) fn release(&self, rules: &Rules) -> Request {
        let token = match &self.stage {
            Stage::Leaving(leaving) => leaving.token,
            _ => None,
        };
        Request::Release {
            token,
            mark_dead: self.unanswered_request == UnansweredRequest::OnBrokenConnection
                && !rules.has(Bug::NoTombstone),
        }
    }
}

impl Leaving {
    /// I10: the result that the user gets, and whether it is true.
    pub(crate) fn conclude(&self, reply: Reply) -> Effect {
        if !self.user_waits {
            return Effect::Nothing;
        }
        match reply {
            Reply::Freed => Effect::Reported(self.freed),
            _ if !self.is_repeated => Effect::Reported(!self.freed),
            // The lease has not lapsed, so an earlier release of this claim must have freed the hold.
            _ if self.lease_left > 0 => Effect::Reported(self.freed),
            // The user is told that the result is unknown.
            _ => Effect::Nothing,
        }
    }
}
