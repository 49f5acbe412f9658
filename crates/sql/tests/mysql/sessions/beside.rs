//! Programs that call GET_LOCK with the keys of other packages: they and leasehold exclude each other.

use leasehold_core::Engine;

use super::rig::{Program, event_of, keys_of};
use crate::rig::{Rig, assert_taken, claim, claim_and_hold, release_hold};

/// A derivation, a name, and the key that the other program gives to GET_LOCK.
const KEYS: [(&str, &str, &str); 8] = [
    ("name", "Nightly job", "Nightly job"),
    ("sqlalchemy-dlock", "nightly", "nightly"),
    ("tooz", "nightly", "nightly"),
    ("dotnet", "nightly", "nightly"),
    ("dotnet", "ABC", "abczj4qr6tvn4a3kmgq4bukhowqyfrlxsb3"),
    ("flyway", "shop.flyway_schema_history", "Flyway--1695041341"),
    ("rails", "nightly", "550136877389907570"),
    ("name", "it''s", "it''''s"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_call_get_lock_are_excluded_both_ways() {
    let rig = Rig::new();
    let mut program = Program::connect(&rig.server).await;
    for (lock_key, name, key) in KEYS {
        let one = rig.session_with(keys_of(lock_key));
        assert!(program.locks(key).await, "{lock_key} {name}");
        assert_taken(&*one, name).await;
        assert!(program.unlocks(key).await);
        let mine = claim(name);
        let grant = claim_and_hold(&*one, &mine).await;
        assert!(!program.locks(key).await, "{lock_key} {name}");
        release_hold(&*one, &mine, &grant).await;
        assert!(program.locks(key).await && program.unlocks(key).await, "{lock_key} {name}");
    }
}

/// The other program releases, and cannot notify: the claim finds out by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_waits_for_a_program_that_calls_get_lock() {
    use leasehold_core::{Answer, Claim, How, Notification};
    let rig = Rig::new();
    let mut program = Program::connect(&rig.server).await;
    assert!(program.locks("nightly").await);
    let one = rig.session_with(keys_of("name"));
    let waiting = Claim { may_queue: true, ..claim("nightly") };
    assert!(matches!(one.claim(&waiting, How::Create).await, Ok(Answer::Waiting(_))));
    assert!(program.unlocks("nightly").await);
    assert!(matches!(event_of(&one, waiting.id).await, Notification::Granted { .. }));
}
