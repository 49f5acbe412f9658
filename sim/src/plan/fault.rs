//! What goes wrong.

use std::time::Duration;

use crate::scheduler::{Moment, Sleeps};

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It never arrives.
    Lost,
    /// A request is applied, its answer never arrives. A push never arrives.
    Unanswered,
    /// It arrives so much later, when its sender may have given up.
    Late(Duration),
    /// It arrives, and once more so much later.
    Twice(Duration),
}

/// What does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the server.
    Up,
    /// From the server.
    Down,
    /// Neither.
    Both,
}

/// Something that goes wrong. Clients are numbered as in the plan; `at` counts from the beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Of the `nth` request of a client. Where the wire keeps the order, the connection breaks with it.
    Request { client: usize, nth: u64, fate: Fate },
    /// Of the `nth` piece of news for a client.
    Notification { client: usize, nth: u64, fate: Fate },
    /// A client stands still: SIGSTOP, or its machine is suspended.
    Stop { client: usize, at: Duration, length: Duration, sleeps: Sleeps },
    /// A client stands still in the middle of what it does, at a later reading of its clock.
    StopAtReading { client: usize, at: Duration, readings: u32, length: Duration, moment: Moment },
    /// A client is gone for ever; the server may not notice.
    Crash { client: usize, at: Duration, unnoticed: bool },
    /// The connection of a client breaks.
    Reset { client: usize, at: Duration },
    /// Nothing passes between a client and the server.
    Cut { client: usize, at: Duration, length: Duration, way: Direction },
    /// Every other answer that leaves in this time comes so much later: on a wire that keeps no order, behind those that follow.
    Lag { at: Duration, length: Duration, late: Duration },
    /// The server stands still; its clock does not.
    Stall { at: Duration, length: Duration },
    /// The server is down and comes back with all that it acknowledged.
    Restart { at: Duration, length: Duration },
    /// The server's clock is set, by so many nanoseconds.
    Step { at: Duration, by: i64 },
    /// Another server takes over that knows nothing of the last writes; its clock is ahead by so many nanoseconds.
    Failover { at: Duration, length: Duration, loses: Duration, skew: i64 },
}

impl Fault {
    /// By how many nanoseconds the server's clock is set.
    #[must_use]
    pub(crate) const fn sets_clock(&self) -> i64 {
        match *self {
            Self::Step { by, .. } | Self::Failover { skew: by, .. } => by,
            _ => 0,
        }
    }

    /// What kind of fault it is, for the table.
    #[must_use]
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Request { fate: Fate::Lost, .. } => "request lost",
            Self::Request { fate: Fate::Unanswered, .. } => "answer lost",
            Self::Request { fate: Fate::Late(_), .. } => "request late",
            Self::Request { fate: Fate::Twice(_), .. } => "request doubled",
            Self::Notification { fate: Fate::Lost | Fate::Unanswered, .. } => "news lost",
            Self::Notification { fate: Fate::Late(_), .. } => "news late",
            Self::Notification { fate: Fate::Twice(_), .. } => "news doubled",
            Self::Stop { sleeps: Sleeps::GoOn, .. } => "client stopped",
            Self::Stop { sleeps: Sleeps::Stand, .. } => "client suspended",
            Self::StopAtReading { .. } => "client stopped in a step",
            Self::Crash { .. } => "client crashed",
            Self::Reset { .. } => "connection reset",
            Self::Cut { .. } => "partition",
            Self::Lag { .. } => "answers late",
            Self::Stall { .. } => "server stalled",
            Self::Restart { .. } => "server restarted",
            Self::Step { by, .. } if *by < 0 => "server clock set back",
            Self::Step { .. } => "server clock set forward",
            Self::Failover { .. } => "failover",
        }
    }
}
