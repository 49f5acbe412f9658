//! Deliberate mistakes of the modelled server and its client library: the simulation must find each of them.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The server grants a name that another claim holds, in some of the requests.
    GrantsTwice,
    /// Leases end on the server after three quarters of their time.
    ExpiresEarly,
    /// A waiter gets a pushed grant that the server does not store.
    PushesUnstored,
    /// Every token is smaller than the previous token.
    TokensFall,
    /// A release answers "freed" and frees nothing.
    FreesNothing,
    /// A release frees the name even if another claim holds it.
    FreesAnyHolder,
    /// A renewal is answered "extended" even if another claim holds the name.
    ExtendsAnyClaim,
    /// The server keeps no tombstones.
    KeepsNoTombstones,
    /// No client gets a notification of a grant.
    NotifiesNoClient,
    /// The client counts the lease of a pushed grant from the arrival of the grant, not from the grant on the server.
    DatesByArrival,
    /// The client reports a request without an answer as not applied.
    ReportsUnknownAsNotApplied,
    /// The client never asks the server for a tombstone.
    NeverAsksForTombstones,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Self; 12] = [
        Self::GrantsTwice,
        Self::ExpiresEarly,
        Self::PushesUnstored,
        Self::TokensFall,
        Self::FreesNothing,
        Self::FreesAnyHolder,
        Self::ExtendsAnyClaim,
        Self::KeepsNoTombstones,
        Self::NotifiesNoClient,
        Self::DatesByArrival,
        Self::ReportsUnknownAsNotApplied,
        Self::NeverAsksForTombstones,
    ];

    /// The bug with this name, as it is written in the source.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bug| format!("{bug:?}") == name)
    }
}
