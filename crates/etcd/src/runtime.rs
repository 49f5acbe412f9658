//! How this crate reaches the runtime: what it spawns, waits for and bounds in time. All else takes the time as an argument.

pub(crate) use leasehold_core::runtime::{sleep, spawn, within};
