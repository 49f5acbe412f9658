//! Several names in one step: one script, no part of a set, and the name that an error is about.

use leasehold_core::{All, Locks, MAX_NAMES_AT_ONCE};

use crate::{
    conformance::PASSWORD,
    rig::{Rig, acquire},
    sentinel_rig::locks_of,
};

/// Names in the order in which they are locked.
fn name(number: usize) -> String {
    format!("n{number:03}")
}

fn set(locks: &Locks, count: usize) -> All {
    (0..count).map(name).fold(locks.all(), |all, name| all.mutex(name))
}

/// The calls of each command since the last reset, without those that set up a connection or answer this question.
pub(crate) fn calls(rig: &Rig) -> Vec<String> {
    let stats = rig.server.command(&["INFO", "commandstats"]);
    let call = |line: &String| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some(format!("{name} {}", rest.split(',').next()?))
    };
    stats.iter().filter_map(call).filter(|call| call.starts_with("evalsha")).collect()
}

#[test]
fn a_set_of_free_names_costs_one_request() {
    let rig = Rig::new();
    let locks = rig.locks();
    // The server learns the script.
    set(&locks, 2).blocking().try_acquire().unwrap().release_blocking().unwrap();
    rig.command(&["CONFIG", "RESETSTAT"]);
    let guards = set(&locks, MAX_NAMES_AT_ONCE).blocking().acquire().unwrap();
    assert_eq!(calls(&rig), ["evalsha 1"]);
    assert!(guards.check());
    assert_eq!(rig.command(&["EXISTS", "lock:n000", "lock:n063", "lock:n127"]), "3");
    guards.release_blocking().unwrap();
    rig.command(&["SET", "lock:n100", "theirs"]);
    rig.command(&["CONFIG", "RESETSTAT"]);
    let error = set(&locks, MAX_NAMES_AT_ONCE).blocking().try_acquire().unwrap_err();
    assert!(error.is_taken() && error.to_string().contains("n100"), "{error}");
    assert_eq!(calls(&rig), ["evalsha 1"], "nothing is left to release");
    rig.command(&["DEL", "lock:n100"]);
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn an_error_names_the_name_that_the_user_may_not_lock() {
    let rig = Rig::new();
    let rights = ["ACL", "SETUSER", "poor", "on", &format!(">{PASSWORD}"), "&*", "+@all"];
    let keys = ["resetkeys", "~lock:n000", "~lock:n002", "~leasehold:*"];
    rig.command(&[&rights[..], &keys].concat());
    let locks = locks_of(rig.config.clone().login("poor", PASSWORD));
    for error in [set(&locks, 3).blocking().try_acquire(), set(&locks, 3).blocking().acquire()] {
        let error = error.unwrap_err();
        assert!(error.is_denied() && error.to_string().contains("n001"), "{error}");
    }
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// The script is granted the first name before the server refuses a command for the second one.
#[test]
fn a_script_that_fails_half_way_leaves_no_hold() {
    let rig = Rig::new();
    let rights = ["ACL", "SETUSER", "poor", "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all", "-hset"];
    rig.command(&rights);
    let locks = locks_of(rig.config.clone().login("poor", PASSWORD));
    let error = locks.all().mutex("a").permits("b", 1, 2).blocking().try_acquire().unwrap_err();
    assert!(error.is_denied() && error.to_string().contains("\"b\""), "{error}");
    assert_eq!(rig.command(&["EXISTS", "lock:a", "lock:b"]), "0");
    acquire(&rig.locks(), "a").release_blocking().unwrap();
}

/// A key that another program left behind ends when the time in its value is over, as for a single name.
#[test]
fn a_stale_deadline_is_reclaimed_in_a_set() {
    let mut rig = Rig::new();
    rig.config = rig.config.clone().stale_deadline(leasehold_redis::StaleDeadline::Reclaim).unwrap();
    rig.command(&["SET", "lock:n001", "1600000000"]);
    set(&rig.locks(), 3).blocking().try_acquire().unwrap().release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// A name that cannot be used is not reported while an earlier name is taken.
#[test]
fn a_taken_name_is_reported_before_a_later_name_that_cannot_be_used() {
    let rig = Rig::new();
    let locks = rig.locks();
    rig.command(&["SET", "lock:n000", "theirs"]);
    rig.command(&["RPUSH", "lock:n002", "no lock"]);
    let error = set(&locks, 3).blocking().try_acquire().unwrap_err();
    assert!(error.is_taken() && error.to_string().contains("n000"), "{error}");
    rig.command(&["DEL", "lock:n000"]);
    let error = set(&locks, 3).blocking().try_acquire().unwrap_err();
    assert!(!error.is_taken() && error.to_string().contains("n002"), "{error}");
    rig.command(&["DEL", "lock:n002"]);
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}
