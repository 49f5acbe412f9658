//! What every engine of leasehold is tested with. Published for engine authors, not semver-stable.
//!
//! - [`suite`]: the conformance suite, one entry point for every engine.
//! - `oracle`, a feature: random requests, answered as the memory engine does.
//! - [`claims`]: claims for tests of engines.
//! - [`decorators`]: engines that lose, repeat, delay and count what passes through them.
//! - [`dropper`]: drops a future at each of its polls.
//! - [`fuzz`]: random bytes for parsers of what others wrote.
//! - [`server`]: real servers, started for one test and ended with it.
//! - [`history`]: what happened, as users saw it, recorded by many processes on one machine.
//! - [`limits`]: what the operating system lets a test process have.
//! - [`panic_clock`]: a clock that panics in one task of an engine.
//! - [`rig`]: what the tests of engines with a server share.
//! - [`room`]: leases with room for what a busy machine does to their clients.
//! - [`scenarios`]: what several engines are tested with beside the suite.
//! - [`stopwatch`]: time limits that a busy machine cannot break.
//! - [`check`]: the invariants, checked mechanically on such a history.

pub mod check;
pub mod claims;
pub mod decorators;
pub mod dropper;
pub mod fuzz;
pub mod history;
pub mod limits;
#[cfg(feature = "oracle")]
pub mod oracle;
pub mod panic_clock;
pub mod rig;
pub mod room;
pub mod scenarios;
pub mod server;
mod signals;
pub mod stopwatch;
pub mod suite;

pub use signals::signal;
