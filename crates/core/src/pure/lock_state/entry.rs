//! The entries of a lock state: holders and waiters.

use std::{sync::Arc, time::Duration};

use crate::{Claim, ClaimId, Grant, Instant, Mode, Previous, Token};

/// The shortest lease of a queue entry: several times the longest poll interval.
pub const MIN_ENTRY_LIFE: Duration = Duration::from_secs(10);

/// The longest lease of a queue entry. A writer that died in the queue keeps new readers from joining the current
/// readers for at most this long.
pub const MAX_ENTRY_LIFE: Duration = Duration::from_secs(60);

/// How long a queue entry lasts after the last request of its claim: the claim's ttl, within
/// [`MIN_ENTRY_LIFE`]..=[`MAX_ENTRY_LIFE`].
#[must_use]
pub fn entry_life(ttl: Duration) -> Duration {
    ttl.clamp(MIN_ENTRY_LIFE, MAX_ENTRY_LIFE)
}

/// A hold, or an ended hold that still blocks the name.
pub(super) struct Holder<C> {
    pub(super) id: ClaimId,
    pub(super) mode: Mode,
    pub(super) token: Token,
    /// How many tokens the grant carries, `token` included.
    pub(super) tokens: u32,
    pub(super) owner: Arc<str>,
    pub(super) since: Instant,
    pub(super) expires: Instant,
    /// How the hold before it ended.
    pub(super) previous: Previous,
    pub(super) state: HoldState<C>,
    pub(super) client: C,
}

/// Whether a hold is confirmed, or why an ended hold still blocks the name.
pub(super) enum HoldState<C> {
    /// Confirmed: its claim was answered, or sent a request after the grant.
    Held,
    /// Granted to a waiting claim that has sent no request after the grant. If the grant lapses, the claim becomes this
    /// silent waiter.
    Pushed(Box<Waiter<C>>),
    /// Broken by an operator: the name stays taken until its holder releases it or its lease ends.
    Broken,
    /// Released, but the name stays taken until `expires`, without a holder.
    MinHold,
}

impl<C> Holder<C> {
    /// The grant to report to its claim, lasting `ttl` from now.
    pub(super) fn grant(&self, ttl: Duration) -> Grant {
        Grant { token: self.token, tokens: self.tokens, ttl: Some(ttl), previous: self.previous }
    }

    /// True for a hold of this claim, broken or not.
    pub(super) fn is_of(&self, id: ClaimId) -> bool {
        self.id == id && !matches!(self.state, HoldState::MinHold)
    }

    pub(super) fn is_broken(&self) -> bool {
        matches!(self.state, HoldState::Broken)
    }

    /// Whether the tokens of the grant include this number.
    pub(super) fn carries(&self, number: u64) -> bool {
        number.checked_sub(self.token.number).is_some_and(|offset| offset < u64::from(self.tokens))
    }

    /// Records a request of its claim, which knows of the grant from now on: the grant lasts `ttl` from now. Never
    /// shortens the lease, because a late request may ask for less.
    pub(super) fn confirm(&mut self, now: Instant, ttl: Duration) {
        self.state = HoldState::Held;
        self.expires = self.expires.max(now.after(ttl));
    }
}

/// A claim in the queue, or a silent claim, which lost its queue entry.
pub(super) struct Waiter<C> {
    pub(super) id: ClaimId,
    pub(super) mode: Mode,
    /// How many tokens its grant is to carry.
    pub(super) tokens: u32,
    pub(super) claim_time: Duration,
    pub(super) owner: Arc<str>,
    pub(super) since: Instant,
    pub(super) expires: Instant,
    pub(super) client: C,
}

impl<C: Clone> Waiter<C> {
    pub(super) fn new(claim: &Claim, client: &C, now: Instant) -> Self {
        Self {
            id: claim.id,
            mode: claim.mode,
            tokens: claim.tokens,
            claim_time: claim.claim_time.min(claim.ttl),
            owner: Arc::clone(&claim.owner),
            since: now,
            expires: now.after(entry_life(claim.ttl)),
            client: client.clone(),
        }
    }

    /// Records a request of its claim: extends the lease of the entry, and sends notifications to `client` from now on.
    pub(super) fn asked_again(&mut self, claim: &Claim, client: &C, now: Instant) {
        self.expires = self.expires.max(now.after(entry_life(claim.ttl)));
        self.client = client.clone();
    }
}
