//! `layout=plain`: one queue with programs written by hand.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use leasehold_core::{Answer, Claim, Engine, How, Locks, Mode, Modes, Notification};
use leasehold_testkit::scenarios::break_is_reported_at_once;
use leasehold_zookeeper::{Layout, ZookeeperEngine};

use crate::{
    raw_client::{LONG_SESSION_MILLIS, RawClient},
    rig::{PATIENCE, Rig, acquire, release_of},
};

/// The number of threads of each side, and of sections of each thread.
const OF_EACH: usize = 3;
const SECTIONS: usize = 40;

async fn expect_waiting(engine: &ZookeeperEngine, claim: &Claim) {
    let answer = engine.claim(claim, How::Create).await;
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
}

/// Waits until the claim is notified, and checks that it holds.
async fn expect_granted(engine: &ZookeeperEngine, claim: &Claim) {
    let notifications = tokio::time::timeout(PATIENCE, engine.notifications()).await.unwrap();
    let is_of_claim = |notification: &Notification| match notification {
        Notification::Granted { id, .. } | Notification::Recheck { id, .. } => *id == claim.id,
        _ => false,
    };
    assert!(notifications.iter().any(is_of_claim), "{notifications:?}");
    let answer = engine.claim(claim, How::Ask).await;
    assert!(matches!(answer, Ok(Answer::Held(_))), "{answer:?}");
}

/// The first node is theirs, then ours and theirs take turns. A program written by hand holds when its node is the
/// first one by the whole name.
#[test]
fn our_claims_and_those_of_programs_written_by_hand_are_granted_in_order() {
    let rig = Rig::plain();
    let engine = rig.engine();
    let (creates, second, fourth) = (rig.claim("a"), rig.claim("a"), rig.claim("a"));
    rig.run(async {
        assert!(matches!(engine.claim(&creates, How::Create).await, Ok(Answer::Held(_))));
        engine.release(&release_of(&creates)).await;
    });
    let mut theirs = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    let first = theirs.enqueue("/locks/a");
    rig.run(expect_waiting(&engine, &second));
    let third = theirs.enqueue("/locks/a");
    rig.run(expect_waiting(&engine, &fourth));
    let nodes = theirs.children("/locks/a");
    assert_eq!(nodes, ["0000000001", "0000000002", "0000000003", "0000000004"].map(|n| format!("lock-{n}")));
    let view = rig.show("a");
    let waiters: Vec<_> = view.waiters.iter().map(|waiter| waiter.id.as_str()).collect();
    assert_eq!(view.holders[0].id, "lock-0000000001");
    assert_eq!(waiters, [&second.id.to_string(), "lock-0000000003", &fourth.id.to_string()]);
    theirs.delete(&first);
    rig.run(expect_granted(&engine, &second));
    assert_eq!(theirs.children("/locks/a")[0], "lock-0000000002", "the third claim waits");
    rig.run(async { engine.release(&release_of(&second)).await });
    assert!(third.ends_with(&theirs.children("/locks/a")[0]), "the third claim holds");
    let answer = rig.run(engine.claim(&fourth, How::Ask));
    assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    theirs.delete(&third);
    rig.run(expect_granted(&engine, &fourth));
    rig.run(async { engine.release(&release_of(&fourth)).await });
    assert_eq!(rig.nodes(), [""; 0]);
}

/// Counts the programs in a section.
#[derive(Default)]
struct Section {
    inside: AtomicUsize,
    overlaps: AtomicUsize,
    done: AtomicUsize,
}

impl Section {
    fn enter(&self) {
        self.overlaps.fetch_add(self.inside.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
        thread::yield_now();
    }

    fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

/// Lets both sides take turns on one directory, which exists.
fn take_turns(rig: &Rig, locks: &(dyn Fn() -> Locks + Sync), name: &str, directory: &str) {
    let section = Section::default();
    thread::scope(|scope| {
        for _ in 0..OF_EACH {
            scope.spawn(|| {
                let locks = locks();
                for _ in 0..SECTIONS {
                    let guard = acquire(&locks, name);
                    section.enter();
                    section.leave();
                    guard.release_blocking().unwrap();
                }
            });
            scope.spawn(|| {
                let mut theirs = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
                for _ in 0..SECTIONS {
                    let node = theirs.lock(directory);
                    section.enter();
                    section.leave();
                    theirs.delete(&node);
                }
            });
        }
    });
    assert_eq!(section.overlaps.into_inner(), 0, "two programs were in the section");
    assert_eq!(section.done.into_inner(), 2 * OF_EACH * SECTIONS);
}

#[test]
fn no_section_of_ours_overlaps_one_of_a_program_written_by_hand() {
    let rig = Rig::plain();
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    take_turns(&rig, &|| rig.locks(), "a", "/locks/a");
}

/// `path=`: the nodes are directly in the directory.
#[test]
fn a_directory_can_be_the_lock_itself() {
    let rig = Rig::plain();
    let at = |path: &str| rig.locks_with(|config| config.path(path).unwrap());
    let locks = at("/apps/orders");
    let guard = acquire(&locks, "orders");
    assert_eq!(rig.nodes(), ["/apps/orders/lock-0000000000"]);
    let listed = rig.run(locks.list("")).unwrap();
    assert_eq!((listed.len(), listed[0].name.as_str(), &*listed[0].key), (1, "orders", "/apps/orders"));
    for name in ["orders2", "/apps/orders", "apps", "."] {
        for error in [
            locks.mutex(name).blocking().try_acquire().unwrap_err(),
            rig.run(locks.show(name)).unwrap_err(),
            rig.run(locks.break_hold(name, guard.token().number, true)).unwrap_err(),
        ] {
            assert!(error.is_misconfigured() && error.to_string().contains("\"orders\""), "{name}: {error}");
        }
    }
    // The same directory by the option `prefix=`.
    let same = rig.locks_with(|config| config.prefix("/apps").unwrap());
    assert!(same.mutex("orders").blocking().try_acquire().unwrap_err().is_taken());
    guard.release_blocking().unwrap();
    take_turns(&rig, &|| at("/apps/orders"), "orders", "/apps/orders");
    // Directories with the names of a semaphore's directories are no semaphore.
    rig.server.command_as_super("create /apps/orders/leases\ncreate /apps/orders/leases/x");
    acquire(&locks, "orders").release_blocking().unwrap();
    assert!(rig.run(locks.show("orders")).unwrap().holders.is_empty());
}

/// A program written by hand creates the directory once, and fails if it is missing later. The server removes empty
/// containers, also a container that was there before the first claim with this layout.
#[test]
fn a_new_directory_stays_and_a_container_does_not() {
    let mut rig = Rig::with(&["-Dznode.container.checkIntervalMs=50"]);
    let default = rig.locks();
    rig.config = rig.config.layout(Layout::Plain);
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let guard = acquire(&default, "container");
    let (engine, waiter) = (rig.engine(), rig.claim("container"));
    rig.run(expect_waiting(&engine, &waiter));
    let mut raw = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    assert_eq!(raw.children("/locks"), ["a", "container"]);
    guard.release_blocking().unwrap();
    rig.run(async {
        expect_granted(&engine, &waiter).await;
        engine.release(&release_of(&waiter)).await;
    });
    rig.until("the server removes the container", || raw.children("/locks") == ["a"]);
}

#[test]
fn other_modes_are_refused() {
    let rig = Rig::plain();
    let locks = rig.locks();
    assert_eq!(locks.profile().modes, Modes::Exclusive);
    assert_eq!(Rig::new().locks().profile().modes, Modes::All);
    for request in [locks.rw("a").read(), locks.semaphore("a", 2)] {
        let error = request.blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("layout=plain"), "{error}");
    }
    locks.rw("a").write().blocking().try_acquire().unwrap().release_blocking().unwrap();
}

#[test]
fn a_holder_is_notified_at_once_of_a_break() {
    let rig = Rig::plain();
    let (locks, operator) = (rig.locks(), rig.locks());
    let guard = break_is_reported_at_once(&locks, &operator, &rig.runtime);
    assert!(guard.release_blocking().is_err());
    acquire(&operator, "a").release_blocking().unwrap();
}

/// A break changes the data of the node, and so ends a watch by `GetW`, although the holder has not released yet. A
/// program that lists the nodes again finds the node ahead of its own.
#[test]
fn a_break_wakes_the_next_program_and_grants_it_nothing() {
    let rig = Rig::plain();
    let (engine, claim) = (rig.engine(), rig.claim("a"));
    let answer = rig.run(engine.claim(&claim, How::Create));
    let Ok(Answer::Held(grant)) = answer else { panic!("{answer:?}") };
    let mut theirs = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    let node = theirs.enqueue("/locks/a");
    assert!(theirs.watch("/locks/a/lock-0000000000"));
    rig.run(rig.locks().break_hold("a", grant.token.number, false)).unwrap();
    theirs.await_event();
    assert_eq!(theirs.children("/locks/a")[0], "lock-0000000000");
    rig.run(async { engine.release(&release_of(&claim)).await });
    assert!(node.ends_with(&theirs.children("/locks/a")[0]));
}

/// Both sort by number.
#[test]
fn clients_of_both_layouts_exclude_each_other() {
    let rig = Rig::new();
    let plain = rig.locks_with(|config| config.layout(Layout::Plain));
    let default = rig.locks();
    for (one, other) in [(&plain, &default), (&default, &plain)] {
        let guard = acquire(one, "a");
        assert!(other.mutex("a").blocking().try_acquire().unwrap_err().is_taken());
        let view = rig.run(other.show("a")).unwrap();
        assert_eq!((view.holders[0].foreign, view.holders[0].token), (false, Some(guard.token().number)));
        guard.release_blocking().unwrap();
    }
    let permits = default.semaphore("a", 2);
    let guard = acquire(&plain, "a");
    assert!(permits.blocking().try_acquire().unwrap_err().is_misconfigured());
    guard.release_blocking().unwrap();
    let permit = permits.blocking().acquire().unwrap();
    assert!(plain.mutex("a").blocking().try_acquire().unwrap_err().is_misconfigured());
    permit.release_blocking().unwrap();
}

#[test]
fn a_program_written_by_hand_is_shown() {
    let rig = Rig::plain();
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    let mut theirs = RawClient::new(rig.server.port(), LONG_SESSION_MILLIS);
    for (data, owner) in [(&b""[..], "another program"), (b"10.0.0.7", "10.0.0.7")] {
        let kind = crate::raw_client::Kind::EphemeralSequential;
        let node = theirs.create("/locks/a/lock-", data, kind);
        let view = rig.show("a");
        let holder = &view.holders[0];
        assert_eq!((&*holder.owner, holder.foreign, holder.of_session), (owner, true, true));
        assert_eq!(view.mode, Some(Mode::Exclusive));
        theirs.delete(&node);
    }
    acquire(&rig.locks(), "a").release_blocking().unwrap();
}
