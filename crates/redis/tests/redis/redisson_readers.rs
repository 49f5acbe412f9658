//! Redisson's layout: shared holds, and waiters in the queue of Redisson's fair locks.

use std::{thread::spawn, time::Duration};

use leasehold_core::Mode;

use crate::{
    redisson_rig::{OTHER, OWNER, redisson},
    rig::{PATIENCE, Rig, acquire},
};

const READ_WRITE: &str = "redisson_rwlock:{lock:a}";
const TIMEOUT: &str = "{lock:a}:285475da-9152-4c83-822a-67ee2f116a79:52:rwlock_timeout:1";

/// The field of the one reader that represents our shared holds, and the ttl of its timeout key in milliseconds.
fn our_reader(rig: &Rig) -> (String, i64) {
    let field = rig.hash().into_keys().find(|field| field.ends_with(":00")).expect("our reader has a field");
    assert_eq!(rig.hash()[&field], "1");
    let remaining_ms = rig.millis_left(&format!("{{lock:a}}:{field}:rwlock_timeout:1"));
    (field, remaining_ms)
}

#[test]
fn shared_holds_coexist_with_redisson_readers() {
    let rig = redisson();
    let locks = rig.locks();
    rig.redisson_runs(&["read"]);
    for alone in [locks.rw("a").write(), locks.mutex("a"), locks.semaphore("a", 2)] {
        assert!(alone.blocking().try_acquire().unwrap_err().is_taken());
    }
    let ours = locks.rw("a").read().blocking().try_acquire().unwrap();
    let view = rig.show("a");
    assert_eq!((view.holders.len(), view.mode), (2, Some(Mode::Shared)), "{view:?}");
    let theirs = view.holders.iter().find(|holder| holder.foreign).unwrap();
    assert_eq!((&*theirs.id, &*theirs.owner), (OWNER, "Redisson"));
    for request in [locks.rw("a").write(), locks.mutex("a"), locks.semaphore("a", 2)] {
        let error = request.blocking().try_acquire().unwrap_err();
        assert!(error.is_taken() || error.is_misconfigured(), "{error}");
    }
    assert!(!rig.redisson_can_write() && rig.redisson_can_read() && !rig.redisson_can_lock());
    let (_, remaining_ms) = our_reader(&rig);
    assert!(
        remaining_ms > 20_000,
        "when a reader unlocks, Redisson shortens the lock to the longest of these: {remaining_ms}"
    );

    // Our reader is released first: then the lock lasts as long as the other reader.
    rig.command(&["PEXPIRE", TIMEOUT, "15000"]);
    ours.release_blocking().unwrap();
    let remaining_ms = rig.millis_left("lock:a");
    assert!(remaining_ms > 5000 && remaining_ms <= 15_000, "{remaining_ms}");
    assert_eq!(rig.hash().keys().collect::<Vec<_>>(), [OWNER, "mode"]);
    assert_eq!(rig.command(&["--raw", "KEYS", "{lock:a}*"]), TIMEOUT);
    assert!(!rig.redisson_can_write());
    rig.redisson_runs(&["read unlock"]);
    locks.rw("a").write().blocking().try_acquire().unwrap().release_blocking().unwrap();
    let theirs = |key: &String| key.starts_with("redisson_unlock_latch:");
    assert_eq!(
        rig.leftovers().into_iter().filter(|key| !theirs(key)).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
}

/// As in Redisson, a dead reader holds no longer than until its own timeout, although other readers have kept the lock
/// key alive.
#[test]
fn the_last_release_frees_a_lock_whose_other_readers_are_dead() {
    let rig = redisson();
    let ours = rig.locks().rw("a").read().blocking().acquire_within(PATIENCE).unwrap();
    rig.redisson_runs(&["read"]);
    rig.command(&["DEL", TIMEOUT]);
    let mut listener = rig.listen(&[READ_WRITE]);
    ours.release_blocking().unwrap();
    assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0");
    assert_eq!(listener.receive(), (READ_WRITE.to_owned(), "1".to_owned()));
}

#[test]
fn a_redisson_reader_unlock_does_not_affect_our_shared_hold() {
    let rig = redisson();
    rig.redisson_runs(&["read"]);
    let ours = rig.locks().rw("a").read().blocking().acquire_within(PATIENCE).unwrap();
    // If other readers remain, Redisson's unlock removes only the field and timeout key of its reader, then sets the
    // ttl of the lock key to the longest that remains.
    let (field, remaining_ms) = our_reader(&rig);
    rig.command(&["HDEL", "lock:a", OWNER]);
    rig.command(&["DEL", TIMEOUT]);
    rig.command(&["PEXPIRE", "lock:a", &remaining_ms.to_string()]);
    let timeout = format!("{{lock:a}}:{field}:rwlock_timeout:1");
    rig.command(&["PEXPIRE", &timeout, "9000"]);
    rig.run(ours.confirm()).unwrap();
    assert!(ours.check());
    assert_eq!(rig.hash().len(), 2);
    assert!(rig.millis_left(&timeout) > 20_000);
    ours.release_blocking().unwrap();
    assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0");
}

/// A program removes the expiry of the hash: the renewal of a shorter hold of ours sets it to the end of the longest
/// reader of Redisson; if that is not known, the hash stays without an expiry.
#[test]
fn a_removed_expiry_is_set_to_the_longest_redisson_reader() {
    let rig = redisson();
    rig.redisson_runs(&["read"]);
    rig.command(&["PEXPIRE", TIMEOUT, "60000"]);
    let ours =
        rig.locks().rw("a").read().ttl(Duration::from_secs(20)).blocking().acquire_within(PATIENCE).unwrap();
    rig.command(&["PERSIST", "lock:a"]);
    rig.run(ours.confirm()).unwrap();
    assert!((30_000..=60_000).contains(&rig.millis_left("lock:a")), "{}", rig.millis_left("lock:a"));
    rig.command(&["PERSIST", "lock:a"]);
    rig.command(&["PERSIST", TIMEOUT]);
    rig.run(ours.confirm()).unwrap();
    assert_eq!(rig.millis_left("lock:a"), -1);
}

#[test]
fn a_waiting_writer_is_notified_of_redisson_reader_unlocks() {
    let rig = redisson();
    for frees in ["read unlock", "force unlock"] {
        rig.redisson_runs(&["read", "read renew"]);
        let locks = rig.locks();
        let waiting = spawn(move || locks.rw("a").write().blocking().acquire_within(PATIENCE).unwrap());
        rig.until("it waits", || rig.show("a").waiters.len() == 1);
        let reader = rig.locks().rw("a").read().blocking().try_acquire();
        assert!(reader.unwrap_err().is_taken(), "a writer waits already");
        rig.redisson_runs(&[frees]);
        waiting.join().unwrap().release_blocking().unwrap();
        rig.command(&["DEL", TIMEOUT]);
    }
}

/// A writer that also has the read lock can unlock only its write lock. Redisson publishes no message for that.
#[test]
fn a_redisson_writer_that_becomes_a_reader_admits_our_readers() {
    let rig = redisson();
    rig.redisson_runs(&["write", "write then read"]);
    let locks = rig.locks();
    assert!(locks.rw("a").read().blocking().try_acquire().unwrap_err().is_taken());
    let waiting = spawn(move || locks.rw("a").read().blocking().acquire_within(PATIENCE).unwrap());
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    rig.redisson_runs(&["write unlock that leaves a reader"]);
    let ours = waiting.join().unwrap();
    assert!(!rig.redisson_can_write());
    ours.release_blocking().unwrap();
    assert_eq!(rig.hash().keys().collect::<Vec<_>>(), [OWNER, "mode"]);
}

/// All our shared holds are one reader for Redisson, which lasts as long as the longest of the holds.
#[test]
fn shared_holds_are_one_redisson_reader_with_the_longest_lease() {
    let rig = redisson();
    let (first_client, second_client) = (rig.locks(), rig.locks());
    let read = |locks: &leasehold_core::Locks, ttl| {
        locks.rw("a").read().ttl(ttl).renew(false).blocking().acquire_within(PATIENCE).unwrap()
    };
    let long = read(&first_client, Duration::from_secs(600));
    let short = read(&second_client, Duration::from_secs(20));
    let (_, remaining_ms) = our_reader(&rig);
    assert!(rig.hash().len() == 2 && remaining_ms > 300_000, "{remaining_ms}");
    long.release_blocking().unwrap();
    let (_, remaining_ms) = our_reader(&rig);
    assert!(remaining_ms <= 20_000 && rig.millis_left("lock:a") <= 20_000, "{remaining_ms}");
    short.release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn tokens_continue_those_of_a_fenced_lock() {
    let rig = redisson();
    let locks = rig.locks();
    let key = "redisson_lock_token:{lock:a}";
    let read = || rig.command(&["GET", key]).parse::<u64>().unwrap();
    acquire(&locks, "a").release_blocking().unwrap();
    assert_eq!(rig.command(&["EXISTS", key]), "0", "without a FencedLock we create no counter for it");
    rig.redisson_runs(&["lock fenced", "unlock"]);
    assert_eq!(read(), 1);
    let mut newest = 1;
    for _ in 0..3 {
        let guard = acquire(&locks, "a");
        assert!(guard.token().number > newest && read() >= guard.token().number);
        guard.release_blocking().unwrap();
        let before = read();
        rig.redisson_runs(&["lock fenced", "unlock"]);
        newest = read();
        assert_eq!(newest, before + 1, "Redisson continues our tokens");
    }
    // The token is far ahead of the clock, as after a clock step back.
    let ahead = newest + 3_600_000_000;
    rig.command(&["SET", key, &ahead.to_string()]);
    let guard = acquire(&locks, "a");
    assert!(guard.token().number > ahead && read() >= guard.token().number);
    assert_eq!(rig.millis_left(key), -1, "the counter does not expire");
}

#[test]
fn claims_do_not_overtake_the_fair_lock_queue() {
    let rig = redisson();
    rig.redisson_runs(&["fair lock", "fair wait"]);
    let locks = rig.locks();
    let waiting = spawn({
        let locks = locks.clone();
        move || acquire(&locks, "a")
    });
    let ours = || rig.show("a").waiters.iter().filter(|waiter| waiter.owner != "Redisson").count();
    rig.until("it waits", || ours() == 1);
    assert_eq!(rig.show("a").waiters[0].id, OTHER, "the head of the queue is shown first");
    rig.redisson_runs(&["fair unlock to the waiter"]);
    for request in [locks.mutex("a"), locks.rw("a").read()] {
        assert!(
            request.blocking().try_acquire().unwrap_err().is_taken(),
            "it is free, but reserved for the head of Redisson's queue"
        );
    }
    assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0");
    rig.redisson_runs(&["fair lock of the waiter"]);
    assert_eq!(rig.show("a").holders[0].id, OTHER);
    rig.redisson_runs(&["fair unlock"]);
    waiting.join().unwrap().release_blocking().unwrap();
}

/// All our waiters are one entry in the queue of a FairLock. After a grant the entry moves to the end of the queue;
/// without waiters it is removed.
#[test]
fn our_waiters_share_one_entry_in_the_fair_lock_queue() {
    const OURS: &str = "00000000-0000-0000-0000-000000000000:0";
    let rig = redisson();
    let fair_queue = || rig.command(&["LRANGE", "redisson_lock_queue:{lock:a}", "0", "-1"]);
    let waits = |locks: &leasehold_core::Locks| {
        let before = rig.show("a").waiters.len();
        let request = locks.mutex("a").blocking();
        let waiting = spawn(move || request.acquire_within(PATIENCE).unwrap());
        rig.until("it waits", || rig.show("a").waiters.len() > before);
        waiting
    };
    let (first_client, second_client) = (rig.locks(), rig.locks());
    rig.redisson_runs(&["fair lock"]);
    let first = waits(&first_client);
    assert_eq!(fair_queue(), "", "the fair queue is empty");
    rig.redisson_runs(&["fair wait"]);
    let second = waits(&second_client);
    assert_eq!(fair_queue(), format!("{OTHER} {OURS}"));
    let timeout_of = |owner: &str| -> u64 {
        rig.command(&["ZSCORE", "redisson_lock_timeout:{lock:a}", owner]).parse().unwrap()
    };
    assert!(timeout_of(OURS) > timeout_of(OTHER));

    // A third waiter enters behind our entry. The grants go to the first waiter of Redisson, to us, to the third
    // waiter, and to us again.
    rig.command(&["RPUSH", "redisson_lock_queue:{lock:a}", "behind:1"]);
    let later = (timeout_of(OURS) + 300_000).to_string();
    rig.command(&["ZADD", "redisson_lock_timeout:{lock:a}", &later, "behind:1"]);
    rig.redisson_runs(&["fair unlock to the waiter", "fair lock of the waiter", "fair unlock"]);
    let guard = first.join().unwrap();
    rig.until("the third waiter is the head of the queue", || fair_queue() == format!("behind:1 {OURS}"));
    assert!(timeout_of("behind:1") < later.parse().unwrap(), "its timeout shrinks by one waiter");
    guard.release_blocking().unwrap();
    assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0", "it is reserved for the third waiter");
    rig.command(&["LPOP", "redisson_lock_queue:{lock:a}"]);
    rig.command(&["ZREM", "redisson_lock_timeout:{lock:a}", "behind:1"]);
    second.join().unwrap().release_blocking().unwrap();
    assert_eq!(fair_queue(), "");

    // A claim of ours that gives up leaves no entry in Redisson's queue.
    rig.redisson_runs(&["fair lock", "fair wait"]);
    let error = first_client.mutex("a").blocking().acquire_within(Duration::from_millis(300)).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    rig.until("it left the queue", || fair_queue() == OTHER);
}

#[test]
fn a_release_wakes_the_head_of_the_fair_lock_queue() {
    let rig = redisson();
    let channel = format!("redisson_lock__channel:{{lock:a}}:{OTHER}");
    let guard = acquire(&rig.locks(), "a");
    rig.redisson_runs(&["fair wait"]);
    let mut listener = rig.listen(&[&channel]);
    guard.release_blocking().unwrap();
    assert_eq!(listener.receive(), (channel, "0".to_owned()));
}

/// A waiter of a FairLock died, and no program of Redisson has removed it yet.
#[test]
fn an_expired_fair_lock_waiter_blocks_no_claim() {
    let rig = redisson();
    rig.redisson_runs(&["fair wait"]);
    rig.command(&["ZADD", "redisson_lock_timeout:{lock:a}", "XX", "1795385657385", OTHER]);
    let locks = rig.locks();
    let past = rig.command(&["TIME"]).split(' ').next().unwrap().parse::<u64>().unwrap() * 1000 - 1;
    rig.command(&["ZADD", "redisson_lock_timeout:{lock:a}", "XX", &past.to_string(), OTHER]);
    locks.mutex("a").blocking().try_acquire().unwrap().release_blocking().unwrap();
    rig.command(&["DEL", "redisson_lock_timeout:{lock:a}"]);
    locks.mutex("a").blocking().try_acquire().unwrap().release_blocking().unwrap();
    assert_eq!(
        rig.command(&["LRANGE", "redisson_lock_queue:{lock:a}", "0", "-1"]),
        OTHER,
        "the dead waiter stays in the queue"
    );
}
