//! Other packages on a lock file.

use std::{fs, path::Path, thread::spawn};

use leasehold::Locks;

use crate::packages::Neighbour;

const OF_EACH: usize = 2;
const SECTIONS: usize = 25;

fn locks(dir: &Path) -> Locks {
    Locks::connect(&format!("file://{}", dir.display())).unwrap()
}

fn section(dir: &Path) {
    let (count, inner) = (dir.join("count"), dir.join("inside"));
    if fs::File::create_new(&inner).is_err() {
        fs::write(dir.join("overlaps"), "").unwrap();
    }
    let old: usize = fs::read_to_string(&count).map_or(0, |text| text.parse().unwrap());
    fs::write(&count, (old + 1).to_string()).unwrap();
    let _ = fs::remove_file(inner);
}

fn take_turns(kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let theirs: Vec<_> =
        (0..OF_EACH).map(|_| Neighbour::start(kind, "turns", path, "shared", SECTIONS)).collect();
    let ours: Vec<_> = (0..OF_EACH)
        .map(|_| {
            let (locks, dir) = (locks(dir.path()), dir.path().to_owned());
            spawn(move || {
                for _ in 0..SECTIONS {
                    let guard = locks.mutex("shared").blocking().acquire().unwrap();
                    section(&dir);
                    guard.release_blocking().unwrap();
                }
            })
        })
        .collect();
    ours.into_iter().for_each(|thread| thread.join().unwrap());
    theirs.into_iter().for_each(Neighbour::finish);
    assert!(!dir.path().join("overlaps").exists(), "no two programs were in the section at once");
    let count = fs::read_to_string(dir.path().join("count")).unwrap();
    assert_eq!(count, (2 * OF_EACH * SECTIONS).to_string(), "no section was lost");
}

#[test]
fn filelock() {
    take_turns("filelock");
}

#[test]
fn portalocker() {
    take_turns("portalocker");
}

/// It locks by fcntl(2), which does not exclude flock(2). Leasehold takes both locks.
#[test]
fn fasteners() {
    take_turns("fasteners");
}

/// A try of each program fails while the other one holds.
#[test]
fn fasteners_and_a_try() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let mut theirs = Neighbour::start("fasteners", "hold", path, "shared", 0);
    assert_eq!(theirs.first_line(), "held");
    let request = locks(dir.path()).mutex("shared").blocking();
    assert!(request.try_acquire().unwrap_err().is_taken());
    theirs.finish();
    let guard = request.acquire().unwrap();
    let mut theirs = Neighbour::start("fasteners", "hold", path, "shared", 0);
    assert_eq!(theirs.first_line(), "taken");
    theirs.finish();
    guard.release_blocking().unwrap();
}
