//! The end of a claim: what `keeper/clean.rs` and `local/release.rs` in `crates/core/src` do.

use crate::{
    Bug, Rules, Ticks,
    client::{Client, Stage, Then, Unsettled},
    server::Token,
    waiting::Waiting,
    wire::{Reply, Request},
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaving {
    /// Of its hold; `None` if it is not known to hold.
    pub(crate) token: Option<Token>,
    /// Somebody waits to be told what became of the hold.
    told: bool,
    /// For how long the lease cannot have lapsed.
    pub(crate) left: Ticks,
    /// The release under way is not the first.
    pub(crate) again: bool,
    /// What really became of the hold: a release of its own freed it.
    pub(crate) freed: bool,
}

impl Client {
    /// The guard is dropped, or nobody waits any more. Of a hold, its token and for how long it is believed in.
    pub(crate) fn leave(&mut self, hold: Option<(Token, Ticks)>, rules: &Rules) -> Request {
        if let Stage::Waiting(Waiting { asked: Some(_), .. }) = self.stage
            && self.unsettled == Unsettled::Nowhere
        {
            self.unsettled = Unsettled::Here;
        }
        let (token, left) = hold.unzip();
        let left = left.unwrap_or_default();
        // Who knows that the hold was lost is told so at once.
        self.stage = Stage::Leaving(Leaving { token, told: left > 0, left, again: false, freed: false });
        self.release(rules)
    }

    /// R9: a tombstone is left if a request of the claim may come after the release.
    pub(crate) fn release(&self, rules: &Rules) -> Request {
        let token = match &self.stage {
            Stage::Leaving(leaving) => leaving.token,
            _ => None,
        };
        Request::Release {
            token,
            mark_dead: self.unsettled == Unsettled::Elsewhere && !rules.has(Bug::NoTombstone),
        }
    }
}

impl Leaving {
    /// I10: what the user is told, and whether that is true.
    pub(crate) fn concludes(&self, said: Reply) -> Then {
        if !self.told {
            return Then::Nothing;
        }
        match said {
            Reply::Freed => Then::Told(self.freed),
            _ if !self.again => Then::Told(!self.freed),
            // A release before this one freed it, for the lease had not lapsed.
            _ if self.left > 0 => Then::Told(self.freed),
            // The user is told that nobody knows.
            _ => Then::Nothing,
        }
    }
}
