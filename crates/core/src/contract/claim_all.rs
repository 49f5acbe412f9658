//! The answer of an engine to claims of several names in one step: all of them, or none.

use crate::{EngineError, Grant, Hint};

/// The answer to [`Engine::claim_all`](crate::Engine::claim_all). No answer tells of some holds only.
#[derive(Debug)]
pub enum AllAnswer {
    /// Every claim holds its name: one grant per claim, in the order of the claims.
    Held(Vec<Grant>),
    /// A name is taken. No claim holds, and nothing of any claim remains on the engine.
    Taken {
        /// The index of the first claim whose name is taken.
        index: usize,
        /// What the engine knows about that claim.
        hint: Hint,
    },
    /// The engine refuses one of the claims. No claim holds, and nothing of any claim remains on the engine.
    Refused {
        /// The index of that claim.
        index: usize,
        /// Why; a [`Fault`](crate::Fault) that says that the claim was certainly not applied.
        error: EngineError,
    },
}
