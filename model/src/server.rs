//! One name on the server, which is claimed exclusively. Models `crates/redis/src/lua/name.lua`.

use smallvec::SmallVec;

use crate::{
    Bug, Event, EventCounts, Id, Rules, Ticks,
    rules::PerClient,
    wire::{Grant, Wire},
};

/// A token: the number of a grant.
pub(crate) type Token = u8;

/// One name on the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Server {
    /// The lock key, and the ticks until it expires.
    pub(crate) lock: Option<(Value, Ticks)>,
    /// A field of the record: the holder, as far as the server knows.
    pub(crate) holder: Option<Holder>,
    /// A field of the record: whether the last hold lapsed.
    pub(crate) lapsed: bool,
    /// The queue, in the order in which the claims joined it.
    pub(crate) queue: SmallVec<[Id; 4]>,
    /// The entries of claims in the queue, of claims that missed their grant, and of the claim to which a grant was
    /// pushed.
    pub(crate) entries: PerClient<Option<Entry>>,
    /// The tombstone of each claim: for how long a request of the claim cannot create anything.
    pub(crate) tombstones: PerClient<Ticks>,
    /// The newest token.
    pub(crate) counter: Token,
}

/// The value of the lock key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Ours(Hold),
    Foreign,
}

/// A grant as the server stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) id: Id,
    pub(crate) token: Token,
    /// Whether the grant was pushed and no request of the client has confirmed it yet.
    pub(crate) pushed: bool,
}

/// The holder in the record of the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    pub(crate) hold: Hold,
    /// Whether the previous hold ended by a lapse.
    pub(crate) after_lapse: bool,
}

/// A queue entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entry {
    /// Whether the claim missed its grant. Then the claim is out of the queue until it asks again.
    pub(crate) silent: bool,
    /// The ticks until the entry expires.
    pub(crate) left: Ticks,
}

/// The context in which the server serves one request.
pub(crate) struct Call<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) events: &'a EventCounts,
    pub(crate) wires: &'a mut PerClient<Wire>,
    /// The claim that sent the request. It gets an answer, so it needs no notification.
    pub(crate) caller: Id,
}

impl Server {
    /// The current hold.
    pub(crate) fn current_hold(&self) -> Option<Hold> {
        match self.lock {
            Some((Value::Ours(hold), _)) => Some(hold),
            _ => None,
        }
    }

    /// Whether another program holds the lock.
    pub(crate) fn is_foreign(&self) -> bool {
        self.lock.is_some() && self.holder.is_none()
    }

    /// Removes everything that has expired.
    pub(crate) fn prune(&mut self, call: &Call<'_>) {
        if let Some(Holder { hold, .. }) = self.holder
            && self.current_hold() != Some(hold)
        {
            self.holder = None;
            self.lapse(hold, call);
        }
        if !call.rules.has(Bug::StopAtExpired) {
            for id in call.rules.ids() {
                if self.entries[id].is_some_and(|entry| entry.left == 0) {
                    self.remove_entry(id);
                }
            }
        }
    }

    /// Handles a hold whose lease is over.
    fn lapse(&mut self, hold: Hold, call: &Call<'_>) {
        self.lapsed = !call.rules.has(Bug::LapseForgotten);
        if !hold.pushed {
            self.mark_dead(hold.id, call.rules);
        } else if call.rules.has(Bug::LapsedStaysAtHead) && self.entries[hold.id].is_some() {
            self.queue.insert(0, hold.id);
        } else {
            call.events.add(Event::MissedItsGrant);
            self.silence(hold.id);
        }
    }

    /// Takes a claim out of the queue until it asks again, or until its entry expires.
    fn silence(&mut self, id: Id) {
        match &mut self.entries[id] {
            Some(entry) if entry.left > 0 => entry.silent = true,
            entry => *entry = None,
        }
    }

    /// Leaves a tombstone of the claim, so that a late request cannot revive the claim.
    pub(crate) fn mark_dead(&mut self, id: Id, rules: &Rules) {
        self.tombstones[id] = rules.request_life;
    }

    /// Removes a claim from the queue, with its entry.
    pub(crate) fn remove_entry(&mut self, id: Id) {
        self.queue.retain(|other| *other != id);
        self.entries[id] = None;
    }

    /// If the name is free, grants it to the first claim in the queue that has a listener, and pushes the grant.
    pub(crate) fn settle(&mut self, call: &mut Call<'_>) {
        // Another program holds the name. A claim without a listener could not be notified when that program releases
        // the name. So such a claim is taken out of the queue already now.
        while self.is_foreign()
            && let Some(&id) = self.queue.first()
            && id != call.caller
            && !call.wires[id].has_listener()
            && !call.rules.has(Bug::StopWithoutListener)
        {
            call.events.add(Event::PassedOver);
            self.queue.remove(0);
            self.silence(id);
        }
        while self.holder.is_none()
            && !self.is_foreign()
            && let Some(&id) = self.queue.first()
        {
            self.queue.remove(0);
            if call.rules.has(Bug::StopAtExpired) && self.entries[id].is_some_and(|entry| entry.left == 0) {
                self.entries[id] = None;
                return;
            }
            let token = if call.rules.has(Bug::SameToken) { self.counter } else { self.mint() };
            let grant = Grant { token, after_lapse: self.lapsed };
            if id == call.caller {
                self.set_holder(id, token, call.rules.claim_time, true);
            } else if call.wires[id].publish(grant) {
                call.events.add(Event::HandedOver);
                self.set_holder(id, token, call.rules.claim_time, true);
            } else {
                call.events.add(Event::PassedOver);
                self.silence(id);
                if call.rules.has(Bug::StopWithoutListener) {
                    return;
                }
            }
        }
    }

    /// The next token.
    pub(crate) fn mint(&mut self) -> Token {
        self.counter += 1;
        self.counter
    }

    /// Stores a grant whose lease lasts for `lease`.
    pub(crate) fn set_holder(&mut self, id: Id, token: Token, lease: Ticks, pushed: bool) {
        let hold = Hold { id, token, pushed };
        self.lock = Some((Value::Ours(hold), lease));
        self.holder = Some(Holder { hold, after_lapse: self.lapsed });
    }

    /// Confirms the current hold, because a request of its claim has arrived and the answer tells the client of the
    /// grant. From now on the hold lasts at least for the ttl.
    pub(crate) fn confirm(&mut self, ttl: Ticks) -> Option<Grant> {
        let (Some(holder), Some((_, left))) = (&mut self.holder, self.lock) else { return None };
        if holder.hold.pushed {
            holder.hold.pushed = false;
            self.entries[holder.hold.id] = None;
        }
        self.lock = Some((Value::Ours(holder.hold), left.max(ttl)));
        Some(Grant { token: holder.hold.token, after_lapse: holder.after_lapse })
    }

    /// Lets a tick pass.
    pub(crate) fn tick(&mut self, rules: &Rules) {
        self.lock = self.lock.map(|(value, left)| (value, left - 1)).filter(|(_, left)| *left > 0);
        if !rules.has(Bug::EntriesNeverExpire) {
            self.entries.iter_mut().flatten().for_each(|entry| entry.left = entry.left.saturating_sub(1));
        }
        self.tombstones.iter_mut().for_each(|left| *left = left.saturating_sub(1));
    }

    /// Whether the server has a hold or an entry of the claim.
    pub(crate) fn knows(&self, id: Id) -> bool {
        self.current_hold().is_some_and(|hold| hold.id == id) || self.entries[id].is_some()
    }
}
