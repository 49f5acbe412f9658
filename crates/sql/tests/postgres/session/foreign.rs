//! Other programs with advisory locks, and names with equal keys.

use std::thread::spawn;

use leasehold_core::Locks;
use leasehold_sql::postgres::SessionOptions;
use tokio_postgres::Client;

use super::rig::{SessionRig, at_once, engine_of};
use crate::rig::{acquire, until};

/// A client whose names have the keys that this derivation makes.
fn keyed(rig: &SessionRig, lock_key: &str) -> Locks {
    let options: SessionOptions = at_once().lock_key(lock_key).unwrap();
    Locks::builder(engine_of("postgres", rig.server.port(), options)).build()
}

/// Another program.
async fn program(rig: &SessionRig) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&rig.server.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The key of the other program, and its twin of two ints, which is another lock.
#[test]
fn a_lock_of_another_program_excludes_and_its_twin_does_not() {
    let rig = SessionRig::new();
    let locks = keyed(&rig, "bigint");
    let is_taken = || match locks.mutex("4711").blocking().try_acquire() {
        Ok(guard) => guard.release_blocking().map(|()| false).unwrap(),
        Err(error) if error.is_taken() => true,
        Err(error) => panic!("{error}"),
    };
    rig.run(async {
        let program = program(&rig).await;
        program.batch_execute("SELECT pg_advisory_lock(0, 4711)").await.unwrap();
        assert!(!is_taken());
        program.batch_execute("SELECT pg_advisory_lock(4711)").await.unwrap();
        assert!(is_taken());
        let view = keyed(&rig, "bigint").show("4711").await.unwrap();
        assert!(view.holders[0].foreign && view.holders[0].id.starts_with("pid "), "{view:?}");
        assert_eq!(view.key, "classid 0 objid 4711 objsubid 1");
        program.batch_execute("SELECT pg_advisory_unlock(4711)").await.unwrap();
        assert!(!is_taken());
    });
}

/// A program that waits in the server gets the lock at the release, and we get it when that program unlocks.
#[test]
fn a_program_that_waits_in_the_server_is_served() {
    let rig = SessionRig::new();
    let (locks, waiter) = (keyed(&rig, "bigint"), keyed(&rig, "bigint"));
    let guard = acquire(&locks, "7");
    let program = rig.run(program(&rig));
    rig.run(async {
        let lock = program.batch_execute("SELECT pg_advisory_lock(7)");
        let free = async {
            until("the program waits", || {
                rig.server.query("SELECT 1 FROM pg_locks WHERE NOT granted").len() == 1
            });
            guard.release().await.unwrap();
        };
        let (locked, ()) = tokio::join!(lock, free);
        locked.unwrap();
    });
    let waiting = spawn(move || acquire(&waiter, "7"));
    until("the claim waits", || {
        rig.server.query("SELECT 1 FROM pg_locks WHERE mode = 'ShareLock'").len() == 1
    });
    rig.run(program.batch_execute("SELECT pg_advisory_unlock(7)")).unwrap();
    waiting.join().unwrap().release_blocking().unwrap();
}

/// F56: the names have one key, which a session could lock twice. In one process and between processes, the second name
/// reads as taken.
#[test]
fn names_with_equal_keys_exclude_each_other() {
    let rig = SessionRig::new();
    let (locks, other) = (keyed(&rig, "bigint:5"), keyed(&rig, "bigint:5"));
    let guard = acquire(&locks, "a");
    for locks in [&locks, &other] {
        assert!(locks.mutex("b").blocking().try_acquire().is_err_and(|error| error.is_taken()));
    }
    let waiting: Vec<_> = [locks, other]
        .into_iter()
        .map(|locks| spawn(move || acquire(&locks, "b").release_blocking().unwrap()))
        .collect();
    until("the other process waits", || {
        rig.server.query("SELECT 1 FROM pg_locks WHERE mode = 'ShareLock'").len() == 1
    });
    assert!(waiting.iter().all(|thread| !thread.is_finished()));
    guard.release_blocking().unwrap();
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
    until("nothing is left", || rig.advisory_locks().is_empty());
}

/// No other program divides a key into permits.
#[test]
fn permits_with_the_keys_of_another_program_are_refused() {
    let rig = SessionRig::new();
    let error = keyed(&rig, "pals").semaphore("a.b", 2).blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured(), "{error}");
    assert!(at_once().lock_key("secret").unwrap_err().to_string().contains("lock_key is unknown"));
}
