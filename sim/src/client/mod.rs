//! A client: one process with the real core, a clock and random numbers of its own, and its end of the network.

mod clock;
mod engine;
mod host;
mod interface;
mod link;

pub(crate) use clock::ClientClock;
pub(crate) use engine::{CLAIM_TIME, REQUEST_TIMEOUT, SLOWEST_POLL, SimEngine};
pub(crate) use host::{ClientRng, Host};
pub(crate) use interface::ANSWER_LIMIT;
