//! One acquisition and the steps that follow it.

use std::time::Duration;

/// How long an acquisition waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until it is granted.
    Endless,
    /// For this time.
    Within(Duration),
    /// Not at all.
    Try,
    /// Until this number of tries have failed.
    Tries(u32),
}

/// How a hold ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The user releases it and waits for the answer.
    Release,
    /// The user drops the guard.
    Drop,
    /// The user releases it, and the name stays taken until this time after the grant.
    MinHold(Duration),
}

/// How an operator breaks a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breaking {
    /// The holder is told, and keeps its lease.
    Gentle,
    /// The lease ends at once.
    Forced,
}

/// The parameters of one acquisition and of the steps that follow it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    /// Whether, and how, the current hold of the lock is broken before the acquisition.
    pub(crate) breaks: Option<Breaking>,
    /// The pause before the acquisition.
    pub(crate) pause: Duration,
    /// The index of the lock.
    pub(crate) lock: usize,
    /// A number that chooses the mode among the modes of the lock.
    pub(crate) want: u32,
    /// The lease.
    pub(crate) ttl: Duration,
    /// Whether the lease is renewed.
    pub(crate) renew: bool,
    /// The `max_hold` of the request.
    pub(crate) max_hold: Option<Duration>,
    /// How long the acquisition waits.
    pub(crate) patience: Patience,
    /// The time after which the acquisition is dropped. `None`: it is not dropped.
    pub(crate) cancel: Option<Duration>,
    /// For how long the user uses the lock.
    pub(crate) hold: Duration,
    /// How many times the user writes to the resources.
    pub(crate) writes: u32,
    /// Whether the user goes on using the lock after a loss was reported.
    pub(crate) stubborn: bool,
    /// Whether the user asks the server during the hold whether the hold is valid.
    pub(crate) confirm: bool,
    /// Whether the user acquires the same lock again during the hold.
    pub(crate) again: bool,
    /// How the hold ends.
    pub(crate) end: End,
    /// The time limit for closing the `Locks` of the process after this acquisition. `None`: the `Locks` are not
    /// closed.
    pub(crate) closes: Option<Duration>,
}
