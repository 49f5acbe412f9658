//! What runs a lock: the keeper's thread and its tasks, and the queues inside this process.

pub(crate) mod followers;
pub(crate) mod keeper;
pub(crate) mod local;
pub(crate) mod observer;
pub(crate) mod outage;
pub(crate) mod shared;
pub(crate) mod tasks;
pub(crate) mod validity;
