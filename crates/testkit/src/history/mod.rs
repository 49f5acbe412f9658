//! What happened, as the users of locks saw it: recorded by many processes of one machine, merged into one history.
//!
//! The harness records, never the library under test. Times are `CLOCK_MONOTONIC` of the one kernel, which all processes and
//! network namespaces share. **The stamping rule**: the begin of a belief is stamped *after* the acquire returned, its
//! end *before* the release is called, so an overlap of two beliefs is real. [`Attempt`] keeps the rule by construction.

mod attempt;
mod clock;
mod event;
mod recorder;
mod timeline;

pub use attempt::{ActiveHold, Attempt, Granted, Leaving, PendingWrite};
pub use clock::{nanos, now_nanos};
pub use event::{AttemptId, Event, Held, HowHeld, Phase, What};
pub use recorder::Recorder;
pub use timeline::{BadHistory, History};
