//! Things about the process: what it is called, whether it was forked, and a word at its exit.
//!
//! The only module of this crate with unsafe code. Both unsafe calls only register plain functions.
#![expect(unsafe_code, reason = "pthread_atfork and atexit have no safe wrapper")]

use std::sync::{
    Once,
    atomic::{AtomicU32, Ordering},
};

static GENERATION: AtomicU32 = AtomicU32::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A number that differs between a process and the children it forks. One atomic load.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// How often this process, or one that it descends from, was forked since the first `Locks` was made: what was open before the last
/// fork another process may have open, too.
#[cfg(feature = "file")]
pub(crate) fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Starts counting forks, and calls `farewell` when the process ends by `exit` or by returning from `main`.
pub(crate) fn watch(farewell: fn()) {
    static REGISTERED: Once = Once::new();
    static FAREWELL: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();

    // Before a fork and after it: what another thread opens meanwhile may be inherited or not.
    extern "C" fn forks() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
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
        // SAFETY: these are plain `extern "C"` functions that live as long as the program and never unwind: `forks` and
        // `forked` add to an atomic, and a panic in `exiting` aborts at the `extern "C"` border.
        // Failure (out of memory) only means that forks go unnoticed or releases are not waited for.
        unsafe {
            libc::pthread_atfork(Some(forks), Some(forks), Some(forked));
            libc::atexit(exiting);
        }
    });
}

/// `user@host:pid` of this process, as far as the system knows it.
pub(crate) fn label() -> String {
    label_of(std::process::id())
}

/// As a process of this user and host is called.
pub(crate) fn label_of(pid: u32) -> String {
    let uid = nix::unistd::geteuid();
    let user =
        nix::unistd::User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|host| host.into_string().ok())
        .unwrap_or_else(|| "?".into());
    format!("{user}@{host}:{pid}")
}
