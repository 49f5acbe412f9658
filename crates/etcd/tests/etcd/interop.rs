//! Programs with etcd's official client, `etcdctl` and our clients exclude each other and share one queue.

use std::{sync::mpsc, thread::spawn, time::Duration};

use leasehold_core::{Guard, Locks};
use nix::sys::signal::Signal;

use crate::{
    go::Program,
    rig::{PATIENCE, Rig, acquire, first_token},
};

/// The lease of a program that is killed: short enough for a test to wait for its end.
const SECONDS: u32 = 2;

/// Waits for a mutex on a new thread.
fn wait_for(locks: &Locks, name: &'static str) -> mpsc::Receiver<Guard> {
    let (locks, (tx, rx)) = (locks.clone(), mpsc::channel());
    spawn(move || tx.send(acquire(&locks, name)));
    rx
}

fn await_waiters(rig: &Rig, count: usize) {
    rig.until("they are queued", || rig.show("a/b").waiters.len() == count);
}

#[test]
fn the_go_client_and_ours_share_one_queue() {
    let rig = Rig::new();
    let (one, two) = (rig.locks(), rig.locks());
    let (mut go, mut other) = (Program::start(rig.server.port(), 30), Program::start(rig.server.port(), 30));
    let first = acquire(&one, "a/b");
    assert_eq!(rig.show("a/b").key, "/locks/a%2Fb", "the path for a foreign program");
    assert_eq!(go.ask("lock /locks/a%2Fb"), "queued");
    await_waiters(&rig, 1);
    let ours = wait_for(&two, "a/b");
    await_waiters(&rig, 2);
    assert_eq!(other.ask("server-lock /locks/a%2Fb"), "queued");
    await_waiters(&rig, 3);
    assert!(one.mutex("a/b").blocking().try_acquire().unwrap_err().is_taken());

    let token = first.token();
    first.release_blocking().unwrap();
    let (key, revision) = go.read_locked();
    let foreign_token = first_token(revision);
    assert!(foreign_token > token.number, "{foreign_token} after {token}");
    assert_eq!(go.ask("owner /locks/a%2Fb"), "owner true");
    assert!(ours.recv_timeout(Duration::from_millis(100)).is_err(), "the other program holds the name");
    let view = rig.show("a/b");
    let holder = &view.holders[0];
    assert!(holder.foreign && key.ends_with(&holder.id) && holder.token == Some(foreign_token), "{view:?}");
    assert!(holder.remaining.is_some_and(|left| left <= Duration::from_secs(30)), "{view:?}");

    assert_eq!(go.ask("unlock /locks/a%2Fb"), "unlocked");
    let second = ours.recv_timeout(PATIENCE).unwrap();
    assert!(second.token().number > foreign_token);
    assert_eq!(go.ask("lock /locks/a%2Fb"), "queued");
    second.release_blocking().unwrap();
    let (key, last) = other.read_locked();
    assert!(last > revision);
    let third = wait_for(&one, "a/b");
    await_waiters(&rig, 2);
    assert_eq!(other.ask(&format!("server-unlock {key}")), "unlocked");
    go.read_locked();
    assert_eq!(go.ask("unlock /locks/a%2Fb"), "unlocked");
    third.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    go.quit();
    other.quit();
    assert_eq!(rig.keys(), [""; 0]);
}

#[test]
fn readers_share_a_name_and_a_foreign_program_waits_for_all() {
    let rig = Rig::new();
    let (one, two) = (rig.locks(), rig.locks());
    let mut go = Program::start(rig.server.port(), 30);
    let first = one.rw("r").read().blocking().acquire().unwrap();
    let second = two.rw("r").read().blocking().acquire().unwrap();
    assert_eq!(go.ask("lock /locks/r"), "queued");
    rig.until("it is queued", || rig.show("r").waiters.len() == 1);
    // This client stands for another process: within one process, a reader can join a shared hold for a short time.
    let late = rig.locks().rw("r").read().blocking().acquire_within(Duration::from_millis(200));
    assert!(late.unwrap_err().is_timed_out(), "a writer waits already");
    first.release_blocking().unwrap();
    second.release_blocking().unwrap();
    go.read_locked();
    assert!(one.rw("r").read().blocking().try_acquire().unwrap_err().is_taken());
    assert_eq!(go.ask("unlock /locks/r"), "unlocked");
    one.rw("r").read().blocking().acquire().unwrap().release_blocking().unwrap();
    // Permits are another kind of lock; the foreign program treats their keys as exclusive claims.
    let permit = one.semaphore("p", 2).blocking().acquire().unwrap();
    assert_eq!(go.ask("lock /locks/p"), "queued");
    permit.release_blocking().unwrap();
    go.read_locked();
    assert!(one.semaphore("p", 2).blocking().try_acquire().unwrap_err().is_misconfigured());
    go.quit();
}

#[test]
fn a_killed_foreign_program_frees_the_name_with_its_lease() {
    let rig = Rig::new();
    let locks = rig.locks();
    let mut go = Program::start(rig.server.port(), SECONDS);
    go.send("lock /locks/a");
    go.read_locked();
    let ours = wait_for(&locks, "a");
    rig.until("it is queued", || rig.show("a").waiters.len() == 1);
    go.signal(Signal::SIGKILL);
    ours.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
}

/// The tasks of the client end with their runtime, as when its process is killed.
#[test]
fn a_killed_client_of_ours_frees_the_name_for_a_foreign_program() {
    let rig = Rig::new();
    let mut go = Program::start(rig.server.port(), 30);
    let dying_runtime = tokio::runtime::Runtime::new().unwrap();
    let claim = leasehold_core::Claim { ttl: Duration::from_secs(2), ..rig.claim("a") };
    let engine = rig.engine();
    let answer =
        dying_runtime.block_on(leasehold_core::Engine::claim(&*engine, &claim, leasehold_core::How::Create));
    assert!(matches!(answer, Ok(leasehold_core::Answer::Held(_))));
    assert_eq!(go.ask("lock /locks/a"), "queued");
    drop(dying_runtime);
    go.read_locked();
    go.quit();
}

#[test]
fn etcdctl_and_ours_exclude_each_other() {
    let rig = Rig::new();
    let locks = rig.locks();
    let guard = acquire(&locks, "a");
    let mut etcdctl = Program::etcdctl(rig.server.port(), "/locks/a", SECONDS);
    rig.until("it is queued", || rig.show("a").waiters.len() == 1);
    guard.release_blocking().unwrap();
    let key = etcdctl.receive();
    assert!(key.starts_with("/locks/a/"), "{key}");
    assert!(locks.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    let ours = wait_for(&locks, "a");
    rig.until("it is queued", || rig.show("a").waiters.len() == 1);
    etcdctl.signal(Signal::SIGTERM);
    ours.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
}

#[test]
fn a_foreign_key_holds_the_name_and_is_left_alone() {
    let rig = Rig::new();
    let locks = rig.locks();
    rig.server.command(&["put", "/locks/a/config", "mine"]);
    rig.server.command(&["put", "/locks/plain", "mine"]);
    let error = locks.mutex("a").blocking().acquire_within(Duration::from_millis(300)).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert!(locks.mutex("plain").blocking().try_acquire().unwrap_err().is_taken());
    for name in ["a", "plain"] {
        let view = rig.show(name);
        assert!(view.holders[0].foreign && view.holders[0].remaining.is_none(), "no expiry: {view:?}");
    }
    let listed: Vec<_> = rig.run(locks.list("")).unwrap().into_iter().map(|view| view.name).collect();
    assert_eq!(listed.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["a", "plain"]);
    assert_eq!(rig.keys(), ["/locks/a/config", "/locks/plain"]);
}

/// Python's `etcd3` and `etcd3gw` and Node's `etcd3` create the bare key of the name, and read no other.
#[test]
fn a_claim_waits_for_the_key_of_a_client_without_a_queue() {
    let rig = Rig::new();
    let (one, two) = (rig.locks(), rig.locks());
    for name in ["m", "r", "s"] {
        rig.server.command(&["put", &format!("/locks/{name}"), "0f8fad5b-d9cb-469f-a165-70867728950e"]);
    }
    assert!(one.mutex("m").blocking().try_acquire().unwrap_err().is_taken());
    assert!(one.rw("r").read().blocking().try_acquire().unwrap_err().is_taken());
    assert!(one.semaphore("s", 2).blocking().try_acquire().unwrap_err().is_taken());
    let keys = rig.keys();
    assert_eq!(keys, ["/locks/m", "/locks/r", "/locks/s"], "an attempt leaves nothing");
    let view = rig.show("m");
    assert!(
        view.holders.len() == 1 && view.holders[0].foreign && view.holders[0].id == "/locks/m",
        "{view:?}"
    );

    let first = wait_for(&one, "m");
    rig.until("it is queued", || rig.show("m").waiters.len() == 1);
    let second = wait_for(&two, "m");
    let (shared, permit) = {
        let (reader, taker) = (one.clone(), two.clone());
        (
            spawn(move || reader.rw("r").read().blocking().acquire_within(PATIENCE)),
            spawn(move || taker.semaphore("s", 2).blocking().acquire_within(PATIENCE)),
        )
    };
    for (name, waiters) in [("m", 2), ("r", 1), ("s", 1)] {
        rig.until("they are queued", || rig.show(name).waiters.len() == waiters);
        assert!(rig.show(name).holders[0].foreign, "the foreign client holds: {:?}", rig.show(name));
    }
    assert!(first.try_recv().is_err() && second.try_recv().is_err());
    for name in ["m", "r", "s"] {
        rig.server.command(&["del", &format!("/locks/{name}")]);
    }
    first.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    second.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    shared.join().unwrap().unwrap().release_blocking().unwrap();
    permit.join().unwrap().unwrap().release_blocking().unwrap();
}
