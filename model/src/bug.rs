//! Deliberate mistakes in the protocol. The model must find each of them.

/// One mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A release leaves no tombstone although a late request of its claim may still arrive.
    NoTombstone,
    /// A release deletes the lock even if another claim holds it.
    DeleteWithoutCompare,
    /// A renewal that finds the name free acquires it again.
    RenewalTakes,
    /// A claim overwrites a lock that another program holds.
    TakeWithoutLooking,
    /// The lease of a granted claim counts from the answer. It should count from a time before the request was sent.
    CountFromAnswer,
    /// A renewal without an answer extends the deadline.
    UnknownExtends,
    /// A pushed grant counts as valid for its whole lease from the arrival of the notification.
    PushIsTruth,
    /// A hand-over grants with the token of the previous hold.
    SameToken,
    /// A new claim is granted a free name although other claims are in the queue.
    Barge,
    /// A hand-over stops at a waiter that has no listener, and grants the name to no other waiter.
    StopWithoutListener,
    /// A hand-over stops at a waiter whose queue entry has expired, and grants the name to no other waiter.
    StopAtExpired,
    /// A waiter whose pushed grant lapsed stays at the head of the queue.
    LapsedStaysAtHead,
    /// Queue entries never expire.
    EntriesNeverExpire,
    /// After a reconnect, a waiting client does not ask for the state of its claim.
    NoAskAfterReconnect,
    /// A waiter never polls, so it learns of a grant only by a notification.
    NoPoll,
    /// A claim that was given up is not released.
    NoReleaseAfterCancel,
    /// The server does not record that a hold lapsed.
    LapseForgotten,
    /// A release with the token of a hold that lapsed is answered "freed" if its claim still has a queue entry, or
    /// missed its grant. It should be answered "absent".
    FreedOutOfOrder,
    /// A release with the token of a hold that lapsed does not end a later grant of the same claim. It should end it.
    OtherGrantStays,
    /// A claim that the server reports as gone is not released, although a late request of it may still arrive.
    GoneIsTrusted,
}
