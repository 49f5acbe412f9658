//! Observes the lock key and the clients from outside, and records violations. Shares no code with the server.

use crate::{
    Id, Rules, Sight, Sights, Ticks, World,
    client::Stage,
    server::{Hold, Server, Token},
    wire::{Grant, Request, Subscription},
};

/// The judge's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Judge {
    /// The newest token that was granted.
    newest: Token,
    /// Whether a client held and has not released in time, and no later holder was notified of that lapse.
    unfinished: bool,
    /// For how long a live client has waited without a holder that knows of its hold.
    pub(crate) idle: Ticks,
    /// Whether a grant had a token that was not larger than an earlier token.
    pub(crate) went_back: bool,
    /// Whether a claim was granted before a live claim that was ahead of it in the queue.
    pub(crate) barged: bool,
    /// Whether a holder was not notified that the previous hold had lapsed.
    pub(crate) unreported: bool,
    /// Whether a user got a false result of a release.
    pub(crate) lied: bool,
}

impl World {
    /// Judges how the server served a request of `caller`; `before` is the server's previous state.
    pub(crate) fn judge(&mut self, before: &Server, caller: Id, request: Request, sights: &Sights) {
        let (old, new) = (before.current_hold(), self.server.current_hold());
        if let Some(old) = old
            && !is_same(new, old)
            && let Request::Release { token: Some(token), .. } = request
            && (old.id, old.token) == (caller, token)
        {
            self.judge.unfinished = false;
            if let Stage::Leaving(leaving) = &mut self.clients[caller].stage {
                leaving.freed = true;
            }
        }
        if let Some(new) = new
            && !is_same(old, new)
        {
            self.judge.went_back |= new.token <= self.judge.newest;
            self.judge.newest = self.judge.newest.max(new.token);
            let waits = |&id: &Id| {
                let leaves = id == caller && matches!(request, Request::Release { .. });
                let lives = before.entries[id].is_some_and(|entry| entry.left > 0);
                lives && !leaves && self.wires[id].subscription != Subscription::Shut
            };
            self.judge.barged |= before.queue.iter().take_while(|id| **id != new.id).any(waits);
            if self.server.entries.iter().flatten().any(|entry| entry.silent) {
                sights.add(Sight::WentOn);
            }
        }
    }
}

fn is_same(one: Option<Hold>, other: Hold) -> bool {
    one.is_some_and(|one| (one.id, one.token) == (other.id, other.token))
}

impl Judge {
    /// Records that a client holds from now on.
    pub(crate) fn hold_began(&mut self, grant: Grant) {
        self.unreported |= self.unfinished && !grant.after_lapse;
        self.unfinished = true;
    }

    /// Lets a tick pass. `idle`: a live client waits, and there is no holder that knows of its hold.
    pub(crate) fn tick(&mut self, idle: bool, rules: &Rules) {
        self.idle = if idle && !rules.slow { (self.idle + 1).min(rules.patience() + 1) } else { 0 };
    }
}
