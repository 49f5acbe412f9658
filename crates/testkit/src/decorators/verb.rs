//! The verbs of an engine; decorators count, delay and fail calls by verb.

/// A verb of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `claim`, with either `How`, and `claim_all`.
    Claim,
    /// `renew`.
    Renew,
    /// `release`.
    Release,
    /// `notifications`: one call is one batch.
    Notification,
    /// `write` of a memo.
    Memo,
    /// `downgrade` and `upgrade` of a hold.
    Convert,
    /// `ping`, `guarantee`, `list`, `show` and `break_hold`, and `read` of a memo.
    Inspect,
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 7] = [
        Self::Claim,
        Self::Renew,
        Self::Release,
        Self::Notification,
        Self::Memo,
        Self::Convert,
        Self::Inspect,
    ];
}

/// One value for each verb.
#[derive(Debug, Default)]
pub(super) struct PerVerb<T>([T; Verb::ALL.len()]);

impl<T> PerVerb<T> {
    pub(super) fn get(&self, verb: Verb) -> &T {
        &self.0[verb as usize]
    }

    pub(super) fn get_mut(&mut self, verb: Verb) -> &mut T {
        &mut self.0[verb as usize]
    }
}
