//! What can be wrong on purpose, to see that the model finds it.

/// One mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A release leaves no tombstone where a request of its claim may still arrive.
    NoTombstone,
    /// A release deletes the lock, whoever holds it.
    DeleteWithoutCompare,
    /// A renewal that finds the name free takes it again.
    RenewalTakes,
    /// A claim takes a lock that another program holds.
    TakeWithoutLooking,
    /// The lease of a granted claim counts from the answer, not from before the request left.
    CountFromAnswer,
    /// A renewal whose answer never came moves the deadline.
    UnknownExtends,
    /// A pushed grant is believed from when it is heard, without a date.
    PushIsTruth,
    /// A hand-over mints no token.
    SameToken,
    /// A newcomer takes a free name without a look at the line.
    Barge,
    /// A hand-over ends at a waiter whom nobody listens for.
    StopAtDeaf,
    /// A hand-over ends at a waiter whose place has ended.
    StopAtExpired,
    /// A waiter whose pushed grant lapsed keeps its turn.
    LapsedKeepsTurn,
    /// Places in line never end.
    PlacesNeverEnd,
    /// After a new connection was made, nothing is asked.
    NoAskAfterReconnect,
    /// A waiter only waits for news.
    NoPoll,
    /// A claim that is given up is not released.
    NoReleaseAfterCancel,
    /// That a hold lapsed is not noted.
    LapseForgotten,
    /// A release with the token of a hold that has lapsed says "freed" if the claim still has a place in line, or had one and
    /// missed its turn.
    FreedOutOfLine,
    /// A release with the token of a hold leaves alone what its claim was granted after that hold lapsed.
    OtherGrantStays,
    /// A claim that the server calls gone is not released, although a request of it may still arrive.
    GoneIsTrusted,
}
