//! One acquisition and what follows it.

use std::time::Duration;

/// How long somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Until it is granted.
    Endless,
    /// For so long.
    Within(Duration),
    /// Not at all.
    Try,
    /// For so many tries.
    Tries(u32),
}

/// How somebody lets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Releases and waits for the answer.
    Release,
    /// Drops the guard.
    Drop,
    /// Releases, and keeps the name taken until so long after the grant.
    Keep(Duration),
}

/// How an operator breaks a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breaking {
    /// The holder keeps its lease.
    Gentle,
    /// Its lease ends at once.
    Forced,
}

/// One acquisition and what follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    /// Breaks whatever hold there is before.
    pub(crate) breaks: Option<Breaking>,
    /// Before it.
    pub(crate) pause: Duration,
    /// Which of the locks.
    pub(crate) lock: usize,
    /// Chooses the mode.
    pub(crate) want: u32,
    /// The lease.
    pub(crate) ttl: Duration,
    /// Whether it is renewed.
    pub(crate) renew: bool,
    /// The ceiling.
    pub(crate) max_hold: Option<Duration>,
    /// How long it waits.
    pub(crate) patience: Patience,
    /// It is given up after so long.
    pub(crate) cancel: Option<Duration>,
    /// For how long the lock is used.
    pub(crate) hold: Duration,
    /// How often the resources are written.
    pub(crate) writes: u32,
    /// Goes on when the loss is told.
    pub(crate) stubborn: bool,
    /// Asks the server in between whether it holds.
    pub(crate) confirm: bool,
    /// Takes the same lock again in between.
    pub(crate) again: bool,
    /// How it lets go.
    pub(crate) end: End,
    /// Closes the locks of its process afterwards, within so long.
    pub(crate) closes: Option<Duration>,
}
