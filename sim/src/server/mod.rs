//! The modelled server: the lock rules of `leasehold_core::lock_state` for every name, on a modelled machine. The clock
//! of this machine can be set, and the machine can stall, restart and lose data.

mod machine;
mod message;
mod store;

pub(crate) use machine::Machine;
pub(crate) use message::{Mail, Notification, Reply, Request};
#[cfg(test)]
pub(crate) use store::RequestContext;
pub(crate) use store::{REQUEST_LIFE, Store};
