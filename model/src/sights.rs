//! What was seen to happen: a model in which nothing happens proves nothing.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Something worth seeing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// A name was granted to a waiter, and the grant pushed.
    HandedOn,
    /// A waiter whom nobody listened for was passed over.
    PassedOver,
    /// A pushed grant lapsed before its waiter spoke.
    MissedItsTurn,
    /// After that the name went to another.
    WentOn,
    /// A waiter that had missed its turn stood in line again.
    StoodAgain,
    /// A tombstone refused a request that came after the release of its claim.
    RefusedTheDead,
    /// A push could not be dated: its waiter asked.
    UndatedPush,
    /// A push may have come too late to be believed: its waiter asked.
    LatePush,
    /// The answer with a grant came after its lease.
    GrantCameTooLate,
    /// A renewal came after the end of its hold.
    RenewedTooLate,
    /// A holder paused for longer than its lease, and another held before it went on.
    Overtaken,
    /// Another program held the name between two of ours.
    ForeignBetween,
    /// A release whose answer was lost was sent again.
    ReleasedAgain,
    /// The fence refused a write.
    WriteRefused,
    /// The fence refused a seal.
    SealRefused,
}

impl Sight {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::HandedOn,
        Self::PassedOver,
        Self::MissedItsTurn,
        Self::WentOn,
        Self::StoodAgain,
        Self::RefusedTheDead,
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

/// How often each was seen. Not part of a world: worlds that differ by nothing else are the same.
#[derive(Clone, Debug, Default)]
pub struct Sights(Arc<[AtomicU64; Sight::ALL.len()]>);

impl Sights {
    pub(crate) fn add(&self, sight: Sight) {
        self.0[sight as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was seen.
    #[must_use]
    pub fn count(&self, sight: Sight) -> u64 {
        self.0[sight as usize].load(Ordering::Relaxed)
    }
}
