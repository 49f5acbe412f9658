//! One node: an independent server that knows no other server.

use super::rules::{Bug, Rules, Ticks};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    /// The time that the node's clock shows.
    pub(crate) clock: Ticks,
    /// The owner of the lock on this node, and the time by the node's clock at which the lock expires.
    pub(crate) lock: Option<(u8, Ticks)>,
    /// The newest token that was written to the node.
    pub(crate) token: Ticks,
    /// For how long the node still has no vote after a restart, by its own clock. 0: it has a vote.
    pub(crate) quarantine_left: Ticks,
}

impl Node {
    pub(crate) const fn new(clock: Ticks) -> Self {
        Self { clock, lock: None, token: 0, quarantine_left: 0 }
    }

    /// Advances the clock of the node: time passes, or the clock steps.
    pub(crate) fn advance_clock(&mut self, ticks: Ticks, rules: &Rules) {
        self.clock += ticks;
        if self.quarantine_left > 0 {
            self.quarantine_left = (self.quarantine_left - ticks).clamp(0, rules.quarantine);
        }
        self.lock.take_if(|(_, expiry)| *expiry <= self.clock);
    }

    /// Restarts the node. If `forgets` is true, the node loses its data; otherwise it keeps them.
    pub(crate) fn restart(&mut self, forgets: bool, rules: &Rules) {
        if forgets {
            (self.lock, self.token) = (None, 0);
        }
        self.quarantine_left = if rules.has(Bug::NoQuarantine) { 0 } else { rules.quarantine };
    }

    /// Whether this client has the lock on this node.
    pub(crate) fn is_locked_by(&self, id: u8) -> bool {
        self.lock.is_some_and(|(holder, _)| holder == id)
    }

    /// Sets the lock for a client, unless another client has it or the node has no vote. Returns whether the lock is
    /// set.
    pub(crate) fn lock(&mut self, id: u8, rules: &Rules) -> bool {
        if self.quarantine_left > 0 || self.lock.is_some_and(|(holder, _)| holder != id) {
            return false;
        }
        self.lock = Some((id, rules.expiry(self.clock)));
        true
    }

    /// Writes a token if it is larger than the stored token and the client has the lock. Otherwise writes nothing.
    /// Returns whether the token was written.
    pub(crate) fn write(&mut self, id: u8, token: Ticks, rules: &Rules) -> bool {
        if !self.is_locked_by(id) {
            return false;
        }
        if rules.has(Bug::WriteAnyToken) {
            self.token = token;
            return true;
        }
        if rules.has(Bug::KeepLargerToken) {
            self.token = self.token.max(token);
            return true;
        }
        let larger = self.token < token;
        if larger {
            self.token = token;
        }
        larger
    }

    /// Extends the lock of a client, if the client has the lock. Returns whether the lock was extended.
    pub(crate) fn renew(&mut self, id: u8, rules: &Rules) -> bool {
        let is_ours = self.is_locked_by(id);
        if is_ours {
            self.lock = Some((id, rules.expiry(self.clock)));
        }
        is_ours
    }

    /// Sets the lock for a client if no client has it, even if the node has no vote.
    pub(crate) fn repair(&mut self, id: u8, rules: &Rules) {
        if self.lock.is_none() {
            self.lock = Some((id, rules.expiry(self.clock)));
        }
    }

    /// Deletes the lock of the client.
    pub(crate) fn release(&mut self, id: u8, rules: &Rules) {
        if self.is_locked_by(id) || rules.has(Bug::DeleteWithoutCompare) {
            self.lock = None;
        }
    }
}
