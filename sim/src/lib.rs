//! The real core of leasehold (keeper, pure machines, guards) over a modelled server and network, on virtual time.
//! Everything comes from one seed, so a failure is repeated exactly and can be reduced.
//!
//! [`Plan::draw`] draws the plan of a run, which is data; [`run`] builds a world from the plan, runs it and judges it;
//! [`reduce`] finds the smallest plan that fails in the same way. A [`Bug`] is a deliberate mistake of the model that
//! the simulation has to find.

mod bug;
mod client;
mod journal;
mod nemesis;
mod network;
mod notice;
mod plan;
mod reduce;
mod resource;
mod rng;
mod scheduler;
mod server;
mod tally;
mod truth;
mod user;
mod verdict;
mod world;

pub use bug::Bug;
pub use plan::Plan;
pub use reduce::reduce;
pub use tally::{Tally, Updates};
pub use verdict::Complaint;
pub use world::{Outcome, run};
