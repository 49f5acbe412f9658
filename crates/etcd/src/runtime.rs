//! The runtime of this crate: tasks, waits and time limits. All other code gets the time as an argument.

pub(crate) use leasehold_core::runtime::{sleep, spawn, within};
