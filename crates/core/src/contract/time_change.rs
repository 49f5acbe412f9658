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

/// How the time of a hold changed without a request of ours: usually by a program that does not compare the value of a
/// lock, or by a step of the server's clock.
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
                "the time of this hold was too short, and its renewal set the time anew: another program shortened the time without comparing the value, or the server's clock was set forward"
            }
            Self::Lengthened => {
                "the time of this hold is longer than its ttl, so the name stays taken until that time ends if this process dies: another program lengthened the time without comparing the value, or the server's clock was set back"
            }
            Self::Removed => {
                "this hold had no expiry, and its renewal set the expiry anew: another program removed the expiry without comparing the value"
            }
        })
    }
}
