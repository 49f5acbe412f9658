//! Events that the search has seen. A model in which nothing happens proves nothing.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// An event worth seeing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A name was granted to a waiter, and the grant pushed.
    HandedOver,
    /// A waiter without a listener was passed over.
    PassedOver,
    /// A pushed grant lapsed before its client sent a request.
    MissedItsGrant,
    /// After a waiter missed its grant, the name went to another.
    PassedToNextWaiter,
    /// A waiter that had missed its grant was in the queue again.
    QueuedAgain,
    /// A tombstone refused a late request.
    RefusedByTombstone,
    /// A push could not be dated, so its client asked.
    UndatedPush,
    /// A push may have come too late to be valid, so its client asked.
    LatePush,
    /// The answer with a grant came after its lease.
    GrantCameTooLate,
    /// A renewal came after the end of its hold.
    RenewedTooLate,
    /// A holder paused for longer than its lease, and another claim held before it went on.
    Overtaken,
    /// Another program held the name between two of our holds.
    ForeignBetween,
    /// A release whose answer was lost was sent again.
    ReleasedAgain,
    /// The fence refused a write.
    WriteRefused,
    /// The fence refused a token that was shown before the read.
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

/// How often each event was seen. Not part of a world: worlds that differ only in this are the same.
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
