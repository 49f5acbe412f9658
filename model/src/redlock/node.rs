//! One node: a server that knows of no other.

use super::rules::{Bug, Rules, Ticks};

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Node {
    /// What its clock says.
    pub(crate) clock: Ticks,
    /// Whose lock stands there, and until when by its clock.
    pub(crate) lock: Option<(u8, Ticks)>,
    /// The newest token that was written there.
    pub(crate) token: Ticks,
    /// For how long it has no vote still, by its clock.
    pub(crate) young: Ticks,
}

impl Node {
    pub(crate) const fn new(clock: Ticks) -> Self {
        Self { clock, lock: None, token: 0, young: 0 }
    }

    /// Time passes there, or its clock steps.
    pub(crate) fn pass(&mut self, by: Ticks, rules: &Rules) {
        self.clock += by;
        if self.young > 0 {
            self.young = (self.young - by).clamp(0, rules.quarantine);
        }
        self.lock.take_if(|(_, until)| *until <= self.clock);
    }

    pub(crate) fn start(&mut self, forgets: bool, rules: &Rules) {
        if forgets {
            (self.lock, self.token) = (None, 0);
        }
        self.young = if rules.has(Bug::NoQuarantine) { 0 } else { rules.quarantine };
    }

    pub(crate) fn is_of(&self, id: u8) -> bool {
        self.lock.is_some_and(|(holder, _)| holder == id)
    }

    /// Locks it, if it is free and has a vote.
    pub(crate) fn lock(&mut self, id: u8, rules: &Rules) -> bool {
        if self.young > 0 || self.lock.is_some_and(|(holder, _)| holder != id) {
            return false;
        }
        self.lock = Some((id, rules.until(self.clock)));
        true
    }

    /// Writes a token, if it is larger than what stands there.
    pub(crate) fn write(&mut self, id: u8, token: Ticks, rules: &Rules) -> bool {
        if !self.is_of(id) {
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

    /// Makes the lock last longer, if it is there.
    pub(crate) fn renew(&mut self, id: u8, rules: &Rules) -> bool {
        let is_ours = self.is_of(id);
        if is_ours {
            self.lock = Some((id, rules.until(self.clock)));
        }
        is_ours
    }

    /// Sets the lock again, if the name is free.
    pub(crate) fn repair(&mut self, id: u8, rules: &Rules) {
        if self.lock.is_none() {
            self.lock = Some((id, rules.until(self.clock)));
        }
    }

    pub(crate) fn release(&mut self, id: u8, rules: &Rules) {
        if self.is_of(id) || rules.has(Bug::DeleteWithoutCompare) {
            self.lock = None;
        }
    }
}
