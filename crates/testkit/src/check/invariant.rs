//! The invariants.

use std::fmt;

use serde::{Serialize, Serializer};

/// An invariant, by its number in `docs/rules.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Invariant {
    /// I0: the history itself is complete and consistent: every event has its cause, and no record is missing.
    Shape,
    /// I1: exclusive excludes everything, shared excludes exclusive, permits stay within their limit.
    Exclusion,
    /// I2: deadlines are honest: no deadline is later than the end of the lease on the server.
    Deadlines,
    /// I3: one order of grants, releases and expiries explains all that the users of a lock saw.
    OneOrder,
    /// I4: tokens are unique and grow in the order of grants.
    Tokens,
    /// I5: the fenced resource loses no acknowledged update.
    Fence,
    /// I6: nothing is left after the run.
    Leaks,
    /// I7: no wake-up is lost.
    WakeUps,
    /// I8: first come, first served.
    Order,
    /// I9: a loss is reported, and `check` is false from the deadline on.
    Loss,
    /// I10: a release reports the truth.
    Releases,
    /// I11: a cancelled attempt leaves nothing on the server.
    Cancels,
    /// I12: a limited wait ends within its limit.
    Limits,
    /// I13: "taken" is always justified.
    Taken,
    /// I14: a leader is seen with its own term, while it holds the name, and terms never go back.
    Elections,
    /// I15: a stored result is what every later repeat gets.
    Results,
}

impl Invariant {
    /// The number in `docs/rules.md`.
    #[must_use]
    pub const fn id(self) -> &'static str {
        self.words().0
    }

    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Shape => ("I0", "shape of the history"),
            Self::Exclusion => ("I1", "exclusion"),
            Self::Deadlines => ("I2", "deadlines"),
            Self::OneOrder => ("I3", "one order"),
            Self::Tokens => ("I4", "tokens"),
            Self::Fence => ("I5", "fence"),
            Self::Leaks => ("I6", "leaks"),
            Self::WakeUps => ("I7", "wake-ups"),
            Self::Order => ("I8", "first come, first served"),
            Self::Loss => ("I9", "loss reported"),
            Self::Releases => ("I10", "releases"),
            Self::Cancels => ("I11", "cancels"),
            Self::Limits => ("I12", "limits"),
            Self::Taken => ("I13", "taken"),
            Self::Elections => ("I14", "leaders seen"),
            Self::Results => ("I15", "stored results"),
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, words) = self.words();
        write!(f, "{id} {words}")
    }
}

impl Serialize for Invariant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}
