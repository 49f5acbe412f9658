//! A forked child gets errors, never hangs, and cannot release its parent's hold.

use nix::{
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, fork},
};

use crate::World;

/// Whether a process has a lock on an open file of this directory: other tests of this process lock files of their own.
#[cfg(feature = "file")]
fn has_locks(pid: nix::unistd::Pid, dir: &std::path::Path) -> bool {
    let is_locked = |number: &std::ffi::OsStr| {
        let info = std::path::Path::new(&format!("/proc/{pid}/fdinfo")).join(number);
        std::fs::read_to_string(info).is_ok_and(|info| info.contains("lock:"))
    };
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let mut ours =
        files.filter(|file| std::fs::read_link(file.path()).is_ok_and(|path| path.starts_with(dir)));
    ours.any(|file| is_locked(&file.file_name()))
}

/// If the child shared the lock, the name would stay taken after the parent is killed, until the child ends.
#[test]
#[cfg(feature = "file")]
#[expect(unsafe_code, reason = "fork is what is tested; the child only sleeps and ends")]
fn a_forked_child_has_no_part_in_later_locks() {
    use leasehold_core::{Env, Locks, file::FileEngine};
    let dir = tempfile::tempdir().unwrap();
    let engine = FileEngine::open(Some(dir.path().join("locks")), Env::system()).unwrap();
    let locks = Locks::new(std::sync::Arc::new(engine));
    let job = locks.mutex("job").blocking();
    job.acquire().unwrap().release_blocking().unwrap();
    // SAFETY: the child runs only this block.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => loop {
            // SAFETY: it only waits for a signal.
            unsafe { libc::pause() };
        },
        ForkResult::Parent { child } => {
            let guard = job.acquire().unwrap();
            let is_shared = has_locks(child, dir.path());
            let is_held = has_locks(nix::unistd::getpid(), dir.path());
            nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
            waitpid(child, None).unwrap();
            assert!(!is_shared && is_held);
            guard.release_blocking().unwrap();
        }
    }
}

/// A server that forks its workers while it holds a lock: if the workers had the lock, too, it would stay taken after
/// the server was killed.
#[test]
#[cfg(feature = "file")]
#[expect(unsafe_code, reason = "fork is what is tested; the child only waits and ends")]
fn a_forked_child_does_not_keep_the_lock_that_its_parent_holds() {
    use leasehold_core::{Env, Locks, file::FileEngine};
    let dir = tempfile::tempdir().unwrap();
    let engine = FileEngine::open(Some(dir.path().join("locks")), Env::system()).unwrap();
    let locks = Locks::new(std::sync::Arc::new(engine));
    let guard = locks.mutex("job").blocking().acquire().unwrap();
    let (mut started, start) = std::io::pipe().unwrap();
    // SAFETY: the child runs only this block.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => loop {
            // SAFETY: these are system calls; the descriptor is open.
            unsafe {
                libc::write(std::os::fd::AsRawFd::as_raw_fd(&start), [1_u8].as_ptr().cast(), 1);
                libc::pause();
            }
        },
        ForkResult::Parent { child } => {
            std::io::Read::read_exact(&mut started, &mut [0]).unwrap();
            let has_lock = has_locks(child, dir.path());
            let is_held = has_locks(nix::unistd::getpid(), dir.path());
            nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).unwrap();
            waitpid(child, None).unwrap();
            assert!(!has_lock && is_held && guard.check());
            guard.release_blocking().unwrap();
        }
    }
}

#[test]
#[expect(unsafe_code, reason = "fork is what is tested; the child only calls this library and _exit")]
fn a_forked_child_has_no_lock_and_ends_none() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    // SAFETY: the child runs only this block, which takes no lock that another thread may hold at the fork.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let inert = !guard.check();
            let refused = locks.mutex("y").blocking().try_acquire().is_err();
            let waited = locks.mutex("x").blocking().acquire().is_err();
            let accepted = guard.on_lost(|_| ()).is_ok();
            let released = guard.release_blocking().is_err();
            let code = i32::from(!(inert && refused && waited && !accepted && released));
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
            assert!(guard.check());
            assert!(world.client().mutex("x").blocking().try_acquire().unwrap_err().is_taken());
        }
    }
}
