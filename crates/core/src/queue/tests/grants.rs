//! Who is granted, with which tokens.

use std::time::Duration;

use crate::{
    Answer, How,
    Mode::{Exclusive, Permits, Shared},
    queue::{MAX_HOLDERS, MAX_TOKENS, MAX_WAITERS, Refusal, bed::*, entry::Waiter},
};

#[test]
fn readers_at_the_head_are_granted_together_and_a_waiting_writer_stops_later_ones() {
    let mut bed = Bed::new();
    let first = bed.hold(1, Exclusive);
    for (reader, before) in [(2, 0), (3, 1)] {
        assert_eq!(bed.wait(reader, Shared), before);
    }
    assert_eq!(bed.wait(4, Exclusive), 2);
    assert_eq!(bed.wait(5, Shared), 3);

    assert!(bed.release(1, first.token));
    assert_eq!(bed.told(), [2, 3]);
    assert_eq!(bed.wait(6, Shared), 2, "the writer stands before it");
    assert!(bed.told().is_empty());

    assert!(bed.release(2, None) && bed.told().is_empty());
    assert!(bed.release(3, None));
    assert_eq!(bed.told(), [4], "alone");
    assert!(bed.release(4, None));
    assert_eq!(bed.told(), [5, 6]);
}

#[test]
fn a_small_permit_claim_does_not_overtake_a_large_one() {
    let permits = |count| Permits { count, limit: 3 };
    let mut bed = Bed::new();
    let two = bed.hold(1, permits(2));
    assert_eq!(bed.wait(2, permits(2)), 0);
    assert_eq!(bed.wait(3, permits(1)), 1, "it would fit, but is not first");
    assert!(bed.release(1, two.token));
    assert_eq!(bed.told(), [2, 3]);
    assert_eq!(bed.view().mode, Some(permits(3)));
}

#[test]
fn what_can_never_be_granted_is_refused() {
    let mut bed = Bed::new();
    for (count, limit) in [(0, 3), (4, 3), (1, 0), (0, 0)] {
        let mode = Permits { count, limit };
        assert_eq!(bed.call(&claim(1, mode), How::Create).unwrap_err(), Refusal::Impossible(mode));
    }
    assert!(bed.queue.is_idle(bed.now));
}

#[test]
fn one_name_is_one_kind_of_lock_with_one_limit() {
    let mut bed = Bed::new();
    let three = Permits { count: 1, limit: 3 };
    bed.hold(1, three);
    for asked in [Exclusive, Shared, Permits { count: 1, limit: 4 }] {
        let refusal = bed.call(&claim(2, asked), How::Create).unwrap_err();
        assert_eq!(refusal, Refusal::Clash { asked, found: three });
        assert!(refusal.to_string().contains("a semaphore of 3"), "{refusal}");
    }
    assert!(bed.release(1, None));
    bed.hold(2, Shared);
    bed.hold(3, Shared);
}

#[test]
fn a_doubled_claim_gets_the_same_grant_and_the_full_time() {
    let mut bed = Bed::new();
    let first = bed.hold(1, Exclusive);
    bed.pass(29_000);
    let again = bed.hold(1, Exclusive);
    assert_eq!((again.token, again.tokens, again.ttl), (first.token, 1, Some(TTL)));
    bed.pass(29_000);
    assert_eq!(held(bed.ask(1)).token, first.token);
    assert_eq!(bed.view().holders.len(), 1);
}

#[test]
fn a_late_request_for_less_time_takes_none_away() {
    let mut bed = Bed::new();
    let grant = bed.hold(1, Exclusive);
    let short = Duration::from_secs(1);
    bed.step(|queue, step| queue.renew(id(1), grant.token, short, step)).unwrap();
    assert_eq!(bed.view().holders[0].remaining, Some(TTL));
}

#[test]
fn blocks_of_tokens_grow_and_are_bounded() {
    let mut bed = Bed::new();
    let mut numbers = Vec::new();
    for (number, tokens) in [(1, 0), (2, 10), (3, u32::MAX), (4, 1)] {
        let mut claim = claim(number, Shared);
        claim.tokens = tokens;
        let grant = held(bed.call(&claim, How::Create).unwrap());
        numbers.push((grant.token.number, grant.tokens));
    }
    let after = 12 + u64::from(MAX_TOKENS);
    assert_eq!(numbers, [(1, 1), (2, 10), (12, MAX_TOKENS), (after, 1)]);
}

#[test]
fn asking_creates_nothing() {
    let mut bed = Bed::new();
    assert!(matches!(bed.ask(1), Answer::Gone));
    assert!(bed.queue.is_idle(bed.now));
    bed.hold(2, Exclusive);
    assert!(matches!(bed.ask(1), Answer::Gone));
    assert_eq!(bed.view().waiters.len(), 0);
}

#[test]
fn without_a_place_in_line_nothing_remains() {
    let mut bed = Bed::new();
    let grant = bed.hold(1, Exclusive);
    let mut hasty = claim(2, Exclusive);
    hasty.may_queue = false;
    let Ok(Answer::Taken(hint)) = bed.call(&hasty, How::Create) else { panic!() };
    assert_eq!((hint.ask_in, hint.ahead), (Some(TTL), Some(0)));
    assert_eq!(bed.view().waiters.len(), 0);
    assert!(bed.release(1, grant.token) && bed.told().is_empty());
    held(bed.call(&hasty, How::Create).unwrap());
}

#[test]
fn the_line_is_bounded() {
    let mut bed = Bed::new();
    bed.hold(1, Exclusive);
    let mut waiting = claim(2, Exclusive);
    // Not by claims: each looks for itself in the line first.
    for number in 1..MAX_WAITERS as u64 {
        waiting.id.0[..8].copy_from_slice(&number.to_be_bytes());
        bed.queue.stand_in_line(Waiter::new(&waiting, &2, bed.now));
    }
    assert_eq!(bed.wait(3, Exclusive), MAX_WAITERS as u32 - 1);
    assert_eq!(bed.call(&claim(4, Exclusive), How::Create).unwrap_err(), Refusal::LineFull);
    assert_eq!(bed.wait(3, Exclusive), MAX_WAITERS as u32 - 1, "who stands there stays");
    bed.release(3, None);
    bed.wait(4, Exclusive);
}

#[test]
fn the_holders_are_bounded() {
    let mut bed = Bed::new();
    let mut reader = claim(2, Shared);
    for number in 0..MAX_HOLDERS as u64 {
        reader.id.0[..8].copy_from_slice(&number.to_be_bytes());
        let waiter = Waiter::new(&reader, &2, bed.now);
        bed.step(|queue, step| queue.seat(waiter, TTL, false, step));
    }
    assert_eq!(bed.wait(3, Shared), 0);
    bed.break_hold(1, true).unwrap();
    assert_eq!(bed.told(), [3]);
}
