//! The verbs on the server: models `claim.lua`, `renew.lua` and `release.lua` in `crates/redis/src/lua`.

use crate::{
    Bug, Event,
    server::{Call, Entry, Holder, Server, Token},
    wire::{Grant, How, Reply, Request},
};

impl Server {
    /// Serves one request of the caller.
    pub(crate) fn serve(&mut self, request: Request, call: &mut Call<'_>) -> Reply {
        match request {
            Request::Claim(how) => self.claim(how, call),
            Request::Renew(token) => self.renew(token, call),
            Request::Release { token, mark_dead } => self.release(token, mark_dead, call),
        }
    }

    /// `claim.lua`: grants the name to the claim, or puts the claim into the queue. If the claim exists already,
    /// answers whether it holds or waits.
    fn claim(&mut self, how: How, call: &mut Call<'_>) -> Reply {
        let (id, rules) = (call.caller, call.rules);
        self.prune(call);
        let barges = how == How::Create && rules.has(Bug::Barge);
        if !barges {
            self.settle(call);
        }
        if let Some(grant) = self.confirmed_grant(call) {
            return Reply::Held(grant);
        }
        if let Some(entry) = self.entries[id] {
            self.entries[id] = Some(Entry { silent: false, left: rules.entry_life });
            if !entry.silent {
                return self.waiting_reply();
            }
            call.events.add(Event::QueuedAgain);
            self.queue.push(id);
            self.settle(call);
            return self.confirmed_grant(call).map_or_else(|| self.waiting_reply(), Reply::Held);
        }
        if self.tombstones[id] > 0 && how == How::Create {
            call.events.add(Event::RefusedByTombstone);
        }
        if how == How::Ask || self.tombstones[id] > 0 {
            return Reply::Gone;
        }
        let is_free = self.lock.is_none() || (self.is_foreign() && rules.has(Bug::TakeWithoutLooking));
        if is_free && (self.queue.is_empty() || barges) {
            let grant = Grant { token: self.mint(), after_lapse: self.lapsed };
            self.set_holder(id, grant.token, rules.ttl, false);
            return Reply::Held(grant);
        }
        self.queue.push(id);
        self.entries[id] = Some(Entry { silent: false, left: rules.entry_life });
        self.waiting_reply()
    }

    /// The grant of the caller, if the caller is the holder. If the grant was pushed, this request of the caller
    /// confirms it.
    fn confirmed_grant(&mut self, call: &Call<'_>) -> Option<Grant> {
        self.holder.filter(|holder| holder.hold.id == call.caller)?;
        self.confirm(call.rules.ttl)
    }

    /// The answer to a waiter. It contains the time until the lock expires, if the name is held.
    fn waiting_reply(&self) -> Reply {
        Reply::Waiting { free_in: self.lock.map(|(_, left)| left) }
    }

    /// `renew.lua`: extends the hold of the caller.
    fn renew(&mut self, token: Token, call: &mut Call<'_>) -> Reply {
        self.prune(call);
        if self.lock.is_none() && call.rules.has(Bug::RenewalTakes) {
            self.set_holder(call.caller, token, call.rules.ttl, false);
        }
        if self.holder.is_some_and(|holder| (holder.hold.id, holder.hold.token) == (call.caller, token)) {
            self.confirm(call.rules.ttl);
            return Reply::Extended;
        }
        call.events.add(Event::RenewedTooLate);
        self.settle(call);
        Reply::Lost
    }

    /// `release.lua`: ends everything that the claim of the caller has, and grants the name to the next claim.
    fn release(&mut self, token: Option<Token>, mark_dead: bool, call: &mut Call<'_>) -> Reply {
        self.prune(call);
        let (id, rules) = (call.caller, call.rules);
        let hold = self.holder.map(|holder| holder.hold);
        let own = hold.filter(|hold| hold.id == id);
        let has_other_grant = own.is_some_and(|hold| token.is_some_and(|token| token != hold.token));
        let reply = if has_other_grant {
            // A late request has granted the claim again, under a token that its client does not know. No other request
            // would end this second grant, so this release ends it.
            if !rules.has(Bug::OtherGrantStays) {
                self.free();
            }
            Reply::Absent
        } else if own.is_some() || (hold.is_some() && rules.has(Bug::DeleteWithoutCompare)) {
            // If the release has no token, the client never knew of its hold and did nothing under it. Then a lapse of
            // an earlier hold is still to be reported to the next holder.
            self.lapsed &= token.is_none();
            self.free();
            Reply::Freed
        } else {
            let was_queued = self.entries[id].is_some();
            self.remove_entry(id);
            let freed = was_queued && (token.is_none() || rules.has(Bug::FreedOutOfOrder));
            if freed { Reply::Freed } else { Reply::Absent }
        };
        if mark_dead && !(has_other_grant && rules.has(Bug::OtherGrantStays)) {
            self.mark_dead(id, rules);
        }
        self.settle(call);
        reply
    }

    /// Ends the current hold.
    fn free(&mut self) {
        if let Some(Holder { hold, .. }) = self.holder.take() {
            self.entries[hold.id] = None;
        }
        self.lock = None;
    }
}
