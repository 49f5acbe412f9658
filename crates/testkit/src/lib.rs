//! Test tools for every engine of leasehold. Published for engine authors, not semver-stable.
//!
//! - [`suite`]: the conformance suite, with one entry point for every engine.
//! - `oracle`, a module with a feature of the same name: compares the answers to random requests with those of the
//!   memory engine.
//! - [`claims`]: claims for tests of engines.
//! - [`decorators`]: engines that lose, duplicate, delay and count calls.
//! - [`dropper`]: drops a future at each of its polls.
//! - [`fuzz`]: random bytes for parsers of foreign input.
//! - [`server`]: real servers, started for one test and ended with it.
//! - [`history`]: the history of a run, recorded by many processes on one machine.
//! - [`check`]: checks the invariants on such a history.
//! - [`limits`]: limits of the operating system for a test process.
//! - [`panic_clock`]: a clock that panics in one task of an engine.
//! - [`rig`]: shared parts of the tests of engines with a server.
//! - [`lease_retries`]: retries tests of leases on a busy machine.
//! - [`hand_over`]: tests of hand-over inside a process, which several engines share.
//! - [`scenarios`]: tests that several engines share beside the suite.
//! - [`stopwatch`]: time limits that a busy machine cannot break.

pub mod check;
pub mod claims;
pub mod decorators;
pub mod dropper;
pub mod fuzz;
pub mod hand_over;
pub mod history;
pub mod lease_retries;
pub mod limits;
#[cfg(feature = "oracle")]
pub mod oracle;
pub mod panic_clock;
pub mod rig;
pub mod scenarios;
pub mod server;
mod set_on_drop;
mod signals;
pub mod stopwatch;
pub mod suite;

pub use set_on_drop::SetOnDrop;
pub use signals::signal;
