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
    /// For this number of tries.
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
    /// The holder keeps its lease.
    Gentle,
    /// The lease ends at once.
    Forced,
}

/// The parameters of one acquisition and of the steps that follow it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    /// Whether, and how, the current hold is broken before the acquisition.
    pub(crate) breaks: Option<Breaking>,
    /// The pause before the acquisition.
    pub(crate) pause: Duration,
    /// The index of the lock.
    pub(crate) lock: usize,
    /// Chooses the mode among those that the lock has.
    pub(crate) want: u32,
    /// The lease.
    pub(crate) ttl: Duration,
    /// Whether the lease is renewed.
    pub(crate) renew: bool,
    /// The longest hold time.
    pub(crate) max_hold: Option<Duration>,
    /// How long the acquisition waits.
    pub(crate) patience: Patience,
    /// After which time the acquisition is dropped, if at all.
    pub(crate) cancel: Option<Duration>,
    /// For how long the lock is used.
    pub(crate) hold: Duration,
    /// How many times the resources are written.
    pub(crate) writes: u32,
    /// Whether the user goes on after a loss was reported.
    pub(crate) stubborn: bool,
    /// Whether the user asks the server during the hold whether the hold is valid.
    pub(crate) confirm: bool,
    /// Whether the user acquires the same lock again during the hold.
    pub(crate) again: bool,
    /// How the hold ends.
    pub(crate) end: End,
    /// The time limit for closing the locks of the process afterwards, if they are closed.
    pub(crate) closes: Option<Duration>,
}
