//! The memory that tasks of the keeper take.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{BoxFuture, Keeper, Locks, Runtime, memory::MemoryEngine};
use leasehold_testkit::decorators::Slow;
use tokio::runtime::Handle;

use crate::World;

/// The most bytes that a task may take in addition to the future that it runs.
const MOST: usize = 1024;

/// Runs tasks, and records their sizes.
struct Weighing {
    handle: Handle,
    tasks: AtomicUsize,
    largest: AtomicUsize,
}

impl Runtime for Weighing {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.tasks.fetch_add(1, Ordering::Relaxed);
        self.largest.fetch_max(size_of_val(&*task), Ordering::Relaxed);
        self.handle.spawn(task);
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// An async function that takes a future reserves room for it twice: as argument, and where it is polled. With two
/// nested functions of this kind, each waiting claim took four times its size.
#[test]
fn a_task_is_little_larger_than_its_future() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (tasks, largest) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let weighing = Arc::new(Weighing { handle: Handle::current(), tasks, largest });
        let slow = Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store))));
        let keeper = Keeper::with(Arc::clone(&weighing) as Arc<dyn Runtime>);
        let locks = Locks::builder(Arc::new(slow)).keeper(keeper).build();
        let guard = locks.mutex("x").acquire().await.unwrap();
        guard.release().await.unwrap();
        let (tasks, largest) =
            (weighing.tasks.load(Ordering::Relaxed), weighing.largest.load(Ordering::Relaxed));
        assert!(tasks > 1, "of {tasks} tasks");
        assert!(largest <= MOST, "{largest} bytes");
    });
}
