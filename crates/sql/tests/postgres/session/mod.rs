//! Locks of a session: advisory locks.

mod conformance;
mod foreign;
mod inspect;
mod keys;
mod limits;
mod loss;
mod pooler;
mod restart;
mod rig;
mod tokens;
mod waiting;
