//! The history of a run, as the users of locks saw it: recorded by many processes on one machine, and merged.
//!
//! The harness records the history; the library under test never does. Times are `CLOCK_MONOTONIC` of one kernel, which
//! is the same clock for all processes and network namespaces. **The stamping rule**: the begin of an active hold is
//! stamped *after* the acquire returned, and its end *before* the release is called. So an overlap of two active holds
//! in a history is real. [`Attempt`] enforces the rule.

mod attempt;
mod clock;
mod event;
mod recorder;
mod timeline;

pub use attempt::{ActiveHold, Attempt, Granted, PendingRelease, PendingWrite};
pub use clock::{nanos, now_nanos};
pub use event::{AttemptId, Event, Held, Phase, RecordedMode, What};
pub use recorder::Recorder;
pub use timeline::{BadHistory, History};
