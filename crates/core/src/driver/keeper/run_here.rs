//! Which thread runs the runtime of a keeper thread: its own thread, or the thread of a caller for the time of a
//! blocking call. A caller that makes one blocking call after another, while nobody else needs the keeper, runs the
//! runtime itself: then no thread is woken between the answer of a server and the return of the call. Between two such
//! calls nobody runs the runtime, for a moment: the keeper thread runs it again if no further call comes.

use std::{
    pin::{Pin, pin},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tokio::{
    runtime::{Handle, Runtime},
    sync::Notify,
};

use crate::{Error, driver::shared::Shared};

/// For how long nobody runs the runtime between two calls. Renewals and notifications can be late by this time.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// After this number of calls in a row, with shorter pauses between them and nothing else to do, the caller runs the
/// runtime.
const MIN_CALLS_IN_A_ROW: u32 = 8;
/// A call that waits longer leaves the runtime to the keeper thread: others need not depend on a thread of the user.
const LONGEST_RUN: Duration = Duration::from_millis(20);

/// The runtime of a keeper thread, as far as the threads of callers may run it.
pub(crate) struct CallersRuntime {
    /// The keeper thread owns it, and destroys it.
    runtime: Weak<Runtime>,
    /// Notified when the keeper thread is to leave the runtime to callers.
    leave: Notify,
    calls: Mutex<Calls>,
    /// Notified when the keeper thread is to run the runtime again.
    return_now: Condvar,
}

/// The blocking calls of this keeper.
#[derive(Default)]
struct Calls {
    /// How many run now.
    running: usize,
    /// How many were made, each soon after the end of the one before.
    in_a_row: u32,
    last_end: Option<Instant>,
    /// Whether a caller runs the runtime, or is about to.
    is_run_by_caller: bool,
    /// Whether the keeper thread does not run the runtime.
    is_left: bool,
    /// Whether the keeper thread is to run the runtime as soon as no caller does.
    must_return: bool,
}

/// A blocking call, from its begin until it is dropped. For bindings to other languages, whose threads wait in their
/// own way.
#[must_use]
pub struct BlockingCall {
    /// The keeper's work and its runtime. `None` for an engine inside the process, which needs no keeper, and if the
    /// keeper has no thread, or it has not started.
    keeper: Option<(Arc<Shared>, Arc<CallersRuntime>)>,
    /// Whether this call runs the runtime.
    runs: bool,
    /// Whether the call leaves something to do for the keeper thread.
    must_return: bool,
}

impl CallersRuntime {
    pub(super) fn new(runtime: &Arc<Runtime>) -> Self {
        let runtime = Arc::downgrade(runtime);
        Self { runtime, leave: Notify::new(), calls: Mutex::default(), return_now: Condvar::new() }
    }

    /// Counts a blocking call of this thread that begins. Returns whether it runs the runtime.
    fn start_call(&self) -> bool {
        // A thread inside a runtime cannot run another one; nor can a thread that has destroyed its thread-locals.
        let is_free = Handle::try_current().is_err_and(|error| error.is_missing_context());
        let mut calls = self.lock();
        let is_soon = calls.last_end.is_some_and(|end| end.elapsed() < LONGEST_PAUSE);
        calls.in_a_row = if is_soon && calls.running == 0 { calls.in_a_row.saturating_add(1) } else { 0 };
        calls.running += 1;
        if !is_free || calls.in_a_row < MIN_CALLS_IN_A_ROW || calls.is_run_by_caller {
            return false;
        }
        calls.is_run_by_caller = true;
        if !calls.is_left {
            self.leave.notify_one();
        }
        true
    }

    /// Runs the runtime on this thread until `future` is done; `None` if that takes too long.
    #[expect(clippy::disallowed_methods, reason = "part of the keeper")]
    fn run<T>(&self, future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
        let runtime = self.runtime.upgrade()?;
        runtime.block_on(async { tokio::time::timeout(LONGEST_RUN, future).await.ok() })
    }

    /// The caller stops to run the runtime: leaves it to the next caller, or, if `must_return`, to the keeper thread.
    fn stop_running(&self, must_return: bool) {
        let mut calls = self.lock();
        calls.is_run_by_caller = false;
        if must_return || calls.running > 1 {
            calls.in_a_row = 0;
            calls.must_return = true;
            self.return_now.notify_one();
        }
    }

    /// Counts the end of a blocking call.
    #[expect(clippy::disallowed_methods, reason = "part of the keeper")]
    fn end_call(&self) {
        let mut calls = self.lock();
        calls.running -= 1;
        calls.last_end = Some(Instant::now());
    }

    /// Wakes the keeper thread if nobody runs the runtime: there is something to do that no blocking call waits for.
    pub(super) fn run_soon(&self) {
        let mut calls = self.lock();
        if calls.is_left && !calls.is_run_by_caller {
            calls.must_return = true;
            self.return_now.notify_one();
        }
    }

    /// Runs the runtime on the keeper thread until `gone` is done.
    pub(super) fn run_until(&self, runtime: &Runtime, gone: impl Future<Output = ()>) {
        let mut gone = pin!(gone);
        let mut is_gone = false;
        while !is_gone {
            is_gone = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = &mut gone => true,
                    () = self.leave.notified() => false,
                }
            });
            if !is_gone {
                self.wait_for_callers();
            }
        }
    }

    /// Blocks the keeper thread while callers run the runtime with short pauses.
    fn wait_for_callers(&self) {
        let mut calls = self.lock();
        calls.is_left = true;
        let mut last_end = None;
        while calls.is_run_by_caller || !(calls.must_return || calls.last_end == last_end) {
            last_end = calls.last_end;
            let wait = self.return_now.wait_timeout(calls, LONGEST_PAUSE);
            (calls, _) = wait.unwrap_or_else(PoisonError::into_inner);
        }
        (calls.is_left, calls.must_return) = (false, false);
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockingCall {
    /// Begins a blocking call on `shared`. It must begin before its work does.
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        let runtime = if shared.profile.inline { None } else { shared.keeper.callers_runtime() };
        let keeper = runtime.map(|runtime| (Arc::clone(shared), runtime));
        let runs = keeper.as_ref().is_some_and(|(_, runtime)| runtime.start_call());
        // After a panic, the keeper thread has to look what is left to do.
        Self { keeper, runs, must_return: true }
    }

    /// Whether this call runs the keeper's runtime.
    #[must_use]
    pub const fn runs(&self) -> bool {
        self.runs
    }

    /// Runs the keeper's runtime on this thread until `future` is done. `None` if this call does not run the runtime,
    /// or not any longer: then the caller waits for the keeper.
    pub fn run<T>(&mut self, future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
        let (shared, runtime) = self.keeper.as_ref().filter(|_| self.runs)?;
        let value = runtime.run(future);
        self.must_return = value.is_none() || !shared.pending.is_zero() || !shared.has_no_jobs();
        if value.is_none() {
            self.stop_running();
        }
        value
    }

    fn stop_running(&mut self) {
        if let Some((_, runtime)) = &self.keeper
            && std::mem::take(&mut self.runs)
        {
            runtime.stop_running(self.must_return);
        }
    }
}

impl Drop for BlockingCall {
    fn drop(&mut self) {
        self.stop_running();
        if let Some((_, runtime)) = &self.keeper {
            runtime.end_call();
        }
    }
}

impl Shared {
    /// Blocks this thread until `future` is done, as `Keeper::block_on` does. In a row of short blocking calls, runs
    /// the work of the keeper on this thread.
    #[track_caller]
    pub(crate) fn block_on<T>(self: &Arc<Self>, future: impl Future<Output = T>) -> Result<T, Error> {
        let mut call = BlockingCall::new(self);
        let mut future = pin!(future);
        match call.run(future.as_mut()) {
            Some(value) => Ok(value),
            None => self.keeper.block_on(future),
        }
    }

    /// Lets the keeper thread run, if it has left its runtime to blocking calls and none runs now.
    pub(crate) fn run_keeper_soon(&self) {
        if let Some(callers) = self.keeper.callers_runtime() {
            callers.run_soon();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        panic::{AssertUnwindSafe, catch_unwind},
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        thread::{self, ThreadId},
    };

    use super::*;
    use crate::driver::keeper::thread::{Running, start_thread};

    /// More calls than a busy machine needs until some of them follow each other soon enough.
    const MANY_CALLS: usize = 1_000_000;
    /// For how long a test waits for what must come.
    const LONG: Duration = Duration::from_secs(60);

    /// A keeper thread.
    struct Kept {
        running: Running,
        thread: ThreadId,
    }

    /// Tells the thread on which a task of the runtime runs.
    fn spawn(runtime: &Handle) -> mpsc::Receiver<ThreadId> {
        let (sender, receiver) = mpsc::channel();
        drop(runtime.spawn(async move { sender.send(thread::current().id()) }));
        receiver
    }

    impl Kept {
        fn start() -> Self {
            let running = start_thread().unwrap();
            let thread = spawn(&running.handle).recv_timeout(LONG).unwrap();
            Self { running, thread }
        }

        /// The thread on which a task of the runtime runs.
        fn task_thread(&self) -> Result<ThreadId, mpsc::RecvTimeoutError> {
            spawn(&self.running.handle).recv_timeout(LONG)
        }

        /// A short blocking call; true if its task ran on this thread.
        fn call(&self) -> bool {
            let mut task_thread = None;
            if self.running.callers.start_call() {
                let task = self.running.handle.spawn(async { thread::current().id() });
                task_thread = self.running.callers.run(pin!(task)).transpose().unwrap();
                self.running.callers.stop_running(task_thread.is_none());
            }
            self.running.callers.end_call();
            task_thread == Some(thread::current().id())
        }

        /// Makes short calls until one has run the runtime.
        fn call_until_one_runs(&self) {
            assert!((0..MANY_CALLS).any(|_| self.call()), "none of many calls ran the runtime");
        }

        /// Begins calls until one is to run the runtime.
        fn begin_running(&self) {
            let begin = |_| {
                let runs = self.running.callers.start_call();
                if !runs {
                    self.running.callers.end_call();
                }
                runs
            };
            assert!((0..MANY_CALLS).any(begin), "none of many calls may run the runtime");
        }
    }

    #[test]
    fn a_caller_of_many_calls_runs_the_tasks_and_then_the_keeper_thread_runs_them_again() {
        let kept = Kept::start();
        assert_eq!(kept.task_thread(), Ok(kept.thread));
        for _ in 0..3 {
            kept.call_until_one_runs();
            // Nobody asks for the keeper thread: it looks by itself.
            assert_eq!(kept.task_thread(), Ok(kept.thread));
        }
    }

    #[test]
    fn a_long_call_leaves_the_runtime_to_the_keeper_thread() {
        let kept = Kept::start();
        kept.begin_running();
        let (keeper_thread, has_left) = (kept.thread, Arc::new(AtomicBool::new(false)));
        let is_left = Arc::clone(&has_left);
        let task = kept.running.handle.spawn(async move {
            while !is_left.load(Ordering::SeqCst) || thread::current().id() != keeper_thread {
                tokio::task::yield_now().await;
            }
        });
        let mut task = pin!(task);
        assert!(kept.running.callers.run(task.as_mut()).is_none());
        has_left.store(true, Ordering::SeqCst);
        kept.running.callers.stop_running(true);
        pollster::block_on(task).unwrap();
        kept.running.callers.end_call();
    }

    #[test]
    fn a_call_beside_another_one_does_not_run_the_runtime() {
        let kept = Kept::start();
        kept.begin_running();
        assert!(!kept.running.callers.start_call());
        kept.running.callers.stop_running(false);
        assert_eq!(kept.task_thread(), Ok(kept.thread));
        kept.running.callers.end_call();
        kept.running.callers.end_call();
    }

    /// Without a keeper thread, which could return by itself at any time.
    fn without_a_thread() -> CallersRuntime {
        CallersRuntime::new(&Arc::new(tokio::runtime::Builder::new_current_thread().build().unwrap()))
    }

    #[test]
    fn a_caller_that_stops_calls_the_keeper_thread_back_for_other_calls() {
        let callers = without_a_thread();
        let is_called_back = |running, must_return| {
            *callers.lock() = Calls { running, is_left: true, is_run_by_caller: true, ..Calls::default() };
            callers.stop_running(must_return);
            callers.lock().must_return
        };
        assert!(is_called_back(2, false), "another call waits");
        assert!(is_called_back(1, true), "this call leaves something to do");
        assert!(!is_called_back(1, false), "the next call runs the runtime");
    }

    #[test]
    fn work_of_others_calls_the_keeper_thread_back() {
        let callers = without_a_thread();
        let is_called_back = |is_left, is_run_by_caller| {
            *callers.lock() = Calls { is_left, is_run_by_caller, ..Calls::default() };
            callers.run_soon();
            callers.lock().must_return
        };
        assert!(is_called_back(true, false));
        assert!(!is_called_back(true, true), "the caller does the work");
        assert!(!is_called_back(false, false), "the keeper thread does the work");
    }

    #[test]
    fn a_thread_inside_a_runtime_runs_no_other_one() {
        let kept = Kept::start();
        kept.call_until_one_runs();
        let own_runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = own_runtime.enter();
        for _ in 0..100 {
            assert!(!kept.call());
        }
    }

    #[test]
    fn a_panic_leaves_the_runtime_to_the_keeper_thread() {
        let kept = Kept::start();
        kept.begin_running();
        let panics = || kept.running.callers.run(pin!(async { panic!("as a bug would") }));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        kept.running.callers.stop_running(true);
        kept.running.callers.end_call();
        assert_eq!(kept.task_thread(), Ok(kept.thread));
    }
}
