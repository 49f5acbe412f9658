//! Releases, breaking, and what the next holder is told.

use std::time::Duration;

use crate::{
    Answer, Loss,
    Mode::{Exclusive, Permits, Shared},
    Previous, Release,
    queue::{BrokenHold, ENDED_LIFE, bed::*},
};

#[test]
fn a_release_takes_only_its_own_hold() {
    let mut bed = Bed::new();
    let grant = bed.hold(1, Exclusive);
    assert!(!bed.release(2, grant.token), "another claim, same token");
    bed.renew(1, grant.token).unwrap();
    assert_eq!(bed.renew(1, token(99)), Err(Loss::Gone));
    assert_eq!(bed.renew(2, grant.token), Err(Loss::Gone));
    assert!(bed.release(1, grant.token));
    assert!(!bed.release(1, grant.token), "once");
}

#[test]
fn a_release_of_a_hold_that_lapsed_ends_whatever_its_claim_has() {
    for speaks in [false, true] {
        let mut bed = Bed::new();
        let first = bed.hold(1, Exclusive);
        bed.wait(2, Exclusive);
        bed.end(&Release { ended: Previous::Abandoned, ..release(1, Some(first.token)) });
        let pushed = bed.pushed[0].grant.clone();
        bed.pass(2_000);
        if speaks {
            assert!(held(bed.ask(2)).token > pushed.token, "granted again");
        }
        assert!(!bed.release(2, pushed.token), "that one was not there");
        assert!(matches!(bed.create(2, Exclusive), Answer::Gone), "and nothing else of the claim is");
        assert_eq!(bed.hold(3, Exclusive).previous, Previous::Lapsed, "nothing was done under the second");
    }
}

#[test]
fn no_request_of_a_released_claim_creates_anything() {
    let mut bed = Bed::new();
    assert!(!bed.release(1, None), "released before its claim arrived");
    assert!(matches!(bed.create(1, Exclusive), Answer::Gone));
    let grant = bed.hold(2, Exclusive);
    bed.wait(3, Exclusive);
    assert!(bed.release(3, None), "a place in line was there");
    assert!(matches!(bed.create(3, Exclusive), Answer::Gone));
    assert!(bed.release(2, grant.token) && bed.told().is_empty());
    assert!(matches!(bed.create(2, Exclusive), Answer::Gone), "a doubled claim, late");
    assert!(bed.queue.is_idle(bed.now));
    bed.pass(999);
    assert!(matches!(bed.create(2, Exclusive), Answer::Gone));
    bed.pass(1);
    bed.tombstones.forget(bed.now);
    assert!(bed.tombstones.is_empty(), "and nothing is left of them");
}

#[test]
fn no_request_of_a_lapsed_claim_creates_anything() {
    let mut bed = Bed::new();
    bed.hold(1, Exclusive);
    bed.pass(30_000);
    assert!(matches!(bed.create(1, Exclusive), Answer::Gone));
}

#[test]
fn the_next_holder_is_told_how_the_last_hold_ended() {
    for ended in [Previous::Clean, Previous::Abandoned] {
        let mut bed = Bed::new();
        let grant = bed.hold(1, Exclusive);
        assert_eq!(grant.previous, Previous::Clean, "there was none");
        bed.end(&Release { ended, ..release(1, Some(grant.token)) });
        let next = bed.hold(2, Exclusive);
        assert_eq!(next.previous, ended);
        assert_eq!(bed.hold(2, Exclusive).previous, ended, "asked again");
        bed.release(2, next.token);
        assert_eq!(bed.hold(3, Exclusive).previous, Previous::Clean);
    }
}

#[test]
fn of_holds_side_by_side_the_worst_end_counts() {
    let one = Permits { count: 1, limit: 3 };
    let mut bed = Bed::new();
    let (first, second) = (bed.hold(1, one), bed.hold(2, one));
    bed.end(&Release { ended: Previous::Abandoned, ..release(1, Some(first.token)) });
    bed.release(2, second.token);
    let third = bed.hold(3, one);
    assert_eq!(third.previous, Previous::Abandoned);
    bed.release(3, third.token);
    assert_eq!(bed.hold(4, one).previous, Previous::Clean, "the third came after");
}

#[test]
fn a_claim_that_never_knew_that_it_held_leaves_the_story_as_it_was() {
    let mut bed = Bed::new();
    bed.hold(1, Exclusive);
    bed.pass(30_000);
    bed.hold(2, Exclusive);
    assert!(bed.release(2, None), "its answer was lost: nothing was done under it");
    assert_eq!(bed.hold(3, Exclusive).previous, Previous::Lapsed);
}

#[test]
fn a_bad_end_is_remembered_for_a_time_and_then_nothing_is_left() {
    let mut bed = Bed::new();
    bed.hold(1, Exclusive);
    bed.pass(30_000);
    bed.settle();
    assert!(!bed.queue.is_idle(bed.now) && !bed.queue.is_used());
    assert!(bed.queue.is_idle(bed.now.after(ENDED_LIFE)));
}

#[test]
fn a_broken_hold_keeps_its_lease_until_its_holder_lets_go() {
    let mut bed = Bed::new();
    let grant = bed.hold(1, Exclusive);
    bed.wait(2, Exclusive);
    assert_eq!(bed.break_hold(grant.token.number, false), Some(BrokenHold { id: id(1), client: Some(1) }));
    assert!(bed.told().is_empty(), "the holder may still work");
    assert_eq!(bed.renew(1, grant.token), Err(Loss::Broken));
    assert!(matches!(bed.create(1, Exclusive), Answer::Gone));
    assert_eq!(ahead(bed.ask(2)), 0);
    let keep = Some(Duration::from_secs(5));
    assert!(bed.end(&Release { keep, ..release(1, Some(grant.token)) }));
    assert_eq!(bed.told(), [2], "let go, and not kept");
    assert_eq!(bed.pushed[0].grant.previous, Previous::Broken);
}

#[test]
fn a_broken_hold_ends_with_its_lease_at_the_latest() {
    let mut bed = Bed::new();
    let grant = bed.hold(1, Exclusive);
    bed.break_hold(grant.token.number, false).unwrap();
    bed.pass(20_000);
    assert_eq!(bed.renew(1, grant.token), Err(Loss::Broken));
    assert_eq!(bed.wait(2, Exclusive), 0);
    bed.pass(10_000);
    assert_eq!(held(bed.ask(2)).previous, Previous::Broken);
}

#[test]
fn breaking_by_force_waits_for_nobody() {
    let mut bed = Bed::new();
    let grant = bed.hold(1, Exclusive);
    bed.wait(2, Exclusive);
    bed.break_hold(grant.token.number, false).unwrap();
    bed.break_hold(grant.token.number, true).unwrap();
    assert_eq!(bed.told(), [2]);
    assert!(bed.pushed[0].grant.token > grant.token, "the fence protects");
    assert_eq!(bed.renew(1, grant.token), Err(Loss::Gone));
    assert!(!bed.release(1, grant.token));
    assert!(matches!(bed.create(1, Exclusive), Answer::Gone));
}

#[test]
fn any_token_of_the_block_names_the_hold_to_break() {
    let mut bed = Bed::new();
    let mut claim = claim(1, Shared);
    claim.tokens = 3;
    bed.call(&claim, crate::How::Create).unwrap();
    bed.hold(2, Shared);
    for (number, who) in [(0, None), (1, Some(1)), (3, Some(1)), (4, Some(2)), (5, None)] {
        assert_eq!(bed.break_hold(number, false).map(|broken| broken.id), who.map(id), "{number}");
    }
}

#[test]
fn a_kept_name_can_be_broken_and_nobody_is_told() {
    let mut bed = Bed::new();
    let grant = bed.hold(1, Exclusive);
    bed.end(&Release { keep: Some(TTL), ..release(1, Some(grant.token)) });
    bed.wait(2, Exclusive);
    assert_eq!(bed.break_hold(grant.token.number, false), Some(BrokenHold { id: id(1), client: None }));
    assert_eq!(bed.told(), [2]);
    assert_eq!(bed.pushed[0].grant.previous, Previous::Clean);
}
