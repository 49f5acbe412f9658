//! Lock files.

use std::{
    fs::{self, File},
    process::Command,
    thread::{scope, sleep},
};

use futures_util::FutureExt;
use leasehold::{ErrorKind, Locks, Loss};

use crate::rig::{HELD, millis, rng, until};

struct Dir {
    dir: tempfile::TempDir,
}

impl Dir {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn locks(&self) -> Locks {
        Locks::connect(&format!("file://{}", self.dir.path().join("locks").display())).unwrap()
    }

    fn lock_file(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(format!("locks/{name}.lock"))
    }
}

#[test]
fn f22_wait_for_a_foreign_flock_is_dropped() {
    let (dir, mut rng) = (Dir::new(), rng());
    let locks = dir.locks();
    locks.mutex("a").blocking().acquire().unwrap().release_blocking().unwrap();
    for _ in 0..5 {
        let foreign = File::open(dir.lock_file("a")).unwrap();
        foreign.lock().unwrap();
        let mut waiting = Box::pin(locks.mutex("a").acquire());
        assert!((&mut waiting).now_or_never().is_none());
        sleep(rng.millis(0..40));
        drop(waiting);
        foreign.unlock().unwrap();
        sleep(millis(60));
        until("no abandoned claim has the lock", || {
            File::open(dir.lock_file("a")).unwrap().try_lock().is_ok()
        });
    }
}

#[test]
fn f64_lock_file_is_replaced_or_unlinked() {
    let run = |replaced| {
        let dir = Dir::new();
        let (locks, other) = (dir.locks(), dir.locks());
        let guard = locks.mutex("a").ttl(HELD).blocking().acquire().unwrap();
        sleep(rng().millis(0..200));
        fs::remove_file(dir.lock_file("a")).unwrap();
        if replaced {
            File::create(dir.lock_file("a")).unwrap();
        }
        let next = other.mutex("a").blocking().try_acquire().unwrap();
        assert!(next.token() > guard.token(), "tokens still grow");
        until("the loss is reported", || !guard.check());
        assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Replaced));
        assert!(next.check());
        next.release_blocking().unwrap();
    };
    scope(|scope| {
        for replaced in [true, false] {
            scope.spawn(move || run(replaced));
        }
    });
}

#[test]
fn f65_another_descriptor_of_the_file_is_closed() {
    let dir = Dir::new();
    let guard = dir.locks().mutex("a").blocking().acquire().unwrap();
    drop(File::open(dir.lock_file("a")).unwrap());
    drop(File::options().write(true).open(dir.lock_file("a")).unwrap());
    assert!(dir.locks().mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    let flock = Command::new("flock").arg("-n").arg(dir.lock_file("a")).arg("true").status().unwrap();
    assert!(!flock.success(), "another program does not get the lock");
    assert!(guard.check());
}

#[test]
fn f66_descriptor_is_not_inherited() {
    let dir = Dir::new();
    let guard = dir.locks().mutex("a").blocking().acquire().unwrap();
    let mut heir = Command::new("sleep").arg("600").spawn().unwrap();
    guard.release_blocking().unwrap();
    let next = dir.locks().mutex("a").blocking().try_acquire();
    heir.kill().unwrap();
    heir.wait().unwrap();
    assert!(next.unwrap().check(), "free, although a child process of the holder still runs");
}
