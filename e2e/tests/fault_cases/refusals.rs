//! Refusals by a server, and a hold that an operator breaks.

use std::thread::sleep;

use leasehold::{Broken, ErrorKind, Guard, Loss};

use crate::rig::{LONG, Rig, acquire, rng, until};

#[test]
fn f34_each_refusal_has_its_own_error() {
    let rig = Rig::new();
    let locks = rig.locks();
    // A release in the background could fall into the next refusal.
    let tries = |name: &str| {
        let tried = locks.mutex(name).blocking().try_acquire();
        tried.and_then(Guard::release_blocking).map_err(|error| error.kind())
    };
    assert_eq!(tries("a"), Ok(()));
    rig.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(tries("b"), Ok(()), "NOSCRIPT: the script is loaded again");
    for (set, back) in [
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
        (["CONFIG", "SET", "min-replicas-to-write", "1"], ["CONFIG", "SET", "min-replicas-to-write", "0"]),
    ] {
        rig.command(&set);
        assert_eq!(tries("c"), Err(ErrorKind::Refused), "{set:?}");
        rig.command(&back);
        assert_eq!(tries("c"), Ok(()), "the refused claim left nothing");
    }
    let primary = Rig::new();
    rig.command(&["REPLICAOF", "127.0.0.1", &primary.server.port().to_string()]);
    // Another server may be the primary under this name, so a client that knew this one as the primary connects again.
    let error = locks.mutex("d").blocking().try_acquire().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("read-only replica"), "READONLY: {error}");
    rig.command(&["REPLICAOF", "NO", "ONE"]);
    until("it is a primary again", || tries("d") == Ok(()));
}

#[test]
fn f69_operator_breaks_a_lock_by_force() {
    let rig = Rig::new();
    let (locks, operator) = (rig.locks(), rig.locks());
    let guard = acquire(&locks, "a", LONG);
    sleep(rng().millis(0..200));
    let token = guard.token().number;
    assert_eq!(pollster::block_on(operator.break_hold("a", token, true)).unwrap(), Broken::Done);
    let next = acquire(&operator, "a", LONG);
    assert!(next.token().number > token);
    until("the loss is reported", || !guard.check());
    let kind = guard.release_blocking().unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::Lost(Loss::Broken | Loss::Gone)), "{kind:?}");
    assert!(next.check() && rig.left("lock:a") > 0, "its release affects no other hold");
    assert_eq!(pollster::block_on(operator.break_hold("a", token, true)).unwrap(), Broken::NotHeld);
}
