//! One claim of the table.

use std::time::Duration;

use crate::{Claim, Instant, Mode, Name, lock_state::entry_life};

/// One claim.
pub struct ClaimEntry<O, B, D> {
    /// What the engine keeps of it.
    pub data: D,
    /// The name that it claims.
    pub name: Name,
    /// In which mode.
    pub mode: Mode,
    /// How long a grant that was pushed to it lasts until it speaks.
    pub claim_time: Duration,
    /// Its state.
    pub state: ClaimState<O, B>,
    /// How long a claim in the queue lasts after it last spoke.
    pub(super) life: Duration,
    pub(super) until: Instant,
    /// When it is looked at whether its time is over.
    pub(super) due: Instant,
    /// When its watch begins, once it holds.
    pub(super) watched_at: Instant,
}

/// The state of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClaimState<O, B> {
    /// A request that makes it is under way, or its outcome is unknown.
    Made,
    /// It waits in the queue.
    Waiting {
        /// What it has on the server.
        own: O,
        /// What it waits for.
        before: B,
    },
    /// It holds.
    Held {
        /// What it has on the server.
        own: O,
        /// Its client asked for it since it was granted, and so knows of the hold.
        spoken: bool,
    },
    /// It did not speak in time and is being ended.
    Ending {
        /// What it has on the server, if that is known.
        own: Option<O>,
        /// It was granted and never heard of it: it may take a new place afterwards.
        again: bool,
    },
    /// Nothing comes of it. Its release follows.
    Gone,
    /// It was granted and did not speak in time. Nothing of it is on the server; it takes a new place when it speaks.
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
        let life = entry_life(claim.ttl);
        Self {
            data,
            name: claim.name.clone(),
            mode: claim.mode,
            claim_time: claim.claim_time.min(claim.ttl),
            state: ClaimState::Made,
            life,
            until: now.after(life),
            due: now.after(life),
            watched_at: Instant::NEVER,
        }
    }

    /// It spoke at `now`: it lives on, and takes a new place if it lost the old one.
    pub fn speaks(&mut self, now: Instant) {
        if matches!(self.state, ClaimState::Lapsed) {
            self.state = ClaimState::Made;
        }
        if matches!(self.state, ClaimState::Made | ClaimState::Waiting { .. }) {
            self.until = self.until.max(now.after(self.life));
        }
    }

    /// It waits, and spoke at `now`.
    pub fn waits(&mut self, own: O, before: B, now: Instant) {
        self.state = ClaimState::Waiting { own, before };
        self.speaks(now);
    }
}

impl<O, B, D> std::fmt::Debug for ClaimEntry<O, B, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClaimEntry")
            .field("name", &self.name)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}
