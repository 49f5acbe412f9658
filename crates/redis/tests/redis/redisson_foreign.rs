//! Redisson's layout: foreign values under the lock key and its side keys.

use std::time::Duration;

use leasehold_core::{
    Answer, Engine, How, Inspect, Mode, Name, Previous, Release, Released, Renewed, lock_state::entry_life,
};
use leasehold_redis::Layout;
use proptest::prelude::*;

use crate::{
    redisson_rig::{OTHER, OWNER, redisson},
    rig::{PATIENCE, Rig, acquire},
};

const SHORT_WAIT: Duration = Duration::from_millis(300);

/// A client of the same server in the default layout.
fn plain(rig: &Rig) -> leasehold_core::Locks {
    let config = rig.config.clone().layout(Layout::Plain).unwrap();
    crate::sentinel_rig::locks_of(config)
}

fn all_modes(rig: &Rig) -> [leasehold_core::Blocking; 3] {
    let locks = rig.locks();
    [locks.mutex("a"), locks.rw("a").read(), locks.semaphore("a", 3)].map(|request| request.blocking())
}

/// Fields that are no lock, or that only resemble a lock of Redisson.
const UNKNOWN_FIELDS: [&[&str]; 8] = [
    &["user", "7", "name", "x"],
    &["mode", "read"],
    &["mode", "read", "x", "1"],
    &["mode", "read", OWNER, "many"],
    &["mode", "read", OWNER, "99999999999999999999999999"],
    &["mode", "write", "285475da-9152-4c83-822a-67ee2f116a79:017:write", "9"],
    &["285475da-9152-4c83-822a-67ee2f116a79:017:write", "one"],
    &["mode", "read", "285475da-9152-4c83-822a-67ee2f116a79:00", "7", "", ""],
];

#[test]
fn an_unknown_hash_is_a_foreign_holder_and_never_touched() {
    let rig = redisson();
    for fields in UNKNOWN_FIELDS {
        rig.command(&[&["HSET", "lock:a"], fields].concat());
        rig.command(&["PEXPIRE", "lock:a", "60000"]);
        let before = rig.hash();
        for request in all_modes(&rig) {
            let is_shared_reader = fields.get(3) == Some(&"99999999999999999999999999");
            match request.acquire_within(SHORT_WAIT) {
                // A reader of Redisson shares with our shared holds, however many times it has entered.
                Ok(guard) if is_shared_reader => guard.release_blocking().unwrap(),
                Ok(_) => panic!("{fields:?}: it is taken"),
                Err(error) => {
                    assert!(error.is_timed_out() || error.is_misconfigured(), "{fields:?}: {error}")
                }
            }
            rig.until("it left the queue", || rig.show("a").waiters.is_empty());
        }
        let view = rig.show("a");
        assert!(!view.holders.is_empty() && view.holders.iter().all(|holder| holder.foreign), "{view:?}");
        assert_eq!(rig.hash(), before, "{fields:?}");
        assert!(rig.millis_left("lock:a") > 0);
        rig.command(&["DEL", "lock:a"]);
    }
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

/// A key with an unknown value and without an expiry may be data that is no lock.
#[test]
fn an_unknown_key_without_expiry_is_a_misconfiguration() {
    let rig = redisson();
    for command in
        [["HSET", "lock:a", "name", "x"].as_slice(), &["LPUSH", "lock:a", "x"], &["SADD", "lock:a", "x"]]
    {
        rig.command(command);
        let request = rig.locks().mutex("a").blocking();
        for error in [request.try_acquire().unwrap_err(), request.acquire_within(SHORT_WAIT).unwrap_err()] {
            assert!(
                error.is_misconfigured() && error.to_string().contains("not a lock of Redisson"),
                "{error}"
            );
        }
        let shown = &rig.show("a").holders[0];
        assert!(shown.foreign && shown.owner == "another program" && shown.id.starts_with('('), "{shown:?}");
        assert_eq!(rig.millis_left("lock:a"), -1, "left as it was");
        rig.command(&["DEL", "lock:a"]);
    }
    // A lock of Redisson remains a lock when its expiry is removed.
    rig.redisson_runs(&["lock"]);
    rig.command(&["PERSIST", "lock:a"]);
    assert!(rig.locks().mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    assert_eq!(rig.show("a").holders[0].remaining, None);
}

/// The engine reads only its own field of a huge hash.
#[test]
fn a_hold_in_a_huge_hash_can_be_renewed_and_released() {
    let rig = redisson();
    let fill = "for n = 1, 20000 do redis.call('HSET', KEYS[1], ARGV[1] .. n, '1') end return 1";
    let ours = rig.locks().rw("a").read().blocking().acquire_within(PATIENCE).unwrap();
    rig.command(&["EVAL", fill, "1", "lock:a", "285475da-9152-4c83-822a-67ee2f116a79:"]);
    rig.run(ours.confirm()).unwrap();
    assert!(ours.check());
    let error = rig.locks().mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_taken() || error.is_misconfigured(), "{error}");
    ours.release_blocking().unwrap();
    assert_eq!(rig.command(&["HLEN", "lock:a"]), "20001");
    for request in all_modes(&rig) {
        assert!(request.try_acquire().unwrap_err().is_taken());
    }
    assert_eq!(rig.show("a").holders[0].id, "(hash)");
    assert_eq!(rig.command(&["HLEN", "lock:a"]), "20001");
}

/// A name that is held in one layout cannot be acquired in the other, and the error names the other layout.
#[test]
fn a_hold_in_the_other_layout_is_a_misconfiguration() {
    let rig = redisson();
    let plain = plain(&rig);
    let held: [&dyn Fn(&leasehold_core::Locks) -> leasehold_core::Request; 3] =
        [&|locks| locks.mutex("a"), &|locks| locks.rw("a").read(), &|locks| locks.semaphore("a", 2)];
    for (one, other, reason, shown) in [
        (&rig.locks(), &plain, "as a lock of Redisson's", "leasehold with layout=redisson"),
        (&plain, &rig.locks(), "as a string", "leasehold without layout=redisson"),
    ] {
        for request in held {
            let guard = request(one).blocking().acquire_within(PATIENCE).unwrap();
            for asked in held {
                let error = asked(other).blocking().try_acquire().unwrap_err();
                assert!(error.is_misconfigured(), "{error}");
                assert!(
                    error.to_string().contains("layout=redisson") && error.to_string().contains(reason),
                    "{error}"
                );
            }
            let view = rig.run(other.show("a")).unwrap();
            assert!(view.holders.len() == 1 && view.holders[0].foreign, "{view:?}");
            assert_eq!(view.holders[0].owner, shown);
            rig.run(guard.confirm()).unwrap();
            assert!(guard.check());
            let waiting = std::thread::spawn({
                let request = held[0](other).blocking();
                move || request.acquire_within(PATIENCE)
            });
            rig.until("it waits", || rig.run(other.show("a")).unwrap().waiters.len() == 1);
            guard.release_blocking().unwrap();
            waiting.join().unwrap().unwrap().release_blocking().unwrap();
        }
    }
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}

#[test]
fn a_plain_lock_of_another_program_is_waited_for() {
    let rig = redisson();
    rig.command(&["SET", "lock:a", "theirs", "PX", "60000"]);
    for request in all_modes(&rig) {
        assert!(request.try_acquire().unwrap_err().is_taken());
    }
    let holder = &rig.show("a").holders[0];
    assert!(holder.foreign && holder.id == "theirs" && holder.owner == "another program", "{holder:?}");
    rig.command(&["DEL", "lock:a"]);
    acquire(&rig.locks(), "a").release_blocking().unwrap();
}

/// A release deletes only our own field.
#[test]
fn a_release_leaves_foreign_fields_in_the_hash() {
    let rig = redisson();
    for request in all_modes(&rig) {
        let guard = request.acquire_within(PATIENCE).unwrap();
        rig.command(&["HSET", "lock:a", "theirs", "x"]);
        rig.run(guard.confirm()).unwrap();
        guard.release_blocking().unwrap();
        assert_eq!(rig.hash()["theirs"], "x");
        rig.command(&["DEL", "lock:a"]);
    }
}

#[test]
fn foreign_values_in_redissons_side_keys_stop_only_tokens() {
    let rig = redisson();
    let token = "redisson_lock_token:{lock:a}";
    for wrong in
        [["SET", token, "many"].as_slice(), &["LPUSH", token, "1"], &["SET", token, "99999999999999999"]]
    {
        rig.command(wrong);
        let error = rig.locks().mutex("a").blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("redisson_lock_token"), "{error}");
        assert_eq!(rig.command(&["EXISTS", "lock:a"]), "0");
        rig.command(&["DEL", token]);
    }
    rig.command(&["SET", "redisson_lock_queue:{lock:a}", "x"]);
    acquire(&rig.locks(), "a").release_blocking().unwrap();
    rig.command(&["DEL", "redisson_lock_queue:{lock:a}"]);
    rig.command(&["RPUSH", "redisson_lock_queue:{lock:a}", OTHER]);
    rig.command(&["SET", "redisson_lock_timeout:{lock:a}", "x"]);
    acquire(&rig.locks(), "a").release_blocking().unwrap();
}

#[test]
fn names_that_are_redissons_own_keys_are_refused_and_not_listed() {
    let mut rig = redisson();
    rig.config = rig.config.prefix("").unwrap();
    let locks = rig.locks();
    for name in [
        "redisson_lock_token:{a}",
        "redisson_x",
        "{a}:285475da-9152-4c83-822a-67ee2f116a79:52:rwlock_timeout:1",
    ] {
        let error = locks.mutex(name).blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("Redisson's own"), "{error}");
    }
    let guard = locks.rw("a").read().blocking().acquire_within(PATIENCE).unwrap();
    for key in ["redisson_lock_token:{a}", "redisson_unlock_latch:{a}:b8cbe00599375318e37251ee57ec71da"] {
        rig.command(&["SET", key, "1"]);
    }
    rig.command(&["RPUSH", "redisson_lock_queue:{a}", OTHER]);
    let listed = rig.run(locks.list("")).unwrap();
    let names: Vec<&str> = listed.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["a"]);
    guard.release_blocking().unwrap();
}

fn field() -> impl Strategy<Value = (String, String)> {
    let uuid = prop_oneof!["[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[0-9a-f-]{1,40}"];
    let thread = prop_oneof![Just(String::new()), "0?[0-9]{1,20}", "-?[0-9]{1,3}"];
    let end = prop_oneof![Just(""), Just(":write"), Just(":writer")];
    let field = prop_oneof![
        3 => Just("mode".to_owned()),
        6 => (uuid, thread, end).prop_map(|(uuid, thread, end)| format!("{uuid}:{thread}{end}")),
        1 => "[a-z:0-9-]{0,50}",
    ];
    let value = prop_oneof![
        Just("read".to_owned()),
        Just("write".to_owned()),
        "-?[0-9]{1,2}",
        "[0-9]{1,30}",
        "[a-z]{0,3}"
    ];
    (field, value)
}

/// Whatever the hash contains, no verb fails or hangs, foreign fields change only as Redisson changes them for its
/// readers, and no key of ours is left.
#[test]
fn random_hashes_under_the_key_break_no_verb() {
    let rig = redisson();
    let engine = rig.engine();
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    let mode =
        prop_oneof![Just(Mode::Exclusive), Just(Mode::Shared), Just(Mode::Permits { count: 1, limit: 2 })];
    proptest!(config, |(fields in prop::collection::vec(field(), 1..5), mode in mode, expires in any::<bool>())| {
        rig.command(&["DEL", "lock:a"]);
        for (field, value) in &fields {
            rig.command(&["HSET", "lock:a", field, value]);
        }
        if expires {
            rig.command(&["PEXPIRE", "lock:a", "60000"]);
        }
        let before = rig.hash();
        let claim = leasehold_core::Claim { mode, ..rig.claim("a") };
        prop_assert!(entry_life(claim.ttl) > SHORT_WAIT);
        let release = |token| Release {
            id: claim.id, name: claim.name.clone(), mode, token, ended: Previous::Clean, min_hold: None,
        };
        rig.run(async {
            match engine.claim(&claim, How::Create).await {
                Ok(Answer::Held(grant)) => {
                    prop_assert!(mode == Mode::Shared, "{before:?}");
                    let hold = leasehold_core::Hold {
                        id: claim.id, name: claim.name.clone(), mode, token: grant.token, ttl: claim.ttl,
                    };
                    let renewed = engine.renew(&[hold]).await;
                    prop_assert!(matches!(renewed[..], [Renewed::Extended { .. }]), "{renewed:?}");
                    let released = engine.release(&[release(Some(grant.token))]).await;
                    prop_assert!(matches!(released[..], [Released::Freed]), "{released:?}");
                    // A reader without a timeout key counts as dead, and is removed.
                    let after = rig.hash();
                    prop_assert!(after.is_empty() || after == before, "{before:?} {after:?}");
                }
                Ok(Answer::Waiting(_)) => {
                    let released = engine.release(&[release(None)]).await;
                    prop_assert!(matches!(released[..], [Released::Freed]), "{released:?}");
                    let after = rig.hash();
                    prop_assert_eq!(&after, &before);
                }
                other => prop_assert!(false, "{before:?}: {other:?}"),
            }
            engine.show(&Name::new("a").unwrap()).await.unwrap();
            Ok(())
        })?;
    });
    rig.command(&["DEL", "lock:a"]);
    assert_eq!(rig.leftovers(), Vec::<String>::new());
}
