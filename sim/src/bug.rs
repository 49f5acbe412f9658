//! What can be wrong with the modelled server and its client library, on purpose: the simulation must find each.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The server grants now and then what another holds.
    GrantsTwice,
    /// Leases end on the server when three quarters of their time have passed.
    ExpiresEarly,
    /// Who stands in line gets a grant pushed that the server does not keep.
    PushesUnstored,
    /// Every token is smaller than the one before.
    TokensFall,
    /// A release answers "freed" and frees nothing.
    FreesNothing,
    /// A release frees whoever holds.
    FreesAnybody,
    /// A renewal answers "kept", whoever holds.
    KeepsAnybody,
    /// No dead claim is remembered.
    ForgetsTheDead,
    /// Nobody is told of a grant.
    TellsNobody,
    /// The client dates a pushed grant by the moment at which it heard of it.
    DatesByArrival,
    /// The client says of a request that was not answered that it was not applied.
    TakesUnknownForNo,
    /// The client never asks for a tombstone.
    NeverBuries,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::GrantsTwice,
        Self::ExpiresEarly,
        Self::PushesUnstored,
        Self::TokensFall,
        Self::FreesNothing,
        Self::FreesAnybody,
        Self::KeepsAnybody,
        Self::ForgetsTheDead,
        Self::TellsNobody,
        Self::DatesByArrival,
        Self::TakesUnknownForNo,
        Self::NeverBuries,
    ];

    /// The one with this name, as in the source.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }
}
