//! The modelled server: the machine of `leasehold_core::lock_state` for every name, on a clock of its own that can be set, on a
//! machine that can stand still, start again, and forget.

mod machine;
mod message;
mod store;

pub(crate) use machine::Machine;
pub(crate) use message::{Mail, Notification, Reply, Request};
#[cfg(test)]
pub(crate) use store::Around;
pub(crate) use store::{REQUEST_LIFE, Store};
