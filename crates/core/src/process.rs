//! The two things about the process that need a call into libc: knowing that it was forked, and a word at its exit.
//!
//! The only module of this crate with unsafe code. Both calls only register a plain function.
#![expect(unsafe_code, reason = "pthread_atfork and atexit have no safe wrapper")]

use std::sync::{
    Once,
    atomic::{AtomicU32, Ordering},
};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A number that differs between a process and the children it forks. One atomic load.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Starts counting forks, and calls `farewell` when the process ends by `exit` or by returning from `main`.
pub(crate) fn watch(farewell: fn()) {
    static REGISTERED: Once = Once::new();
    static FAREWELL: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

    extern "C" fn forked() {
        // In the child only this thread exists: nothing but async-signal-safe steps are allowed here.
        GENERATION.fetch_add(1, Ordering::Relaxed);
    }
    extern "C" fn exiting() {
        if let Some(farewell) = FAREWELL.get() {
            farewell();
        }
    }

    REGISTERED.call_once(|| {
        let _ = FAREWELL.set(farewell);
        // SAFETY: both functions are plain `extern "C"` functions that live as long as the program and never unwind:
        // `forked` adds to an atomic, and a panic in `exiting` aborts at the `extern "C"` border.
        // Failure (out of memory) only means that forks go unnoticed or releases are not waited for.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
            libc::atexit(exiting);
        }
    });
}
