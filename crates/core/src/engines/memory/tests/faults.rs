//! Tests of late requests, lost servers, dead processes, and of the remains of each.

use std::{sync::Arc, time::Duration};

use super::fixture::*;
use crate::{
    Answer, Claim, Env, Fault, How, Loss, Mode, Notification, Renewed,
    engines::memory::{MemoryStore, REQUEST_LIFE},
    pure::lock_state::ENDED_LIFE,
};

#[test]
fn a_release_that_overtakes_its_claim_leaves_a_tombstone() {
    let (store, clock) = store();
    let one = Client::of(&store);
    assert!(!one.release(release(1, None)));
    assert!(matches!(one.create(1), Answer::Gone));
    let second = one.hold(2);
    one.release(release(2, second.token));
    assert!(matches!(one.create(2), Answer::Gone), "a copy of the claim that arrives late");
    assert_eq!(store.leftovers().len(), 1, "{:?}", store.leftovers());
    clock.advance(REQUEST_LIFE);
    assert_eq!(store.leftovers(), [""; 0]);
}

#[test]
fn a_lost_server_loses_every_lock_but_no_token() {
    let (store, _) = store();
    let (one, two) = (Client::of(&store), Client::of(&store));
    let first = one.hold(1);
    two.wait(2);
    two.wait(3);
    store.forget_all();
    assert!(matches!(one.notifications()[..], [Notification::AskAll]));
    assert!(matches!(two.notifications()[..], [Notification::AskAll]), "once for both claims");
    assert!(matches!(one.renew(1, first.token), Renewed::Lost(Loss::Gone)));
    assert!(matches!(two.ask(2), Answer::Gone));
    assert!(two.hold(4).token > first.token);
}

#[test]
fn another_kind_of_lock_is_misconfigured() {
    let (store, _) = store();
    let one = Client::of(&store);
    one.hold(1);
    let refused = |mode| one.call(&Claim { mode, ..claim(2, "n") }, How::Create).unwrap_err();
    let error = refused(Mode::Permits { count: 1, limit: 3 });
    assert_eq!(error.fault, Fault::Misconfigured);
    assert!(error.message.contains("semaphore of 3") && error.message.contains("mutex"), "{}", error.message);
    assert_eq!(refused(Mode::Permits { count: 4, limit: 3 }).fault, Fault::Internal);
}

#[test]
fn names_are_independent() {
    let (store, _) = store();
    let one = Client::of(&store);
    for (number, name_text) in
        ["a", "a/b", "a/", "..", "/", "A", "a b", "ä", "a}b{c", "%61"].into_iter().enumerate()
    {
        held(one.call(&claim(number as u8 + 1, name_text), How::Create).unwrap());
    }
}

#[test]
fn holds_of_dead_processes_do_not_pile_up() {
    let (store, clock) = store();
    for round in 0..20_u8 {
        let one = Client::of(&store);
        for number in 0..500_u32 {
            let mut claim = claim(round, &format!("{round}/{number}"));
            claim.id.0[..4].copy_from_slice(&number.to_be_bytes());
            held(one.call(&claim, How::Create).unwrap());
        }
        drop(one);
        clock.advance(TTL + ENDED_LIFE);
    }
    // Nothing inspected or claimed these names again: only the creation of other names has swept them away. A shard is
    // swept at 64 names, and every round adds 31 names to it on average.
    assert!(store.names() < 2_000, "{} of 10,000 names are left", store.names());
}

#[test]
fn at_rest_nothing_is_left() {
    let (store, clock) = store();
    let (one, two) = (Client::of(&store), Client::of(&store));
    let first = one.hold(1);
    two.wait(2);
    assert_eq!(store.leftovers().len(), 1);
    one.release(release(1, first.token));
    two.release(release(2, None));
    assert_eq!(store.names(), 0, "not even an empty queue");
    clock.advance(REQUEST_LIFE + Duration::from_nanos(1));
    assert_eq!(store.leftovers(), [""; 0]);
}

#[test]
fn a_store_is_found_by_its_name() {
    let env = Env::system();
    let one = MemoryStore::named("memory-faults-one", &env);
    assert!(Arc::ptr_eq(&one, &MemoryStore::named("memory-faults-one", &env)));
    let two = MemoryStore::named("memory-faults-two", &env);
    let (here, there) = (Client::of(&one), Client::of(&two));
    let (first, second) = (here.hold(1), there.hold(2));
    assert_ne!(first.token.lineage, second.token.lineage, "their tokens are not comparable");
    here.release(release(1, None));
    drop((here, one));
    let again = Client::of(&MemoryStore::named("memory-faults-one", &env));
    assert!(again.hold(3).token > first.token, "the store outlives its clients");
    again.release(release(3, None));
}
