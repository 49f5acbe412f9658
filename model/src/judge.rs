//! The judge observes the lock key and the clients from outside, and records violations. It shares no code with the
//! server of the model.

use crate::{
    Event, EventCounts, Id, Rules, Ticks, World,
    client::Stage,
    server::{Hold, Server, Token},
    wire::{Grant, Request, Subscription},
};

/// The judge's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Judge {
    /// The newest token that was granted.
    newest: Token,
    /// Whether the last holder has not released its hold before the end of the lease. Then the next holder must be told
    /// that the previous hold lapsed.
    last_hold_unreleased: bool,
    /// The ticks for which some live client has waited in vain, that is, while the name was held neither by another
    /// program nor by a client that knew of its own hold.
    pub(crate) idle_time: Ticks,
    /// Whether a token was granted that was not larger than all tokens granted before.
    pub(crate) token_went_back: bool,
    /// Whether a claim was granted while a live claim was ahead of it in the queue.
    pub(crate) queue_was_passed: bool,
    /// Whether a holder was not told that the previous hold had lapsed.
    pub(crate) lapse_unreported: bool,
    /// Whether a user got a false result of a release.
    pub(crate) release_lied: bool,
}

impl World {
    /// Judges how the server served a request of `caller`. `before` is the state of the server before the request.
    pub(crate) fn judge(&mut self, before: &Server, caller: Id, request: Request, events: &EventCounts) {
        let (old_hold, new_hold) = (before.current_hold(), self.server.current_hold());
        if let Some(old) = old_hold
            && !is_same(new_hold, old)
            && let Request::Release { token: Some(token), .. } = request
            && (old.id, old.token) == (caller, token)
        {
            self.judge.last_hold_unreleased = false;
            if let Stage::Leaving(leaving) = &mut self.clients[caller].stage {
                leaving.freed = true;
            }
        }
        if let Some(new) = new_hold
            && !is_same(old_hold, new)
        {
            self.judge.token_went_back |= new.token <= self.judge.newest;
            self.judge.newest = self.judge.newest.max(new.token);
            let waits_ahead = |&id: &Id| {
                let leaves = id == caller && matches!(request, Request::Release { .. });
                let is_live = before.entries[id].is_some_and(|entry| entry.left > 0);
                is_live && !leaves && self.wires[id].subscription != Subscription::Shut
            };
            self.judge.queue_was_passed |=
                before.queue.iter().take_while(|id| **id != new.id).any(waits_ahead);
            if self.server.entries.iter().flatten().any(|entry| entry.silent) {
                events.add(Event::PassedToNextWaiter);
            }
        }
    }
}

fn is_same(one: Option<Hold>, other: Hold) -> bool {
    one.is_some_and(|one| (one.id, one.token) == (other.id, other.token))
}

impl Judge {
    /// Records that a client begins to hold.
    pub(crate) fn hold_began(&mut self, grant: Grant) {
        self.lapse_unreported |= self.last_hold_unreleased && !grant.after_lapse;
        self.last_hold_unreleased = true;
    }

    /// Lets a tick pass. `is_idle` says that a live client waits, but the name is held neither by another program nor
    /// by a client that knows of its own hold.
    pub(crate) fn tick(&mut self, is_idle: bool, rules: &Rules) {
        self.idle_time =
            if is_idle && !rules.slow { (self.idle_time + 1).min(rules.patience() + 1) } else { 0 };
    }
}
