//! How far a run of CMD is: when it began, when it was granted, and how it ended. For the report and the metrics file.

use std::{
    cell::Cell,
    time::{Duration, SystemTime},
};

use leasehold_ops::series::RunOutcome;

use crate::{event_loop::now, exit::Failure};

/// How far a run is.
pub(crate) struct Course {
    /// When the run began.
    start: Duration,
    grant: Cell<Grant>,
    /// Whether CMD was not run, because it ran already.
    is_repeat: Cell<bool>,
    /// Whether the metrics file shows the grant, or need not.
    is_grant_written: Cell<bool>,
}

/// Whether the names were granted.
#[derive(Clone, Copy, Default)]
enum Grant {
    #[default]
    NotYet,
    At(Duration, SystemTime),
    /// The guardian was killed after the grant, and only the guardian knew the time.
    AtUnknownTime,
}

impl Course {
    /// A run that begins now.
    pub(crate) fn begin() -> Self {
        Self {
            start: now(),
            grant: Cell::default(),
            is_repeat: Cell::default(),
            is_grant_written: Cell::new(true),
        }
    }

    /// The names were granted now.
    pub(crate) fn granted(&self) {
        self.grant.set(Grant::At(now(), SystemTime::now()));
    }

    /// The names were granted at a time that this process does not know.
    pub(crate) fn was_granted(&self) {
        self.grant.set(Grant::AtUnknownTime);
    }

    /// CMD is not run, because it ran already.
    pub(crate) fn repeated(&self) {
        self.is_repeat.set(true);
    }

    /// Sets whether the metrics file shows the grant, or need not.
    pub(crate) fn set_grant_written(&self, is_written: bool) {
        self.is_grant_written.set(is_written);
    }

    pub(crate) fn is_grant_written(&self) -> bool {
        self.is_grant_written.get()
    }

    /// How long the run waited for the lock, at the time `end`. `None`: it is not known.
    pub(crate) fn waited(&self, end: Duration) -> Option<Duration> {
        match self.grant.get() {
            Grant::NotYet => Some(end.saturating_sub(self.start)),
            Grant::At(granted, _) => Some(granted.saturating_sub(self.start)),
            Grant::AtUnknownTime => None,
        }
    }

    /// How long the run held the lock, at the time `end`. `None`: it did not, or it is not known.
    pub(crate) fn held(&self, end: Duration) -> Option<Duration> {
        match self.grant.get() {
            Grant::At(granted, _) => Some(end.saturating_sub(granted)),
            Grant::NotYet | Grant::AtUnknownTime => None,
        }
    }

    /// The time of the grant. `None`: there was none, or it is not known.
    pub(crate) fn granted_at(&self) -> Option<SystemTime> {
        match self.grant.get() {
            Grant::At(_, time) => Some(time),
            Grant::NotYet | Grant::AtUnknownTime => None,
        }
    }

    /// How a run with this result ended.
    pub(crate) fn outcome(&self, result: &Result<u8, Failure>) -> RunOutcome {
        match (result, self.grant.get()) {
            (Ok(_), _) if self.is_repeat.get() => RunOutcome::RanBefore,
            (Ok(_), _) => RunOutcome::Ran,
            (Err(Failure { loss: Some(_), .. }), _) => RunOutcome::Lost,
            (Err(_), Grant::NotYet) => RunOutcome::NotAcquired,
            (Err(_), _) => RunOutcome::Failed,
        }
    }
}
