//! Semaphores: never more than the limit, nothing leaks.

use super::{helper::Helper, *};

const fn permits(count: u32, limit: u32) -> Mode {
    Mode::Permits { count, limit }
}

#[test]
fn permits_never_exceed_the_limit() {
    let scratch = Scratch::new();
    let engines = [scratch.engine(), scratch.engine()];
    let holders: Vec<Claim> = (0..3).map(|_| claim("quota", permits(1, 3))).collect();
    let mut last = 0;
    for (index, holder) in holders.iter().enumerate() {
        let token = held(create(&engines[index % 2], holder)).token.number;
        assert!(token > last);
        last = token;
    }
    taken(create(&engines[1], &try_claim("quota", permits(1, 3))));
    release_claim(&engines[1], &holders[1]);
    held(create(&engines[0], &claim("quota", permits(1, 3))));
    taken(create(&engines[1], &try_claim("quota", permits(1, 3))));
}

#[test]
fn small_claims_do_not_starve_a_large_one() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let (two_permits, one_permit) = (claim("quota", permits(2, 4)), claim("quota", permits(1, 4)));
    held(create(&engine, &two_permits));
    held(create(&engine, &one_permit));
    let (big, small) = (claim("quota", permits(3, 4)), claim("quota", permits(1, 4)));
    waiting(create(&engine, &big));
    waiting(create(&engine, &small));
    taken(create(&engine, &try_claim("quota", permits(1, 4))));
    release_claim(&engine, &one_permit);
    waiting(ask(&engine, &big));
    release_claim(&engine, &two_permits);
    held(ask(&engine, &big));
    held(ask(&engine, &small));
}

#[test]
fn the_permits_of_killed_holders_are_free_again() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let mut helpers = [Helper::start(&scratch.dir()), Helper::start(&scratch.dir())];
    for helper in &mut helpers {
        assert!(helper.request("claim quota 1/2").starts_with("held"));
    }
    let waiter = claim("quota", PERMIT);
    waiting(create(&engine, &waiter));
    helpers[0].kill();
    assert_eq!(held(ask(&engine, &waiter)).previous, Previous::Lapsed);
    taken(create(&engine, &try_claim("quota", PERMIT)));
    helpers[1].kill();
    held(create(&engine, &try_claim("quota", PERMIT)));
}

#[test]
fn another_kind_of_lock_is_refused_while_the_first_is_in_use() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let uses = [Mode::Exclusive, Mode::Shared, permits(1, 2), permits(1, 3)];
    for first in uses {
        let holder = claim("job", first);
        held(create(&engine, &holder));
        for second in uses.into_iter().filter(|second| !second.same_kind(first)) {
            for may_queue in [false, true] {
                let error = create(&engine, &Claim { may_queue, ..claim("job", second) }).unwrap_err();
                assert_eq!(error.fault, crate::Fault::Misconfigured, "{first} and {second}");
                let word =
                    |mode: Mode| mode.limit().map_or("lock".into(), |limit| format!("semaphore of {limit}"));
                assert!(
                    error.message.contains(&word(first)) && error.message.contains(&word(second)),
                    "{error}"
                );
            }
        }
        release_claim(&engine, &holder);
    }
}

#[test]
fn a_waiter_of_another_kind_refuses_and_a_dead_one_does_not() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let mut helper = Helper::start(&scratch.dir());
    assert!(helper.request("claim job exclusive").starts_with("held"));
    assert_eq!(create(&engine, &claim("job", PERMIT)).unwrap_err().fault, crate::Fault::Misconfigured);
    helper.kill();
    let permit = claim("job", PERMIT);
    assert_eq!(held(create(&engine, &permit)).previous, Previous::Lapsed);
    release_claim(&engine, &permit);
    assert_eq!(held(create(&engine, &claim("job", Mode::Exclusive))).previous, Previous::Clean);
}
