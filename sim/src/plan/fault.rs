//! The faults of a plan.

use std::time::Duration;

use crate::scheduler::{Moment, Sleeps};

/// The fault of a single message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The message never arrives.
    Lost,
    /// A request is applied, but its answer never arrives. A notification never arrives.
    Unanswered,
    /// The message arrives later by this time. Its sender may have given up by then.
    Late(Duration),
    /// The message arrives, and arrives once more after this time.
    Twice(Duration),
}

/// The direction of a network cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the server.
    Up,
    /// From the server.
    Down,
    /// Both directions.
    Both,
}

/// A fault. `client` is the number of the client in the plan; `at` counts from the beginning of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// A fault of the `nth` request of a client. On a network that keeps the order of messages, the connection breaks
    /// as well.
    Request { client: usize, nth: u64, fate: Fate },
    /// A fault of the `nth` notification for a client.
    Notification { client: usize, nth: u64, fate: Fate },
    /// A client is paused: by SIGSTOP, or because its machine is suspended.
    Stop { client: usize, at: Duration, length: Duration, sleeps: Sleeps },
    /// A client is paused in the middle of a step. After `at`, it reads its clock `readings` times, and is paused at
    /// the next reading.
    StopAtReading { client: usize, at: Duration, readings: u32, length: Duration, moment: Moment },
    /// A client is killed, and does not come back. If `unnoticed`, the server does not notice that the client is gone.
    Crash { client: usize, at: Duration, unnoticed: bool },
    /// The connection of a client breaks.
    Reset { client: usize, at: Duration },
    /// No message in this direction passes between a client and the server.
    Cut { client: usize, at: Duration, length: Duration, way: Direction },
    /// Every second message that the server sends to a client in this time is delayed by `late`. On a network that does
    /// not keep the order of messages, later messages overtake the delayed ones.
    Lag { at: Duration, length: Duration, late: Duration },
    /// The server is stalled. Its clock runs on.
    Stall { at: Duration, length: Duration },
    /// The server is down for `length`, and comes back with everything that it has acknowledged.
    Restart { at: Duration, length: Duration },
    /// The server's clock is changed by this many nanoseconds.
    Step { at: Duration, by: i64 },
    /// Another server replaces this one. It lacks the writes of the last `loses` before the fail-over. Its clock is
    /// ahead of the replaced server's clock by `skew` nanoseconds.
    Failover { at: Duration, length: Duration, loses: Duration, skew: i64 },
}

impl Fault {
    /// By how many nanoseconds this fault changes the server's clock.
    #[must_use]
    pub(crate) const fn sets_clock(&self) -> i64 {
        match *self {
            Self::Step { by, .. } | Self::Failover { skew: by, .. } => by,
            _ => 0,
        }
    }

    /// The kind of the fault, for the table of figures.
    #[must_use]
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Request { fate: Fate::Lost, .. } => "request lost",
            Self::Request { fate: Fate::Unanswered, .. } => "answer lost",
            Self::Request { fate: Fate::Late(_), .. } => "request late",
            Self::Request { fate: Fate::Twice(_), .. } => "request doubled",
            Self::Notification { fate: Fate::Lost | Fate::Unanswered, .. } => "notification lost",
            Self::Notification { fate: Fate::Late(_), .. } => "notification late",
            Self::Notification { fate: Fate::Twice(_), .. } => "notification doubled",
            Self::Stop { sleeps: Sleeps::GoOn, .. } => "client stopped",
            Self::Stop { sleeps: Sleeps::Suspend, .. } => "client suspended",
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
