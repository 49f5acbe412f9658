//! A task, and the waker that makes it run again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
};

use leasehold_core::BoxFuture;

use super::{Group, Scheduler};

/// Identifies a task. Ids are not used again in a run.
pub(super) type TaskId = usize;

/// One task. While the task is polled, its future is not in this value.
pub(super) struct Task {
    pub(super) group: Group,
    pub(super) future: Option<BoxFuture<'static, ()>>,
    pub(super) waker: Arc<TaskWaker>,
}

/// Wakes one task.
pub(super) struct TaskWaker {
    pub(super) scheduler: Arc<Scheduler>,
    pub(super) task: TaskId,
    /// Whether the task was woken since its last poll.
    pub(super) woken: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Relaxed) {
            self.scheduler.make_ready(self.task);
        }
    }
}
