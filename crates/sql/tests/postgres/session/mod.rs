//! Locks of a session: advisory locks.

mod conformance;
mod foreign;
mod inspect;
mod keys;
mod limits;
mod loss;
mod permits;
mod pooler;
mod restart;
pub(crate) mod rig;
mod tokens;
mod waiting;
