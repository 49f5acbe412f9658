//! Changes of the time of a hold that no request of ours made: what an engine found, and how that differs from the
//! lease.

use std::{fmt, time::Duration};

/// How long a hold would have lasted on the engine without the renewal that reports this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeLeft {
    /// The engine did not measure it.
    #[default]
    Unknown,
    /// For this time, counted from the moment of the renewal on the engine.
    For(Duration),
    /// For ever: the hold had no end any more.
    Endless,
}

/// How a program that does not compare the value of a lock changed the time of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeChange {
    /// The hold would have ended earlier than its lease.
    Shortened,
    /// The hold would have lasted for longer than its ttl from now. A renewal never shortens a hold, so this time
    /// stays.
    Lengthened,
    /// The hold had no end any more.
    Removed,
}

impl fmt::Display for TimeChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shortened => {
                "another program shortened the time of this hold without comparing its value, or the server's clock was set forward: the renewal set the time anew"
            }
            Self::Lengthened => {
                "another program lengthened the time of this hold without comparing its value: if this process dies, the name stays taken until that time ends"
            }
            Self::Removed => {
                "another program removed the expiry of this hold without comparing its value: the renewal set the expiry anew"
            }
        })
    }
}
