//! Programs with Apache Curator or kazoo and our clients exclude each other and share one queue.

use std::{sync::mpsc, thread::spawn, time::Duration};

use leasehold_core::{Guard, Locks, Loss, Request};
use leasehold_zookeeper::Layout;

use crate::{
    peers::Program,
    rig::{PATIENCE, Rig, acquire},
};

/// A session timeout after which a test can wait for the end of a killed program's session.
const SHORT_SESSION_MILLIS: u32 = 2000;
const LONG_SESSION_MILLIS: u32 = 30_000;
/// How long a test waits to show that a grant does not come.
const NO_GRANT_TIME: Duration = Duration::from_millis(300);

fn servers(rig: &Rig) -> String {
    format!("127.0.0.1:{}", rig.server.port())
}

fn wait_for(request: Request) -> mpsc::Receiver<Guard> {
    let (tx, rx) = mpsc::channel();
    spawn(move || tx.send(request.blocking().acquire_within(PATIENCE).unwrap()));
    rx
}

fn await_waiters(rig: &Rig, name: &str, count: usize) {
    rig.until("the waiters are queued", || rig.show(name).waiters.len() == count);
}

/// Locks of a client whose exclusive claims have the nodes of Curator's writers.
fn read_write_locks(rig: &Rig) -> Locks {
    rig.locks_with(|config| config.layout(Layout::ReadWrite))
}

#[test]
fn curator_and_ours_share_one_queue() {
    let rig = Rig::new();
    let (one, two) = (rig.locks(), rig.locks());
    let mut curator = Program::curator(&servers(&rig), LONG_SESSION_MILLIS);
    let first = acquire(&one, "a/b");
    assert_eq!(rig.show("a/b").key, "/locks/a%2Fb", "the path for a foreign program");
    curator.send("lock t /locks/a%2Fb");
    await_waiters(&rig, "a/b", 1);
    let ours = wait_for(two.mutex("a/b"));
    await_waiters(&rig, "a/b", 2);
    curator.send("lock u /locks/a%2Fb");
    await_waiters(&rig, "a/b", 3);
    assert!(one.mutex("a/b").blocking().try_acquire().unwrap_err().is_taken());

    let token = first.token();
    first.release_blocking().unwrap();
    let node = curator.expect_locked("t");
    assert!(ours.recv_timeout(NO_GRANT_TIME).is_err(), "our claim is not at the head yet");
    let view = rig.show("a/b");
    let holder = &view.holders[0];
    assert!(holder.foreign && node.ends_with(&holder.id), "{view:?}");
    assert!(holder.of_session && holder.remaining.is_none(), "its node ends with its session: {view:?}");
    assert!(holder.token.is_some_and(|held| held > token.number), "{view:?}");
    assert_eq!(view.waiters.len(), 2);

    curator.unlock("t");
    let second = ours.recv_timeout(PATIENCE).unwrap();
    assert!(second.token().number > holder.token.unwrap());
    second.release_blocking().unwrap();
    curator.expect_locked("u");
    curator.unlock("u");
    curator.quit();
    assert_eq!(rig.nodes(), [""; 0]);
}

#[test]
fn kazoo_and_ours_share_one_queue() {
    let rig = Rig::new();
    let (one, two) = (rig.locks(), rig.locks());
    let mut kazoo = Program::kazoo(&servers(&rig), LONG_SESSION_MILLIS);
    let first = acquire(&one, "k");
    kazoo.send("lock t /locks/k -lock-");
    await_waiters(&rig, "k", 1);
    let ours = wait_for(two.mutex("k"));
    await_waiters(&rig, "k", 2);
    kazoo.send("curator u /locks/k __lock__");
    await_waiters(&rig, "k", 3);
    first.release_blocking().unwrap();
    kazoo.expect_locked("t");
    assert!(ours.recv_timeout(NO_GRANT_TIME).is_err(), "our claim is not at the head yet");
    assert!(rig.show("k").holders[0].foreign);
    kazoo.unlock("t");
    ours.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    kazoo.expect_locked("u");
    assert!(one.mutex("k").blocking().try_acquire().unwrap_err().is_taken());
    kazoo.unlock("u");
    kazoo.quit();
}

#[test]
fn all_three_exclude_each_other_on_one_path() {
    let rig = Rig::new();
    let locks = rig.locks();
    let mut curator = Program::curator(&servers(&rig), LONG_SESSION_MILLIS);
    let mut kazoo = Program::kazoo(&servers(&rig), LONG_SESSION_MILLIS);
    for _ in 0..3 {
        curator.send("lock t /locks/x");
        curator.expect_locked("t");
        // kazoo names its node here as Curator does, so that Curator waits for this node as well.
        kazoo.send("curator t /locks/x");
        await_waiters(&rig, "x", 1);
        let ours = wait_for(locks.mutex("x"));
        await_waiters(&rig, "x", 2);
        curator.unlock("t");
        kazoo.expect_locked("t");
        curator.send("lock t /locks/x");
        await_waiters(&rig, "x", 2);
        kazoo.unlock("t");
        let guard = ours.recv_timeout(PATIENCE).unwrap();
        assert_eq!(rig.show("x").waiters.len(), 1);
        guard.release_blocking().unwrap();
        curator.expect_locked("t");
        curator.unlock("t");
    }
    curator.quit();
    kazoo.quit();
}

#[test]
fn readers_and_writers_of_curator_and_ours_share_and_exclude() {
    let rig = Rig::new();
    let (one, two, third) = (read_write_locks(&rig), read_write_locks(&rig), read_write_locks(&rig));
    let mut curator = Program::curator(&servers(&rig), LONG_SESSION_MILLIS);
    let first = one.rw("r").read().blocking().acquire().unwrap();
    curator.send("read r /locks/r");
    curator.expect_locked("r");
    assert_eq!(rig.show("r").holders.len(), 2);
    let ours = wait_for(two.rw("r").write());
    await_waiters(&rig, "r", 1);
    curator.send("read late /locks/r");
    await_waiters(&rig, "r", 2);
    let late = third.rw("r").read().blocking().acquire_within(NO_GRANT_TIME);
    assert!(late.unwrap_err().is_timed_out(), "a writer waits already");
    first.release_blocking().unwrap();
    assert!(ours.recv_timeout(NO_GRANT_TIME).is_err(), "Curator still reads");
    curator.unlock("r");
    let writer = ours.recv_timeout(PATIENCE).unwrap();
    curator.send("write w /locks/r");
    await_waiters(&rig, "r", 2);
    writer.release_blocking().unwrap();
    curator.expect_locked("late");
    let reads = wait_for(one.rw("r").read());
    await_waiters(&rig, "r", 2);
    curator.unlock("late");
    curator.expect_locked("w");
    assert!(reads.recv_timeout(NO_GRANT_TIME).is_err(), "Curator writes");
    curator.unlock("w");
    reads.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    curator.quit();
    assert_eq!(rig.nodes(), [""; 0]);
}

#[test]
fn readers_and_writers_of_kazoo_and_ours_share_and_exclude() {
    let rig = Rig::new();
    let (one, two) = (read_write_locks(&rig), read_write_locks(&rig));
    let mut kazoo = Program::kazoo(&servers(&rig), LONG_SESSION_MILLIS);
    let first = one.rw("r").read().blocking().acquire().unwrap();
    kazoo.send("read r /locks/r __WRIT__");
    kazoo.expect_locked("r");
    let ours = wait_for(two.rw("r").write());
    await_waiters(&rig, "r", 1);
    first.release_blocking().unwrap();
    assert!(ours.recv_timeout(NO_GRANT_TIME).is_err(), "kazoo still reads");
    kazoo.unlock("r");
    let writer = ours.recv_timeout(PATIENCE).unwrap();
    kazoo.send("write w /locks/r __WRIT__ __READ__");
    await_waiters(&rig, "r", 1);
    let reads = wait_for(one.rw("r").read());
    await_waiters(&rig, "r", 2);
    writer.release_blocking().unwrap();
    kazoo.expect_locked("w");
    assert!(reads.recv_timeout(NO_GRANT_TIME).is_err(), "kazoo writes");
    kazoo.unlock("w");
    reads.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    kazoo.quit();
}

#[test]
fn curator_and_ours_count_the_same_permits() {
    let rig = Rig::new();
    let (one, two) = (rig.locks(), rig.locks());
    let mut curator = Program::curator(&servers(&rig), LONG_SESSION_MILLIS);
    let ours = one.semaphore("p", 3).permits(2).blocking().acquire().unwrap();
    curator.send("permit a /locks/p 3");
    curator.expect_locked("a");
    assert!(two.semaphore("p", 3).blocking().try_acquire().unwrap_err().is_taken());
    let waits = wait_for(two.semaphore("p", 3).permits(2));
    await_waiters(&rig, "p", 1);
    curator.send("permit b /locks/p 3");
    await_waiters(&rig, "p", 2);
    curator.unlock("a");
    assert!(waits.recv_timeout(NO_GRANT_TIME).is_err(), "there is room for one, and two are wanted");
    ours.release_blocking().unwrap();
    let second = waits.recv_timeout(PATIENCE).unwrap();
    curator.expect_locked("b");
    let view = rig.show("p");
    assert_eq!((view.holders.len(), view.mode.unwrap().limit()), (2, Some(3)), "{view:?}");
    let third = wait_for(one.semaphore("p", 3));
    await_waiters(&rig, "p", 1);
    second.release_blocking().unwrap();
    third.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    curator.unlock("b");
    // A name in use as a semaphore cannot be claimed as a mutex.
    curator.send("permit a /locks/p 3");
    curator.expect_locked("a");
    assert!(one.mutex("p").blocking().try_acquire().unwrap_err().is_misconfigured());
    curator.unlock("a");
    curator.quit();
    assert_eq!(rig.nodes(), [""; 0]);
}

#[test]
fn a_killed_foreign_program_frees_the_name_with_its_session() {
    let rig = Rig::new();
    let locks = rig.locks();
    let mut curator = Program::curator(&servers(&rig), SHORT_SESSION_MILLIS);
    curator.send("lock t /locks/c");
    curator.expect_locked("t");
    let ours = wait_for(locks.mutex("c"));
    await_waiters(&rig, "c", 1);
    curator.kill();
    ours.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
    let mut kazoo = Program::kazoo(&servers(&rig), SHORT_SESSION_MILLIS);
    kazoo.send("lock t /locks/c -lock-");
    kazoo.expect_locked("t");
    let ours = wait_for(locks.mutex("c"));
    await_waiters(&rig, "c", 1);
    kazoo.kill();
    ours.recv_timeout(PATIENCE).unwrap().release_blocking().unwrap();
}

/// The tasks of the holder end with their runtime, as when its process is killed.
#[test]
fn our_killed_holder_frees_the_name_for_foreign_programs() {
    let rig = Rig::new();
    let mut curator = Program::curator(&servers(&rig), LONG_SESSION_MILLIS);
    let mut kazoo = Program::kazoo(&servers(&rig), LONG_SESSION_MILLIS);
    for round in 0..2 {
        let dying_runtime = tokio::runtime::Runtime::new().unwrap();
        let claim = leasehold_core::Claim { ttl: Duration::from_secs(8), ..rig.claim("d") };
        let engine = rig.engine();
        let answer = dying_runtime.block_on(leasehold_core::Engine::claim(
            &*engine,
            &claim,
            leasehold_core::How::Create,
        ));
        assert!(matches!(answer, Ok(leasehold_core::Answer::Held(_))), "{answer:?}");
        let foreign = if round == 0 { &mut curator } else { &mut kazoo };
        foreign.send(if round == 0 { "lock t /locks/d" } else { "lock t /locks/d -lock-" });
        await_waiters(&rig, "d", 1);
        drop(dying_runtime);
        foreign.expect_locked("t");
        foreign.unlock("t");
    }
    curator.quit();
    kazoo.quit();
}

/// Curator's `Revoker` asks a holder to release its lock.
#[test]
fn a_hold_that_curator_revokes_is_broken() {
    let rig = Rig::new();
    let locks = rig.locks();
    let mut curator = Program::curator(&servers(&rig), LONG_SESSION_MILLIS);
    let guard = acquire(&locks, "v");
    rig.until("the hold is watched", || rig.watches() > 0);
    assert_eq!(curator.ask(&format!("revoke {}", rig.nodes()[0])), "revoked");
    let lost = rig.run(async { tokio::time::timeout(PATIENCE, guard.lost()).await }).unwrap();
    assert_eq!(lost, Loss::Broken);
    assert!(guard.release_blocking().is_err());
    curator.send("lock t /locks/v");
    curator.expect_locked("t");
    curator.unlock("t");
    curator.quit();
}
