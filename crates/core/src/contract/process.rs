//! Facts about this process: whether it was forked, what its forked children must not have, and a hook for its exit.
//!
//! The only module of this crate with unsafe code. The unsafe calls register plain functions, and in a forked child
//! replace descriptors.
#![expect(
    unsafe_code,
    reason = "pthread_atfork and atexit have no safe wrapper, dup3 none that is async-signal-safe"
)]

#[cfg(all(feature = "file", target_os = "linux"))]
use std::sync::atomic::AtomicU64;
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

/// The number of descriptors that can be kept from children: few processes have more. A descriptor with a larger number
/// is inherited.
#[cfg(all(feature = "file", target_os = "linux"))]
const MAX_NOT_INHERITED: usize = 1 << 16;

/// The descriptors that a forked child must not have, one bit for each number.
#[cfg(all(feature = "file", target_os = "linux"))]
static NOT_INHERITED: [AtomicU64; MAX_NOT_INHERITED / 64] =
    [const { AtomicU64::new(0) }; MAX_NOT_INHERITED / 64];

/// Keeps a descriptor from forked children, until it is dropped: drop it before the descriptor is closed. In a child
/// the descriptor is one of `/dev/null`.
///
/// A kernel lock belongs to the open file. If a child had the open file, too, the lock would last as long as the child
/// after the parent was killed.
#[cfg(all(feature = "file", target_os = "linux"))]
#[derive(Debug)]
pub(crate) struct NotInherited(std::os::fd::RawFd);

#[cfg(all(feature = "file", target_os = "linux"))]
impl NotInherited {
    pub(crate) fn new(descriptor: &impl std::os::fd::AsRawFd) -> Self {
        let number = descriptor.as_raw_fd();
        if let Some((word, bit)) = bit_of(number) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Self(number)
    }
}

#[cfg(all(feature = "file", target_os = "linux"))]
impl Drop for NotInherited {
    fn drop(&mut self) {
        if let Some((word, bit)) = bit_of(self.0) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

#[cfg(all(feature = "file", target_os = "linux"))]
fn bit_of(number: std::os::fd::RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(number).ok()?;
    Some((NOT_INHERITED.get(number / 64)?, 1 << (number % 64)))
}

/// Replaces the descriptors that a child must not have. Runs in the child, which has one thread: it calls only
/// functions that are async-signal-safe.
#[cfg(all(feature = "file", target_os = "linux"))]
fn replace_inherited() {
    let mut null = None;
    for (index, word) in NOT_INHERITED.iter().enumerate() {
        let mut bits = word.load(Ordering::Relaxed);
        while bits != 0 {
            let number = (index * 64) as i32 + bits.trailing_zeros() as i32;
            bits &= bits - 1;
            // SAFETY: the path is a C string, and the flags need no mode. The descriptor with this number belongs to a
            // live `NotInherited`, so it is open and stays open: only the file behind it changes.
            unsafe {
                let null = *null
                    .get_or_insert_with(|| libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC));
                if null >= 0 {
                    libc::dup3(null, number, libc::O_CLOEXEC);
                }
            }
        }
    }
    if let Some(null) = null.filter(|null| *null >= 0) {
        // SAFETY: this function opened it, and nothing else refers to it.
        unsafe { libc::close(null) };
    }
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
        #[cfg(all(feature = "file", target_os = "linux"))]
        replace_inherited();
    }
    extern "C" fn run_at_exit() {
        if let Some(at_exit) = AT_EXIT.get() {
            at_exit();
        }
    }

    REGISTERED.call_once(|| {
        let _ = AT_EXIT.set(at_exit);
        // SAFETY: these are plain `extern "C"` functions that live as long as the program and never unwind:
        // `count_fork` and `begin_generation` add to an atomic and replace descriptors, and a panic in `run_at_exit`
        // aborts at the `extern "C"` border. Failure (out of memory) only means that forks go unnoticed or releases are
        // not waited for.
        unsafe {
            // The hooks run before a fork, after it in the parent, and after it in the child. Windows has no fork.
            #[cfg(unix)]
            libc::pthread_atfork(Some(count_fork), Some(count_fork), Some(begin_generation));
            libc::atexit(run_at_exit);
        }
    });
}
