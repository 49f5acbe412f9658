//! Expiry, and the one place where claims in the queue are granted.

use std::time::Duration;

use super::{
    ENDED_LIFE, LockState, MAX_HOLDERS, MAX_TOKENS, Pushed, StepContext,
    entry::{HoldState, Holder, Waiter},
};
use crate::{Grant, Instant, Mode, Previous, Token};

impl<C: Clone> LockState<C> {
    /// Drops expired entries, and grants to the head of the queue as long as its mode is compatible with the holds.
    pub fn settle(&mut self, step: &mut StepContext<'_, C>) {
        self.prune(step);
        if self.wait_queue.is_none() {
            return;
        }
        let mut tally = self.tally();
        while let Some(mode) = self.head_mode().filter(|&mode| tally.fits(mode)) {
            tally.add(mode);
            self.push_to_head(step);
        }
        self.drop_empty_queue();
    }

    /// The mode of the claim at the head of the queue.
    fn head_mode(&self) -> Option<Mode> {
        Some(self.wait_queue.as_ref()?.waiting.front()?.mode)
    }

    /// Drops expired entries.
    pub(super) fn prune(&mut self, step: &mut StepContext<'_, C>) {
        let now = step.now;
        if now < self.earliest_expiry {
            return;
        }
        let mut lapsed: Vec<_> = self.holders.extract_if(.., |holder| holder.expires <= now).collect();
        // In the order in which they ended: the end of a hold counts for holds concurrent with it, not for later ones.
        lapsed.sort_by_key(|holder| holder.expires);
        for holder in lapsed {
            self.lapse(holder, step);
        }
        if let Some(wait_queue) = &mut self.wait_queue {
            wait_queue.prune(now);
        }
        self.drop_empty_queue();
        self.earliest_expiry = self.next_expiry();
    }

    /// Handles a hold whose lease has ended.
    fn lapse(&mut self, holder: Holder<C>, step: &mut StepContext<'_, C>) {
        match holder.state {
            HoldState::Held => {
                self.record_end(holder.token, Previous::Lapsed, holder.expires);
                step.add_tombstone(holder.id);
            }
            HoldState::Broken => {
                self.record_end(holder.token, Previous::Broken, holder.expires);
                step.add_tombstone(holder.id);
            }
            HoldState::MinHold => {}
            HoldState::Pushed(waiter) => {
                // Its client may have received the notification and worked until the deadline. So the next grant
                // reports a lapsed hold.
                self.record_end(holder.token, Previous::Lapsed, holder.expires);
                self.wait_queue_mut().silent.push(*waiter);
            }
        }
    }

    /// Remembers, for the next grant, how and when the hold with this token ended. Of concurrent holds, the worst end
    /// counts.
    pub(super) fn record_end(&mut self, token: Token, end: Previous, ended_at: Instant) {
        let last_end = &mut self.last_end;
        let was_concurrent = token.number <= last_end.newest_token;
        last_end.previous = if was_concurrent { last_end.previous.worse_of(end) } else { end };
        last_end.newest_token = self.newest_token;
        last_end.remembered_until = last_end.remembered_until.max(ended_at.after(ENDED_LIFE));
    }

    /// Grants to the head of the queue, and adds the grant to those to be pushed.
    fn push_to_head(&mut self, step: &mut StepContext<'_, C>) {
        let Some(waiter) = self.wait_queue_mut().waiting.pop_front() else { return };
        let (id, client) = (waiter.id, waiter.client.clone());
        let claim_time = waiter.claim_time;
        let pushed = true;
        let grant = self.grant_to(waiter, claim_time, pushed, step);
        step.pushed.push(Pushed { client, id, grant });
    }

    /// Makes a claim a holder for the time `ttl` and mints its tokens. `pushed`: its client does not know of the grant
    /// yet.
    pub(super) fn grant_to(
        &mut self,
        waiter: Waiter<C>,
        ttl: Duration,
        pushed: bool,
        step: &mut StepContext<'_, C>,
    ) -> Grant {
        let tokens = waiter.tokens.clamp(1, MAX_TOKENS);
        let token = (step.mint)(tokens);
        debug_assert!(token.number > self.newest_token, "tokens grow");
        self.newest_token = token.number + u64::from(tokens - 1);
        let holder = Holder {
            id: waiter.id,
            mode: waiter.mode,
            token,
            tokens,
            owner: waiter.owner.clone(),
            since: step.now,
            expires: step.now.after(ttl),
            previous: self.last_end.previous,
            client: waiter.client.clone(),
            state: if pushed { HoldState::Pushed(Box::new(waiter)) } else { HoldState::Held },
        };
        self.earliest_expiry = self.earliest_expiry.min(holder.expires);
        let grant = holder.grant(ttl);
        if self.holders.is_empty() {
            // Most names have one holder: by default a vector would reserve room for four.
            self.holders.reserve_exact(1);
        }
        self.holders.push(holder);
        grant
    }

    fn drop_empty_queue(&mut self) {
        if self.wait_queue.as_ref().is_some_and(|wait_queue| wait_queue.len() == 0) {
            self.wait_queue = None;
        }
    }
}

impl<C> LockState<C> {
    /// The sum of all current holds.
    pub(super) fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for holder in &self.holders {
            tally.add(holder.mode);
        }
        tally
    }
}

/// The sum of all current holds.
#[derive(Default)]
pub(super) struct Tally {
    holders: usize,
    exclusive: bool,
    permits: u64,
}

impl Tally {
    /// Whether a claim of this mode can be granted beside the current holds.
    pub(super) fn fits(&self, mode: Mode) -> bool {
        if self.holders >= MAX_HOLDERS {
            return false;
        }
        match mode {
            Mode::Exclusive => self.holders == 0,
            Mode::Shared => !self.exclusive,
            Mode::Permits { count, limit } => self.permits + u64::from(count) <= u64::from(limit),
        }
    }

    fn add(&mut self, mode: Mode) {
        self.holders += 1;
        match mode {
            Mode::Exclusive => self.exclusive = true,
            Mode::Shared => {}
            Mode::Permits { count, .. } => self.permits += u64::from(count),
        }
    }
}
