//! Tokens: transaction ids.

use std::thread::scope;

use super::rig::SessionRig;
use crate::rig::acquire;

/// I4: over all processes, every later grant of a name has a larger token.
#[test]
fn tokens_grow_over_the_grants_of_several_processes() {
    let rig = SessionRig::new();
    // Another program uses transaction ids, too.
    rig.server.query("CREATE TABLE busy (x int)");
    let newest = std::sync::Mutex::new(0);
    scope(|scope| {
        for process in 0..3 {
            let (rig, newest) = (&rig, &newest);
            scope.spawn(move || {
                let locks = rig.locks();
                for round in 0..40 {
                    let guard = acquire(&locks, "a");
                    if round % 10 == process {
                        rig.server.query("INSERT INTO busy VALUES (1)");
                    }
                    let number = guard.token().number;
                    let before = std::mem::replace(&mut *newest.lock().unwrap(), number);
                    assert!(number > before, "{number} follows {before}");
                    guard.release_blocking().unwrap();
                }
            });
        }
    });
}

/// A transaction of a role that may only read has an id, too.
#[test]
fn a_read_only_role_gets_tokens() {
    let rig = SessionRig::new();
    rig.server.query("ALTER ROLE postgres SET default_transaction_read_only = on");
    let (first, second) = (rig.locks(), rig.locks());
    let guard = acquire(&first, "a");
    let token = guard.token();
    let waiting = std::thread::spawn(move || acquire(&second, "a"));
    crate::rig::until("the claim waits", || rig.show("a").waiters.len() == 1);
    guard.release_blocking().unwrap();
    assert!(waiting.join().unwrap().token().number > token.number);
}
