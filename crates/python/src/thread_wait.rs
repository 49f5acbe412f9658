//! Waits of threads, without the lock of the interpreter. A wait of the main thread ends at once when a signal comes
//! for which Python has a handler, such as Ctrl-C.

use std::{
    cell::{Cell, RefCell},
    os::fd::OwnedFd,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::Duration,
};

use pyo3::{exceptions::PyOSError, prelude::*};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};

use crate::{
    locks::forks,
    operation::{Finish, Work},
};

/// A signal that comes after the look at the signals and before the wait does not interrupt the wait: the next look
/// comes after this time at the latest. The window is a few microseconds.
const LOOK_AT_SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Blocks this thread until `work`, a call on `locks`, is done. An interrupted wait drops `work`, which cancels it.
pub fn block_on(py: Python<'_>, mut work: Work, locks: Option<&leasehold::Locks>) -> PyResult<Finish> {
    py.detach(move || {
        let mut call = locks.map(|locks| locks.core().begin_blocking_call());
        if let Some(call) = &mut call {
            let was_run = call.runs();
            if let Some(finish) = call.run(work.as_mut()) {
                return Ok(finish);
            }
            if was_run {
                // A signal of that time interrupts no system call.
                Python::attach(|py| py.check_signals())?;
            }
        }
        if is_main_thread() { block_main_thread(work) } else { Ok(block_other_thread(work)) }
    })
}

/// Python runs the handlers of signals on this thread alone.
fn is_main_thread() -> bool {
    thread_local! {
        /// The answer, and in which process it is true: the thread that forks is the main thread of the child.
        static ANSWER: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
    }
    match ANSWER.get() {
        Some((process, answer)) if process == forks() => answer,
        _ => {
            let answer = rustix::thread::gettid() == rustix::process::getpid();
            ANSWER.set(Some((forks(), answer)));
            answer
        }
    }
}

fn block_other_thread(mut work: Work) -> Finish {
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    }
    // A wake-up of an earlier call costs one more look.
    WAKER.with(|waker| {
        loop {
            match work.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Ready(finish) => return finish,
                Poll::Pending => std::thread::park(),
            }
        }
    })
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_main_thread(mut work: Work) -> PyResult<Finish> {
    // Most calls of an engine inside this process are done at once, and need no descriptor.
    if let Poll::Ready(finish) = work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        return Ok(finish);
    }
    let event = event_of_this_thread().map_err(|errno| PyOSError::new_err(errno.raw_os_error()))?;
    let waker = Waker::from(Arc::clone(&event));
    let mut context = Context::from_waker(&waker);
    let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_AT_SIGNALS_EVERY.subsec_nanos()) };
    loop {
        if let Poll::Ready(finish) = work.as_mut().poll(&mut context) {
            return Ok(finish);
        }
        match poll(&mut [PollFd::new(&event.descriptor, PollFlags::IN)], Some(&pause)) {
            // A signal handler may itself wait on this descriptor, and read a wake-up of `work`: so `work` is polled
            // after the handler.
            Ok(0) | Err(Errno::INTR) => Python::attach(|py| py.check_signals())?,
            Ok(_) => {}
            Err(errno) => return Err(PyOSError::new_err(errno.raw_os_error())),
        }
        let _ = rustix::io::read(&event.descriptor, &mut [0; 8]);
    }
}

/// Wakes the main thread, by a descriptor: a system call on it ends when a signal comes.
struct Event {
    descriptor: OwnedFd,
    /// A forked child has its own.
    forks: u32,
}

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        // It fails only if the counter is full: then the descriptor is readable already.
        let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
    }
}

fn event_of_this_thread() -> Result<Arc<Event>, Errno> {
    thread_local! {
        static EVENT: RefCell<Option<Arc<Event>>> = const { RefCell::new(None) };
    }
    EVENT.with_borrow_mut(|cached| {
        if let Some(event) = cached.as_ref().filter(|event| event.forks == forks()) {
            return Ok(Arc::clone(event));
        }
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let event = Arc::new(Event { descriptor, forks: forks() });
        *cached = Some(Arc::clone(&event));
        Ok(event)
    })
}
