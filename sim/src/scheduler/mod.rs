//! Virtual time. It passes only when no task is ready. The tasks, sleeps and events of the whole world run on one
//! thread, in an order that the seed decides.
//!
//! Tasks belong to groups, one for each client, which can be paused, suspended and killed as processes can.

mod agenda;
mod group;
mod sleep;
mod task;
mod work;

pub(crate) use group::{Group, Moment, Sleeps};
pub(crate) use sleep::Sleep;
pub(crate) use work::Scheduler;
