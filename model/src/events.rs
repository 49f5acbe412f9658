//! Events that the search has seen. They are counted because a model in which nothing happens proves nothing.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// An event that a run may be required to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The name was granted to a waiter, and the grant was pushed.
    HandedOver,
    /// A waiter without a listener was passed over.
    PassedOver,
    /// A pushed grant lapsed before its client sent a request.
    MissedItsGrant,
    /// After a waiter had missed its grant, the name was granted to another claim.
    PassedToNextWaiter,
    /// A waiter that had missed its grant joined the queue again.
    QueuedAgain,
    /// A tombstone refused a late request.
    RefusedByTombstone,
    /// A client did not know the age of a pushed grant, so it asked.
    UndatedPush,
    /// A pushed grant may have lapsed before it arrived, so its client asked.
    LatePush,
    /// The answer with a grant came after the lease of the grant had ended.
    GrantCameTooLate,
    /// A renewal reached the server after the end of its hold.
    RenewedTooLate,
    /// A holder paused for longer than its lease, and another claim held the name before the holder went on.
    Overtaken,
    /// Another program held the name between two holds of leasehold.
    ForeignBetween,
    /// A release whose answer was lost was sent again.
    ReleasedAgain,
    /// The fence refused a write.
    WriteRefused,
    /// The fence refused a token that a holder showed before its read.
    SealRefused,
}

impl Event {
    /// All kinds of events.
    pub const ALL: [Self; 15] = [
        Self::HandedOver,
        Self::PassedOver,
        Self::MissedItsGrant,
        Self::PassedToNextWaiter,
        Self::QueuedAgain,
        Self::RefusedByTombstone,
        Self::UndatedPush,
        Self::LatePush,
        Self::GrantCameTooLate,
        Self::RenewedTooLate,
        Self::Overtaken,
        Self::ForeignBetween,
        Self::ReleasedAgain,
        Self::WriteRefused,
        Self::SealRefused,
    ];
}

/// How often each event was seen. These counts are no part of a world: worlds that differ only in the counts are the
/// same world.
#[derive(Clone, Debug, Default)]
pub struct EventCounts(Arc<[AtomicU64; Event::ALL.len()]>);

impl EventCounts {
    pub(crate) fn add(&self, event: Event) {
        self.0[event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often an event was seen.
    #[must_use]
    pub fn count(&self, event: Event) -> u64 {
        self.0[event as usize].load(Ordering::Relaxed)
    }
}
