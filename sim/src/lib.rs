//! The real core of leasehold (keeper, pure machines, guards) over a modelled server and network, on virtual time. Everything
//! comes from one seed, so that a failure is repeated exactly and can be taken apart.
//!
//! [`Plan::draw`] draws what happens in a run, as data; [`run`] puts a world together from it, lets it run, and judges it;
//! [`reduce`] finds the smallest plan that fails in the same way. A [`Bug`] is a mistake of the model, made on purpose to
//! see that it is found.

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
