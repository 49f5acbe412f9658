//! Deliberate mistakes in the protocol: the model must find each of them.

/// One mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A release leaves no tombstone although a late request of its claim may still arrive.
    NoTombstone,
    /// A release deletes the lock, whichever claim holds it.
    DeleteWithoutCompare,
    /// A renewal that finds the name free takes it again.
    RenewalTakes,
    /// A claim takes a lock that another program holds.
    TakeWithoutLooking,
    /// The lease of a granted claim counts from the answer instead of from before the request was sent.
    CountFromAnswer,
    /// A renewal without an answer moves the deadline.
    UnknownExtends,
    /// A pushed grant counts as valid from its arrival, without a date.
    PushIsTruth,
    /// A hand-over creates no token.
    SameToken,
    /// A new claim takes a free name although others are in the queue.
    Barge,
    /// A hand-over stops at a waiter that has no listener.
    StopWithoutListener,
    /// A hand-over stops at a waiter whose queue entry has expired.
    StopAtExpired,
    /// A waiter whose pushed grant lapsed stays at the head of the queue.
    LapsedStaysAtHead,
    /// Queue entries never expire.
    EntriesNeverExpire,
    /// After a reconnect the client asks nothing.
    NoAskAfterReconnect,
    /// A waiter only waits for notifications and never polls.
    NoPoll,
    /// A claim that was given up is not released.
    NoReleaseAfterCancel,
    /// The lapse of a hold is not recorded.
    LapseForgotten,
    /// A release with the token of a lapsed hold answers "freed" if the claim still has a queue entry, or had one and
    /// missed its grant.
    FreedOutOfOrder,
    /// A release with the token of a lapsed hold does not end a later grant of the same claim.
    OtherGrantStays,
    /// A claim that the server reports as gone is not released, although a late request of it may still arrive.
    GoneIsTrusted,
}
