//! util-linux `flock(1)` on the same file, in both directions.

use std::{
    fs::File,
    io::Read,
    process::{Child, Stdio},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};

use super::*;

/// A `flock(1)` process that has the lock until it is killed.
struct Flock(Child);

impl Flock {
    fn hold(file: &Path, option: &str) -> Self {
        // With `-F` flock becomes the command, which inherits the lock: one process, one kill.
        let mut child = program("flock")
            .args([option, "-F"])
            .arg(file)
            .args(["sh", "-c", "echo; exec sleep 1000"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        Self(child)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn our_exclusive_hold_excludes_flock() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    let file = scratch.lock_file("job");
    assert!(!flock_gets(&file, "-x") && !flock_gets(&file, "-s"));
    release_claim(&engine, &first);
    assert!(flock_gets(&file, "-x") && flock_gets(&file, "-s"));
}

#[test]
fn our_shared_holds_and_permits_exclude_an_exclusive_flock_only() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    for mode in [Mode::Shared, PERMIT] {
        let first = claim(mode.word(), mode);
        held(create(&engine, &first));
        let file = scratch.lock_file(mode.word());
        assert!(!flock_gets(&file, "-x") && flock_gets(&file, "-s"), "{mode}");
        release_claim(&engine, &first);
        assert!(flock_gets(&file, "-x"), "{mode}");
    }
}

#[test]
fn an_exclusive_flock_excludes_our_claims_until_its_end() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let flock = Flock::hold(&scratch.lock_file("job"), "-x");
    for mode in [Mode::Exclusive, Mode::Shared, PERMIT] {
        taken(create(&engine, &try_claim("job", mode)));
    }
    flock.kill();
    let grant = held(create(&engine, &try_claim("job", Mode::Exclusive)));
    assert_eq!(grant.previous, Previous::Clean, "nothing is known of a foreign hold");
}

#[test]
fn a_shared_flock_excludes_our_exclusive_claims_only() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let flock = Flock::hold(&scratch.lock_file("job"), "-s");
    taken(create(&engine, &try_claim("job", Mode::Exclusive)));
    let reader = claim("job", Mode::Shared);
    held(create(&engine, &reader));
    release_claim(&engine, &reader);
    flock.kill();
    held(create(&engine, &try_claim("job", Mode::Exclusive)));
}

#[test]
fn a_waiting_claim_is_granted_after_a_foreign_holder_is_gone() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let flock = Flock::hold(&scratch.lock_file("job"), "-x");
    let waiter = claim("job", Mode::Exclusive);
    assert_eq!(waiting(create(&engine, &waiter)).ahead, Some(0));
    waiting(ask(&engine, &waiter));
    flock.kill();
    held(ask(&engine, &waiter));
}

/// `( flock 9; ... ) 9>file`, the idiom of the man page of `flock(1)`, empties the lock file each time.
#[test]
fn truncating_the_lock_file_affects_neither_permits_nor_tokens() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let (one, two, three) = (claim("quota", PERMIT), claim("quota", PERMIT), claim("quota", PERMIT));
    held(create(&engine, &one));
    let before = held(create(&engine, &two)).token;
    waiting(create(&engine, &three));
    let script = format!("( flock -s -n 9 || exit 1 ) 9> '{}'", scratch.lock_file("quota").display());
    assert!(program("sh").args(["-c", &script]).status().unwrap().success());
    taken(create(&engine, &try_claim("quota", PERMIT)));
    waiting(ask(&engine, &three));
    release_claim(&engine, &one);
    let after = held(ask(&engine, &three)).token;
    assert!(after > before, "the same lineage, a larger number: {after} after {before}");
}

#[test]
fn foreign_text_in_the_lock_file_is_unchanged() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    std::fs::write(scratch.lock_file("job"), "1234\n").unwrap();
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    waiting(create(&engine, &claim("job", Mode::Shared)));
    release_claim(&engine, &first);
    assert_eq!(std::fs::read_to_string(scratch.lock_file("job")).unwrap(), "1234\n");
}

/// Locks a file as `lockf(3)` does: from its beginning to beyond any end.
fn lock_whole_file(file: &std::fs::File) -> Result<(), Errno> {
    let range = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&range)).map(drop)
}

/// Repeats until `is_done`: a program that another test is starting has a copy of every descriptor, and so the locks,
/// until its exec.
fn retry_until(failure: &str, mut is_done: impl FnMut() -> bool) {
    let mut tries = 0..10_000;
    while !is_done() {
        assert!(tries.next().is_some(), "{failure}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Programs that lock by `fcntl(2)`: `lockf` of Python and of C, portalocker.
#[test]
fn a_fcntl_lock_of_the_whole_file_excludes_and_is_excluded() {
    for mode in [Mode::Exclusive, Mode::Shared, PERMIT] {
        let scratch = Scratch::new();
        let engine = scratch.engine();
        let open = || File::options().write(true).create(true).truncate(false).open(scratch.lock_file("job"));
        let other = open().unwrap();
        lock_whole_file(&other).unwrap();
        let first = claim("job", mode);
        taken(create(&engine, &try_claim("job", mode)));
        let hint = taken(create(&engine, &first));
        assert!(hint.ask_in.is_some(), "it is asked again: {hint:?}");
        let view = pollster::block_on(crate::Inspect::show(&engine, &first.name)).unwrap();
        assert!(view.holders.len() == 1 && view.holders[0].foreign, "{view:?}");
        drop(other);
        retry_until(&mode.to_string(), || matches!(create(&engine, &first), Ok(Answer::Held(_))));
        assert_eq!(lock_whole_file(&open().unwrap()), Err(Errno::EAGAIN), "{mode}");
        release_claim(&engine, &first);
        retry_until(&mode.to_string(), || lock_whole_file(&open().unwrap()).is_ok());
    }
}

/// A `fcntl(2)` lock of the whole file covers the marks that show holders to be alive.
#[test]
fn a_dead_holder_is_not_shown_beside_a_fcntl_lock() {
    for mode in [Mode::Exclusive, Mode::Shared, PERMIT] {
        let scratch = Scratch::new();
        let first = claim("job", mode);
        {
            let killed = scratch.engine();
            held(create(&killed, &first));
            simulate_kill(killed);
        }
        let other = File::options().write(true).open(scratch.lock_file("job")).unwrap();
        lock_whole_file(&other).unwrap();
        let view = pollster::block_on(crate::Inspect::show(&scratch.engine(), &first.name)).unwrap();
        assert!(view.holders.len() == 1 && view.holders[0].foreign, "{mode}: {view:?}");
    }
}
