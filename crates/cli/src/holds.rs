//! The holds under which CMD runs: of the names of a run, of a leader, or of one run of `once`.

use std::{pin::Pin, time::Duration};

use leasehold::{Error, Guard, Guards, Leading, Loss, Name, Stop};

/// What a command has acquired, and releases at its end.
pub(crate) enum Acquired {
    /// The names of `run`.
    Names(Guards),
    /// The lead of `elect`.
    Lead(Leading),
}

/// The future of a release.
pub(crate) type Ending = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

impl Acquired {
    pub(crate) const fn holds(&self) -> Holds<'_> {
        match self {
            Self::Names(guards) => Holds::All(guards),
            Self::Lead(leading) => Holds::One(leading.guard()),
        }
    }

    /// Releases the names, or resigns.
    pub(crate) fn release(self) -> Ending {
        match self {
            Self::Names(guards) => Box::pin(guards.release()),
            Self::Lead(leading) => Box::pin(leading.resign()),
        }
    }

    /// Releases the names with a minimum hold time. A leader resigns, because `elect` has no such option.
    pub(crate) fn release_at_least(self, at_least: Duration) -> Ending {
        match self {
            Self::Names(guards) => Box::pin(guards.release_at_least(at_least)),
            lead => lead.release(),
        }
    }
}

/// The holds, borrowed. CMD may run while all of them are valid.
#[derive(Clone, Copy)]
pub(crate) enum Holds<'a> {
    All(&'a Guards),
    One(&'a Guard),
}

impl<'a> Holds<'a> {
    /// The guards, in the byte order of their names.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a Guard> {
        let (all, one) = match self {
            Self::All(guards) => (Some(guards.iter()), None),
            Self::One(guard) => (None, Some(guard)),
        };
        all.into_iter().flatten().chain(one)
    }

    /// How long all holds stay valid without a further answer. `None`: no time ends them.
    pub(crate) fn remaining(self) -> Option<Duration> {
        self.iter().filter_map(Guard::remaining).min()
    }

    /// When CMD has to be stopped. `None`: no time ends the holds.
    pub(crate) fn stop(self, grace: Duration) -> Option<Stop> {
        match self {
            Self::All(guards) => guards.stop(grace),
            Self::One(guard) => guard.stop(grace),
        }
    }

    /// Completes when the first hold is lost. Returns the name that was lost.
    pub(crate) async fn lost(self) -> (Name, Loss) {
        match self {
            Self::All(guards) => guards.lost().await,
            Self::One(guard) => (guard.name().clone(), guard.lost().await),
        }
    }

    /// Asks the engine whether every hold still exists.
    pub(crate) async fn confirm(self) -> Result<(), Error> {
        match self {
            Self::All(guards) => guards.confirm().await,
            Self::One(guard) => guard.confirm().await,
        }
    }

    /// The ids of the claims that hold the names, separated by spaces.
    pub(crate) fn claims(self) -> String {
        self.iter().map(|guard| guard.id().to_string()).collect::<Vec<_>>().join(" ")
    }

    /// What was wrong at the last renewal of each hold for which something was wrong.
    pub(crate) fn troubles(self) -> Vec<(Name, String)> {
        self.iter().filter_map(|guard| Some((guard.name().clone(), guard.trouble()?))).collect()
    }
}
