//! `hold=session`: GET_LOCK on one connection of each process.

mod beside;
mod conformance;
mod ends;
mod names;
mod proxies;
mod refused;
mod rig;
mod tokens;
