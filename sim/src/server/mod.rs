//! The modelled server: the machine of `leasehold_core::lock_state` for every name. Its clock can be set, and its
//! machine can stall, restart and lose data.

mod machine;
mod message;
mod store;

pub(crate) use machine::Machine;
pub(crate) use message::{Mail, Notification, Reply, Request};
#[cfg(test)]
pub(crate) use store::RequestContext;
pub(crate) use store::{REQUEST_LIFE, Store};
