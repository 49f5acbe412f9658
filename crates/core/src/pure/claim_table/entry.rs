//! One claim of the claim table.

use std::time::Duration;

use super::WATCHED_CLAIM_LIFE;
use crate::{Claim, Instant, Mode, Name};

/// One claim.
pub struct ClaimEntry<O, B, D> {
    /// Further data of the engine.
    pub data: D,
    /// The name that it claims.
    pub name: Name,
    /// The mode of the claim.
    pub mode: Mode,
    /// The number of tokens that the claim asked for.
    pub tokens: u32,
    /// How long a grant pushed to the claim lasts without a request of the claim.
    pub claim_time: Duration,
    /// Its state.
    pub state: ClaimState<O, B>,
    /// When the claim ends, unless it sends a request before.
    pub(super) expires: Instant,
    /// When the claim is checked for expiry.
    pub(super) next_check: Instant,
    /// When the watch of its hold begins; `NEVER` before it holds.
    pub(super) watch_from: Instant,
}

/// The state of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState<O, B> {
    /// The request that creates the claim on the server is in flight, or its outcome is unknown.
    Made,
    /// It waits in the queue.
    Waiting {
        /// What it has on the server.
        own: O,
        /// What is ahead of it on the server: what it waits for.
        blocker: B,
    },
    /// It holds.
    Held {
        /// What it has on the server.
        own: O,
        /// Its client asked for it after the grant, and so knows of the hold.
        confirmed: bool,
    },
    /// It sent no request in time and is being ended.
    Ending {
        /// What it has on the server, if that is known.
        own: Option<O>,
        /// The claim was granted, but no request of the claim confirmed the grant: when the end is done, the next
        /// request of the claim enters the queue again.
        may_requeue: bool,
    },
    /// It ended without a hold and can never be granted. Its release follows.
    Gone,
    /// It was granted and sent no request in time. The server has nothing of it; its next request enters the queue
    /// again.
    Lapsed,
}

impl<O, B> ClaimState<O, B> {
    /// What the claim has on the server, as far as that is known.
    pub const fn own(&self) -> Option<&O> {
        match self {
            Self::Waiting { own, .. } | Self::Held { own, .. } => Some(own),
            Self::Ending { own, .. } => own.as_ref(),
            Self::Made | Self::Gone | Self::Lapsed => None,
        }
    }
}

impl<O, B, D> ClaimEntry<O, B, D> {
    pub(super) fn new(claim: &Claim, data: D, now: Instant) -> Self {
        let expires = now.after(WATCHED_CLAIM_LIFE);
        Self {
            data,
            name: claim.name.clone(),
            mode: claim.mode,
            tokens: claim.tokens,
            claim_time: claim.claim_time.min(claim.ttl),
            state: ClaimState::Made,
            expires,
            next_check: expires,
            watch_from: Instant::NEVER,
        }
    }

    /// Records a request of the claim at `now`: extends its time, and makes a lapsed claim new, so that it enters the
    /// queue again.
    pub fn asked_again(&mut self, now: Instant) {
        if matches!(self.state, ClaimState::Lapsed) {
            self.state = ClaimState::Made;
        }
        if matches!(self.state, ClaimState::Made | ClaimState::Waiting { .. }) {
            self.expires = self.expires.max(now.after(WATCHED_CLAIM_LIFE));
        }
    }

    /// Records that the claim waits, by the answer to its request at `now`.
    pub fn waits(&mut self, own: O, blocker: B, now: Instant) {
        self.state = ClaimState::Waiting { own, blocker };
        self.asked_again(now);
    }
}

impl<O, B, D> std::fmt::Debug for ClaimEntry<O, B, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimEntry")
            .field("name", &self.name)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
