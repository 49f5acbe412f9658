//! Tests of releases, breaking, and the `previous` of the next grant.

use std::time::Duration;

use crate::{
    Answer, Loss,
    Mode::{Exclusive, Permits, Shared},
    Previous, Release,
    pure::lock_state::{BrokenHold, ENDED_LIFE, fixture::*},
};

#[test]
fn a_release_takes_only_its_own_hold() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    assert!(!fixture.release(2, grant.token), "another claim, same token");
    fixture.renew(1, grant.token).unwrap();
    assert_eq!(fixture.renew(1, token(99)), Err(Loss::Gone));
    assert_eq!(fixture.renew(2, grant.token), Err(Loss::Gone));
    assert!(fixture.release(1, grant.token));
    assert!(!fixture.release(1, grant.token), "once");
}

#[test]
fn a_release_of_a_lapsed_hold_ends_the_claim() {
    for asks_again in [false, true] {
        let mut fixture = Fixture::new();
        let first = fixture.hold(1, Exclusive);
        fixture.wait(2, Exclusive);
        fixture.send_release(&Release { ended: Previous::Abandoned, ..release(1, Some(first.token)) });
        let pushed = fixture.pushed[0].grant.clone();
        fixture.advance(2_000);
        if asks_again {
            assert!(held(fixture.ask(2)).token > pushed.token, "granted again");
        }
        assert!(!fixture.release(2, pushed.token), "the hold with that token was not there");
        assert!(matches!(fixture.create(2, Exclusive), Answer::Gone), "and nothing else of the claim is");
        assert_eq!(
            fixture.hold(3, Exclusive).previous,
            Previous::Lapsed,
            "nothing was done under the second"
        );
    }
}

#[test]
fn no_request_of_a_released_claim_creates_anything() {
    let mut fixture = Fixture::new();
    assert!(!fixture.release(1, None), "released before its claim arrived");
    assert!(matches!(fixture.create(1, Exclusive), Answer::Gone));
    let grant = fixture.hold(2, Exclusive);
    fixture.wait(3, Exclusive);
    assert!(fixture.release(3, None), "a queue entry was there");
    assert!(matches!(fixture.create(3, Exclusive), Answer::Gone));
    assert!(fixture.release(2, grant.token) && fixture.notified().is_empty());
    assert!(matches!(fixture.create(2, Exclusive), Answer::Gone), "a doubled claim, late");
    assert!(fixture.lock.is_idle(fixture.now));
    fixture.advance(999);
    assert!(matches!(fixture.create(2, Exclusive), Answer::Gone));
    fixture.advance(1);
    fixture.tombstones.forget_expired(fixture.now);
    assert!(fixture.tombstones.is_empty(), "and nothing is left of them");
}

#[test]
fn no_request_of_a_lapsed_claim_creates_anything() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    fixture.advance(30_000);
    assert!(matches!(fixture.create(1, Exclusive), Answer::Gone));
}

#[test]
fn the_next_holder_gets_the_end_of_the_last_hold() {
    for ended in [Previous::Clean, Previous::Abandoned] {
        let mut fixture = Fixture::new();
        let grant = fixture.hold(1, Exclusive);
        assert_eq!(grant.previous, Previous::Clean, "there was none");
        fixture.send_release(&Release { ended, ..release(1, Some(grant.token)) });
        let next = fixture.hold(2, Exclusive);
        assert_eq!(next.previous, ended);
        assert_eq!(fixture.hold(2, Exclusive).previous, ended, "asked again");
        fixture.release(2, next.token);
        assert_eq!(fixture.hold(3, Exclusive).previous, Previous::Clean);
    }
}

#[test]
fn of_concurrent_holds_the_worst_end_counts() {
    let one_permit = Permits { count: 1, limit: 3 };
    let mut fixture = Fixture::new();
    let (first, second) = (fixture.hold(1, one_permit), fixture.hold(2, one_permit));
    fixture.send_release(&Release { ended: Previous::Abandoned, ..release(1, Some(first.token)) });
    fixture.release(2, second.token);
    let third = fixture.hold(3, one_permit);
    assert_eq!(third.previous, Previous::Abandoned);
    fixture.release(3, third.token);
    assert_eq!(fixture.hold(4, one_permit).previous, Previous::Clean, "the third came after");
}

#[test]
fn a_never_confirmed_hold_does_not_change_the_reported_end() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    fixture.advance(30_000);
    fixture.hold(2, Exclusive);
    assert!(fixture.release(2, None), "its answer was lost: nothing was done under it");
    assert_eq!(fixture.hold(3, Exclusive).previous, Previous::Lapsed);
}

#[test]
fn a_bad_end_is_remembered_for_a_time_and_then_nothing_is_left() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    fixture.advance(30_000);
    fixture.settle();
    assert!(!fixture.lock.is_idle(fixture.now) && !fixture.lock.is_used());
    assert!(fixture.lock.is_idle(fixture.now.after(ENDED_LIFE)));
}

#[test]
fn a_broken_hold_lasts_until_its_holder_releases() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    fixture.wait(2, Exclusive);
    assert_eq!(
        fixture.break_hold(grant.token.number, false),
        Some(BrokenHold { id: id(1), client: Some(1) })
    );
    assert!(fixture.notified().is_empty(), "the holder may still work");
    assert_eq!(fixture.renew(1, grant.token), Err(Loss::Broken));
    assert!(matches!(fixture.create(1, Exclusive), Answer::Gone));
    assert_eq!(ahead(fixture.ask(2)), 0);
    let min_hold = Some(Duration::from_secs(5));
    assert!(fixture.send_release(&Release { min_hold, ..release(1, Some(grant.token)) }));
    assert_eq!(fixture.notified(), [2], "released, without a minimum hold");
    assert_eq!(fixture.pushed[0].grant.previous, Previous::Broken);
}

#[test]
fn a_broken_hold_ends_with_its_lease_at_the_latest() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    fixture.break_hold(grant.token.number, false).unwrap();
    fixture.advance(20_000);
    assert_eq!(fixture.renew(1, grant.token), Err(Loss::Broken));
    assert_eq!(fixture.wait(2, Exclusive), 0);
    fixture.advance(10_000);
    assert_eq!(held(fixture.ask(2)).previous, Previous::Broken);
}

#[test]
fn a_forced_break_does_not_wait() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    fixture.wait(2, Exclusive);
    fixture.break_hold(grant.token.number, false).unwrap();
    fixture.break_hold(grant.token.number, true).unwrap();
    assert_eq!(fixture.notified(), [2]);
    assert!(fixture.pushed[0].grant.token > grant.token, "the fence protects");
    assert_eq!(fixture.renew(1, grant.token), Err(Loss::Gone));
    assert!(!fixture.release(1, grant.token));
    assert!(matches!(fixture.create(1, Exclusive), Answer::Gone));
}

#[test]
fn any_token_of_the_block_names_the_hold_to_break() {
    let mut fixture = Fixture::new();
    let mut claim = claim(1, Shared);
    claim.tokens = 3;
    fixture.call(&claim, crate::How::Create).unwrap();
    fixture.hold(2, Shared);
    for (token_number, broken) in [(0, None), (1, Some(1)), (3, Some(1)), (4, Some(2)), (5, None)] {
        assert_eq!(
            fixture.break_hold(token_number, false).map(|hold| hold.id),
            broken.map(id),
            "{token_number}"
        );
    }
}

#[test]
fn a_minimum_hold_can_be_broken_without_a_notification() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    fixture.send_release(&Release { min_hold: Some(TTL), ..release(1, Some(grant.token)) });
    fixture.wait(2, Exclusive);
    assert_eq!(fixture.break_hold(grant.token.number, false), Some(BrokenHold { id: id(1), client: None }));
    assert_eq!(fixture.notified(), [2]);
    assert_eq!(fixture.pushed[0].grant.previous, Previous::Clean);
}
