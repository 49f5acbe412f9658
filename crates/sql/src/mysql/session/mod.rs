//! Locks of sessions: `GET_LOCK` on one pinned connection of each process.

mod batch;
mod guarantee;
mod look;
mod open;
mod pinned;
mod server;
mod task;

pub(super) use self::server::Sessions;
