//! Facts about this process: whether it was forked, and a hook for its exit.
//!
//! The only module of this crate with unsafe code. Both unsafe calls only register plain functions.
#![expect(unsafe_code, reason = "pthread_atfork and atexit have no safe wrapper")]

use std::sync::{
    Once,
    atomic::{AtomicU32, Ordering},
};

/// How many forks lead from the process that made the first `Locks` to this process: see [`generation`].
static GENERATION: AtomicU32 = AtomicU32::new(0);
/// Counts up before each fork of this process and after it: see [`forks`].
#[cfg(unix)]
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that differs between a process and the children it forks. Reading it takes one atomic load.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// A number that grows before and after each fork of this process and of its ancestors, from the first `Locks` on. A
/// file that was opened before the number last grew may be open in another process, too.
#[cfg(all(feature = "file", target_os = "linux"))]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Registers hooks of the process: from now on forks are counted, and `at_exit` is called when the process ends by
/// `exit` or by returning from `main`.
pub(crate) fn register_hooks(at_exit: fn()) {
    static REGISTERED: Once = Once::new();
    static AT_EXIT: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

    // Counted before and after a fork: a file that another thread opens in between may or may not be inherited.
    #[cfg(unix)]
    extern "C" fn count_fork() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    #[cfg(unix)]
    extern "C" fn begin_generation() {
        // The child has only this thread: only async-signal-safe operations are allowed here.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn run_at_exit() {
        if let Some(at_exit) = AT_EXIT.get() {
            at_exit();
        }
    }

    REGISTERED.call_once(|| {
        let _ = AT_EXIT.set(at_exit);
        // SAFETY: these are plain `extern "C"` functions that live as long as the program and never unwind:
        // `count_fork` and `begin_generation` add to an atomic, and a panic in `run_at_exit` aborts at the `extern "C"`
        // border. Failure (out of memory) only means that forks go unnoticed or releases are not waited for.
        unsafe {
            // The hooks run before a fork, after it in the parent, and after it in the child. Windows has no fork.
            #[cfg(unix)]
            libc::pthread_atfork(Some(count_fork), Some(count_fork), Some(begin_generation));
            libc::atexit(run_at_exit);
        }
    });
}
