//! How a waiting claim is woken: by a pipe of its process, or because a lock file was closed. `changes` tells views of
//! changes.

mod changes;
pub(super) mod listener;
pub(super) mod readable_fd;
pub(super) mod series;
pub(super) mod wake_pipe;
