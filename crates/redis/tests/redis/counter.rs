//! The token counter after another program wrote to it, and the rights of users with different prefixes.

use std::time::Duration;

use leasehold_core::ErrorKind;
use leasehold_testkit::server::redis_command;

use crate::{
    conformance::{PASSWORD, as_user},
    rig::{PATIENCE, Rig, acquire},
};

const COUNTER: &str = "leasehold:{}tlock:";

/// The counter must be an integer that Lua represents exactly, so at most 2^53.
#[test]
fn an_invalid_token_counter_is_refused() {
    let rig = Rig::new();
    let locks = rig.locks();
    let before = acquire(&locks, "before").token().number;
    for words in [
        ["SET", COUNTER, "9007199254740992"],
        ["SET", COUNTER, "9223372036854775807"],
        ["SET", COUNTER, "foo"],
        ["SET", COUNTER, "1.5"],
        ["RPUSH", COUNTER, "1"],
    ] {
        rig.command(&["DEL", COUNTER]);
        rig.command(&words);
        // Claims twice: with a counter that is too large, two claims could get the same token.
        for _ in 0..2 {
            for error in [
                locks.mutex("m").blocking().try_acquire().unwrap_err(),
                locks.rw("r").read().blocking().acquire_within(PATIENCE).unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Misconfigured, "{words:?}: {error}");
                assert!(error.to_string().contains("newest token"), "{error}");
            }
        }
        assert_eq!(rig.command(&["EXISTS", "lock:m", "lock:r"]), "0", "{words:?}");
    }
    rig.command(&["DEL", COUNTER]);
    assert!(acquire(&locks, "m").token().number > before, "tokens start again above the clock");
}

/// I4: tokens grow both for a client that was connected before the counter was lost, and for a client that connects
/// afterwards.
#[test]
fn tokens_grow_after_the_counter_is_lost() {
    let rig = Rig::new();
    let mut newest = 0;
    for (number, locks) in [rig.locks(), rig.locks()].iter().enumerate() {
        for name in ["a", "b"] {
            let token = acquire(locks, &format!("{name}{number}")).token().number;
            assert!(token > newest, "{token} after {newest}");
            newest = token;
            rig.command(&["DEL", COUNTER]);
        }
    }
}

/// Holders can still renew and release. A waiter gets an error instead of waiting in vain.
#[test]
fn an_invalid_token_counter_stops_only_grants() {
    let rig = Rig::new();
    let holds = acquire(&rig.locks(), "a");
    let others = rig.locks();
    let waits = std::thread::spawn(move || others.mutex("a").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("a").waiters.len() == 1);
    rig.command(&["SET", COUNTER, "9007199254740992"]);
    rig.run(holds.confirm()).unwrap();
    holds.release_blocking().unwrap();
    let error = waits.join().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    rig.until("nothing is left", || rig.show("a").waiters.is_empty());
}

/// Two teams share a server, with the documented users.
#[test]
fn a_team_can_access_only_its_own_prefix() {
    let (_directory, mut rig) = as_user("team-a");
    let login = rig.config.clone();
    rig.config = login.clone().prefix("team-a:").unwrap();
    let locks = rig.locks();
    let reader = locks.rw("r").read().blocking().acquire().unwrap();
    let (guard, other) = (acquire(&locks, "m"), rig.locks());
    let waiting = std::thread::spawn(move || other.mutex("m").blocking().acquire_within(PATIENCE));
    rig.until("it waits", || rig.show("m").waiters.len() == 1);
    guard.release_blocking().unwrap();
    waiting.join().unwrap().unwrap().release_blocking().unwrap();
    reader.release_blocking().unwrap();

    rig.config = login.prefix("team-b:").unwrap();
    let error = rig.locks().mutex("m").blocking().try_acquire().unwrap_err();
    assert!(error.is_denied(), "{error}");
    for key in [
        "team-b:m",
        "leasehold:{}tteam-b:",
        "leasehold:{ABCD}cteam-b:m",
        "leasehold:{ABCD}fteam-b:m",
        "leasehold:{}tlock:",
    ] {
        for command in [["SET", key, "1"].as_slice(), &["GET", key], &["DEL", key]] {
            let login = ["--user", "team-a", "--pass", PASSWORD, "--no-auth-warning"];
            let output = redis_command(rig.server.port(), &[&login, command].concat());
            let output = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(output.contains("NOPERM"), "{command:?}: {output}");
        }
    }
}

/// The user has no right to ZADD, which the script of a shared claim calls only after other commands.
#[test]
fn a_claim_whose_script_fails_midway_leaves_no_lock() {
    let (_directory, rig) = as_user("leasehold-operator");
    rig.command(&["ACL", "SETUSER", "leasehold-operator", "-zadd"]);
    let locks = rig.locks();
    let reader = locks.rw("r").read().ttl(Duration::from_secs(60)).blocking().try_acquire().unwrap_err();
    let permit = locks.semaphore("s", 2).ttl(Duration::from_secs(60)).blocking().try_acquire().unwrap_err();
    assert!(reader.is_denied() && permit.is_denied(), "{reader}, {permit}");
    assert_eq!(rig.command(&["EXISTS", "lock:r", "lock:s"]), "0");
    acquire(&locks, "r").release_blocking().unwrap();
}
