//! Blocking calls: a thread of the caller waits for the keeper, unless that wait could never end.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::oneshot,
};

use super::{Keeper, thread::BlockingWait};
use crate::{Error, contract::time::format_duration};

/// For how long a blocking call waits for a runtime that runs none of its tasks. A keeper that does not run for so long
/// has already missed the first renewal of a lease with the default ttl.
const LONGEST_STANDSTILL: Duration = Duration::from_secs(10);

impl Keeper {
    /// Blocks this thread until `future` is done.
    ///
    /// # Errors
    /// [`ErrorKind::Misconfigured`](crate::ErrorKind::Misconfigured) if that could never happen, unless `future` is
    /// done at its first poll.
    ///
    /// # Panics
    /// In a task of this keeper's own runtime, if that has only one thread, unless `future` is done at its first poll.
    #[track_caller]
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        self.block_on_within(future, LONGEST_STANDSTILL)
    }

    /// [`block_on`](Self::block_on) with another limit for the standstill of the runtime.
    #[track_caller]
    fn block_on_within<T>(
        &self,
        future: impl Future<Output = T>,
        longest_standstill: Duration,
    ) -> Result<T, Error> {
        let mut future = pin!(future);
        // With an engine inside this process, the future may be ready without a keeper.
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Ok(value);
        }
        match self.blocking_wait() {
            BlockingWait::UntilDone => Ok(pollster::block_on(future)),
            BlockingWait::OnRuntime(runtime) => {
                let mut value = None;
                runtime.block_on(pin!(async { value = Some(future.await) }));
                Ok(value.expect("the runtime returns when the future is done"))
            }
            BlockingWait::WhileItRuns(handle) => {
                if handle.runtime_flavor() == RuntimeFlavor::CurrentThread {
                    assert_is_no_task_of(handle);
                }
                block_while_it_runs(future, handle, longest_standstill)
            }
            BlockingWait::Never => Err(Error::misconfigured(
                "a blocking call in an observer, or in another function that the keeper calls, would wait for itself: \
                 pass the work to another thread",
            )),
        }
    }
}

/// Panics in a task of a runtime with a single thread.
#[track_caller]
fn assert_is_no_task_of(handle: &Handle) {
    if Handle::try_current().is_ok_and(|current| current.id() == handle.id()) {
        // Threads of `spawn_blocking` are inside the runtime too, and may block. Only tokio can tell these threads from
        // its tasks: in a task, `blocking_recv` panics and says that a function attempted to block the thread that
        // drives the tasks.
        let (tx, rx) = oneshot::channel();
        let _ = tx.send(());
        let _ = rx.blocking_recv();
    }
}

/// Blocks this thread until `future` is done, or the runtime of its keeper has run no task for `longest_standstill`.
#[expect(clippy::disallowed_methods, reason = "part of the keeper")]
fn block_while_it_runs<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    handle: &Handle,
    longest_standstill: Duration,
) -> Result<T, Error> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut sign_of_life = request_sign_of_life(handle);
    let mut until = Instant::now() + longest_standstill;
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Ok(value);
        }
        free_newest_task(handle);
        let now = Instant::now();
        if now < until {
            std::thread::park_timeout(until - now);
        } else if sign_of_life.load(Ordering::Acquire) {
            sign_of_life = request_sign_of_life(handle);
            until = now + longest_standstill;
        } else {
            let limit = format_duration(longest_standstill);
            return Err(Error::misconfigured(format!(
                "a blocking call waits for a keeper on a runtime that has run no task for {limit}: let another thread \
                 run that runtime, use the async methods or spawn_blocking, or use Keeper::thread"
            )));
        }
    }
}

/// Starts a task on the runtime that sets this flag.
fn request_sign_of_life(handle: &Handle) -> Arc<AtomicBool> {
    let is_alive = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&is_alive);
    drop(handle.spawn(async move { flag.store(true, Ordering::Release) }));
    is_alive
}

/// Lets other workers run the task that this thread woke last, if this thread is a worker of the runtime. A worker
/// keeps its newest task to itself, until it has one more.
fn free_newest_task(handle: &Handle) {
    if Handle::try_current().is_ok_and(|current| current.id() == handle.id()) {
        drop(handle.spawn(async {}));
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(all(test, feature = "memory"))]
#[expect(clippy::disallowed_methods, reason = "the tests need threads")]
mod tests {
    use super::*;
    use crate::{
        Env, Locks,
        engines::memory::{MemoryEngine, MemoryStore},
    };

    const AN_HOUR: Duration = Duration::from_secs(3600);

    /// Another client's hold of `x`, and locks whose keeper runs on this runtime.
    fn contended(handle: &Handle) -> (crate::Guard, Locks) {
        let env = Env::system();
        let store = MemoryStore::new(env.lineage(), env.clock);
        let client = || Locks::builder(Arc::new(MemoryEngine::new(Arc::clone(&store))));
        let held = client().build().mutex("x").blocking().acquire().expect("the name is free");
        (held, client().keeper(Keeper::on(handle.clone())).build())
    }

    #[test]
    fn a_blocking_call_on_a_runtime_that_nobody_runs_is_an_error() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime needs a few descriptors");
        let (held, locks) = contended(runtime.handle());
        let keeper = &locks.shared().keeper;
        let is_refused = |limit| {
            let error = keeper.block_on_within(locks.mutex("x").acquire(), limit).unwrap_err();
            error.is_misconfigured() && error.to_string().contains("has run no task for")
        };
        assert!(is_refused(Duration::from_millis(20)));
        {
            // The thread is in the context of the runtime, but does not run it.
            let _entered = runtime.enter();
            assert!(is_refused(Duration::from_millis(20)));
        }
        drop(held);
    }

    /// A runtime with this number of workers, and the result of a blocking call in one of its tasks.
    fn blocking_call_in_a_task(workers: usize, limit: Duration, let_go: bool) -> Result<(), Error> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(workers).enable_all().build().expect("a runtime starts");
        let (held, locks) = contended(runtime.handle());
        let keeper = locks.shared().keeper.clone();
        let call = runtime.spawn(async move {
            // The keeper has to run twice. The second time, its task is woken by this thread, a worker of its runtime.
            let work = async {
                locks.mutex("x").acquire().await?.release().await?;
                assert_eq!(locks.close(AN_HOUR).await, 0);
                Ok(())
            };
            keeper.block_on_within(work, limit)
        });
        if let_go {
            held.release_blocking().expect("it is held");
        }
        runtime.block_on(call).expect("the call does not panic")?
    }

    #[test]
    fn a_blocking_call_in_a_task_of_several_workers_waits_for_the_others() {
        blocking_call_in_a_task(2, AN_HOUR, true).unwrap();
    }

    #[test]
    fn a_blocking_call_in_a_task_of_the_only_worker_is_an_error() {
        let error = blocking_call_in_a_task(1, Duration::from_millis(20), false).unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("has run no task for"), "{error}");
    }

    #[test]
    fn a_blocking_call_waits_for_a_runtime_that_another_thread_runs() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime needs a few descriptors");
        let (held, locks) = contended(runtime.handle());
        let keeper = locks.shared().keeper.clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let driver = std::thread::spawn(move || runtime.block_on(stopped));
        let waits = std::thread::spawn(move || keeper.block_on_within(locks.mutex("x").acquire(), AN_HOUR));
        held.release_blocking().unwrap();
        let guard = waits.join().unwrap().unwrap().unwrap();
        guard.release_blocking().unwrap();
        drop(stop);
        assert!(driver.join().unwrap().is_err());
    }
}
