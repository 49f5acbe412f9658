//! With `layout=key`: our clients and programs that create the key of a lock by hand exclude each other.

use std::{
    fs::{self, OpenOptions},
    path::Path,
    sync::mpsc,
    thread::{scope, spawn},
};

use leasehold_core::{Guard, Locks};
use nix::sys::signal::Signal;

use crate::{
    go::Program,
    rig::{PATIENCE, Rig, acquire, first_token},
};

/// The key of the lock, which is its name.
const KEY: &str = "/desk_lock";
/// The lease of a program that is not killed.
const LONG: u32 = 60;
/// The lease of a program that is killed: short enough for a test to wait for its end.
const SHORT: u32 = 2;
/// The number of programs of each side, and of sections of each program.
const OF_EACH: usize = 2;
const SECTIONS: usize = 40;

/// Waits for the lock on a new thread.
fn wait_for(locks: Locks) -> mpsc::Receiver<Guard> {
    let (tx, rx) = mpsc::channel();
    spawn(move || tx.send(acquire(&locks, KEY)));
    rx
}

fn until_waiting(rig: &Rig, count: usize) {
    rig.until("they are queued", || rig.show(KEY).waiters.len() == count);
}

fn lock(program: &mut Program) -> u64 {
    let answer = program.ask(&format!("lock {KEY}"));
    answer.strip_prefix("locked ").unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
}

#[test]
fn a_program_by_hand_and_ours_exclude_each_other() {
    let rig = Rig::with_lock_keys("");
    let locks = rig.locks();
    let mut program = Program::by_hand(rig.server.port(), LONG);
    let revision = lock(&mut program);
    assert!(locks.mutex(KEY).blocking().try_acquire().unwrap_err().is_taken());
    assert_eq!(rig.keys(), [KEY], "an attempt leaves nothing");
    let view = rig.show(KEY);
    let holder = &view.holders[0];
    assert!(view.holders.len() == 1 && view.key == KEY, "{view:?}");
    assert!(holder.foreign && holder.id == KEY && holder.token == Some(first_token(revision)), "{view:?}");
    assert!(holder.remaining.is_some_and(|remaining| remaining.as_secs() <= LONG.into()), "{view:?}");

    // The program releases by the end of its lease, then by a deletion of the key.
    for release in ["unlock", "delete"] {
        let ours = wait_for(locks.clone());
        until_waiting(&rig, 1);
        assert!(ours.try_recv().is_err(), "the program holds the name");
        program.ask(&format!("{release} {KEY}"));
        let guard = ours.recv_timeout(PATIENCE).unwrap();
        assert!(guard.token().number > first_token(revision));
        assert_eq!(program.ask(&format!("lock {KEY}")), "taken");
        let token = guard.token().number;
        guard.release_blocking().unwrap();
        assert!(first_token(lock(&mut program)) > token, "tokens grow with the revisions");
    }
    program.ask(&format!("unlock {KEY}"));
    program.quit();
    assert_eq!(rig.keys(), [""; 0]);
}

/// Our waiters are granted in their order, and the program gets the lock only while none of ours holds.
#[test]
fn our_claims_wait_in_order_for_a_program_by_hand() {
    let rig = Rig::with_lock_keys("/");
    let (name, clients) = (&KEY[1..], [rig.locks(), rig.locks(), rig.locks()]);
    let mut program = Program::by_hand(rig.server.port(), LONG);
    lock(&mut program);
    let (tx, granted) = mpsc::channel();
    for (place, locks) in clients.iter().enumerate() {
        let (tx, locks) = (tx.clone(), locks.clone());
        spawn(move || tx.send((place, acquire(&locks, name))));
        rig.until("it is queued", || rig.show(name).waiters.len() == place + 1);
    }
    program.ask(&format!("unlock {KEY}"));
    for expected in 0..clients.len() {
        let (place, guard) = granted.recv_timeout(PATIENCE).unwrap();
        assert_eq!(place, expected);
        assert_eq!(program.ask(&format!("lock {KEY}")), "taken");
        guard.release_blocking().unwrap();
    }
    lock(&mut program);
    program.quit();
}

#[test]
fn a_killed_program_by_hand_frees_the_name_with_its_lease() {
    let rig = Rig::with_lock_keys("");
    let mut program = Program::by_hand(rig.server.port(), SHORT);
    lock(&mut program);
    let ours = wait_for(rig.locks());
    until_waiting(&rig, 1);
    program.signal(Signal::SIGKILL);
    ours.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
}

/// The tasks of the client end with their runtime, as when its process is killed.
#[test]
fn a_killed_client_of_ours_frees_the_name_for_a_program_by_hand() {
    let rig = Rig::with_lock_keys("");
    let mut program = Program::by_hand(rig.server.port(), LONG);
    let dying_runtime = tokio::runtime::Runtime::new().unwrap();
    let claim = leasehold_core::Claim { ttl: std::time::Duration::from_secs(2), ..rig.claim(KEY) };
    let engine = rig.engine();
    let answer =
        dying_runtime.block_on(leasehold_core::Engine::claim(&*engine, &claim, leasehold_core::How::Create));
    assert!(matches!(answer, Ok(leasehold_core::Answer::Held(_))));
    assert_eq!(program.ask(&format!("lock {KEY}")), "taken");
    drop(dying_runtime);
    rig.until("its lease has ended", || program.ask(&format!("lock {KEY}")) != "taken");
    assert_eq!(rig.keys(), [KEY], "its queue key ended too");
}

#[test]
fn programs_by_hand_take_turns_with_ours() {
    let rig = Rig::with_lock_keys("");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("count"), "0").unwrap();
    let mut programs: Vec<_> = (0..OF_EACH).map(|_| Program::by_hand(rig.server.port(), LONG)).collect();
    for program in &mut programs {
        program.send(&format!("turns {KEY} {SECTIONS} {}", dir.path().display()));
    }
    scope(|scope| {
        for _ in 0..OF_EACH {
            scope.spawn(|| {
                let locks = rig.locks();
                for _ in 0..SECTIONS {
                    let guard = acquire(&locks, KEY);
                    section(dir.path());
                    guard.release_blocking().unwrap();
                }
            });
        }
    });
    for mut program in programs {
        assert_eq!(program.receive(), "done");
    }
    let count: usize = fs::read_to_string(dir.path().join("count")).unwrap().parse().unwrap();
    assert_eq!(count, 2 * OF_EACH * SECTIONS, "no section was lost");
}

/// A section as in the program.
fn section(dir: &Path) {
    let inside = dir.join("inside");
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&inside)
        .expect("no other program is in its section");
    let count: usize = fs::read_to_string(dir.join("count")).unwrap().parse().unwrap();
    fs::write(dir.join("count"), (count + 1).to_string()).unwrap();
    fs::remove_file(inside).unwrap();
}
