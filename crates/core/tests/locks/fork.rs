//! A forked child gets errors, never hangs, and cannot release its parent's hold.

use nix::{
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, fork},
};

use crate::World;

#[test]
#[expect(unsafe_code, reason = "fork is what is tested; the child only calls this library and _exit")]
fn the_child_has_no_lock_and_harms_none() {
    let world = World::new();
    let locks = world.client();
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    // SAFETY: the child runs no code but this block, which takes no lock that another thread may hold at the fork.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let inert = !guard.check();
            let refused = locks.mutex("y").blocking().try_acquire().is_err();
            let waited = locks.mutex("x").blocking().acquire().is_err();
            let told = guard.on_lost(|_| ()).is_ok();
            let released = guard.release_blocking().is_err();
            let code = i32::from(!(inert && refused && waited && !told && released));
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
