//! Tests of grants and their tokens.

use std::time::Duration;

use crate::{
    Answer, How,
    Mode::{Exclusive, Permits, Shared},
    pure::lock_state::{MAX_HOLDERS, MAX_TOKENS, MAX_WAITERS, Refusal, entry::Waiter, fixture::*},
};

#[test]
fn readers_at_the_head_are_granted_together_up_to_a_waiting_writer() {
    let mut fixture = Fixture::new();
    let first = fixture.hold(1, Exclusive);
    for (reader, ahead) in [(2, 0), (3, 1)] {
        assert_eq!(fixture.wait(reader, Shared), ahead);
    }
    assert_eq!(fixture.wait(4, Exclusive), 2);
    assert_eq!(fixture.wait(5, Shared), 3);

    assert!(fixture.release(1, first.token));
    assert_eq!(fixture.notified(), [2, 3]);
    assert_eq!(fixture.wait(6, Shared), 2, "the writer is ahead of it");
    assert!(fixture.notified().is_empty());

    assert!(fixture.release(2, None) && fixture.notified().is_empty());
    assert!(fixture.release(3, None));
    assert_eq!(fixture.notified(), [4], "alone");
    assert!(fixture.release(4, None));
    assert_eq!(fixture.notified(), [5, 6]);
}

#[test]
fn a_small_permit_claim_does_not_overtake_a_large_one() {
    let permits = |count| Permits { count, limit: 3 };
    let mut fixture = Fixture::new();
    let large = fixture.hold(1, permits(2));
    assert_eq!(fixture.wait(2, permits(2)), 0);
    assert_eq!(fixture.wait(3, permits(1)), 1, "it would fit, but is not first");
    assert!(fixture.release(1, large.token));
    assert_eq!(fixture.notified(), [2, 3]);
    assert_eq!(fixture.view().mode, Some(permits(3)));
}

#[test]
fn an_impossible_count_is_refused() {
    let mut fixture = Fixture::new();
    for (count, limit) in [(0, 3), (4, 3), (1, 0), (0, 0)] {
        let mode = Permits { count, limit };
        assert_eq!(fixture.call(&claim(1, mode), How::Create).unwrap_err(), Refusal::Impossible(mode));
    }
    assert!(fixture.lock.is_idle(fixture.now));
}

#[test]
fn one_name_is_one_kind_of_lock_with_one_limit() {
    let mut fixture = Fixture::new();
    let one_of_three = Permits { count: 1, limit: 3 };
    fixture.hold(1, one_of_three);
    for asked in [Exclusive, Shared, Permits { count: 1, limit: 4 }] {
        let refusal = fixture.call(&claim(2, asked), How::Create).unwrap_err();
        assert_eq!(refusal, Refusal::Clash { asked, found: one_of_three });
        assert!(refusal.to_string().contains("a semaphore of 3"), "{refusal}");
    }
    assert!(fixture.release(1, None));
    fixture.hold(2, Shared);
    fixture.hold(3, Shared);
}

#[test]
fn a_doubled_claim_gets_the_same_grant_and_the_full_time() {
    let mut fixture = Fixture::new();
    let first = fixture.hold(1, Exclusive);
    fixture.advance(29_000);
    let again = fixture.hold(1, Exclusive);
    assert_eq!((again.token, again.tokens, again.ttl), (first.token, 1, Some(TTL)));
    fixture.advance(29_000);
    assert_eq!(held(fixture.ask(1)).token, first.token);
    assert_eq!(fixture.view().holders.len(), 1);
}

#[test]
fn a_late_request_for_a_shorter_ttl_shortens_nothing() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    let short_ttl = Duration::from_secs(1);
    fixture.step(|lock, step| lock.renew(id(1), grant.token, short_ttl, step)).unwrap();
    assert_eq!(fixture.view().holders[0].remaining, Some(TTL));
}

#[test]
fn blocks_of_tokens_grow_and_are_bounded() {
    let mut fixture = Fixture::new();
    let mut blocks = Vec::new();
    for (number, tokens) in [(1, 0), (2, 10), (3, u32::MAX), (4, 1)] {
        let mut claim = claim(number, Shared);
        claim.tokens = tokens;
        let grant = held(fixture.call(&claim, How::Create).unwrap());
        blocks.push((grant.token.number, grant.tokens));
    }
    let next_token = 12 + u64::from(MAX_TOKENS);
    assert_eq!(blocks, [(1, 1), (2, 10), (12, MAX_TOKENS), (next_token, 1)]);
}

#[test]
fn asking_creates_nothing() {
    let mut fixture = Fixture::new();
    assert!(matches!(fixture.ask(1), Answer::Gone));
    assert!(fixture.lock.is_idle(fixture.now));
    fixture.hold(2, Exclusive);
    assert!(matches!(fixture.ask(1), Answer::Gone));
    assert_eq!(fixture.view().waiters.len(), 0);
}

#[test]
fn a_claim_that_may_not_queue_leaves_nothing() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    let mut claim_of_a_try = claim(2, Exclusive);
    claim_of_a_try.may_queue = false;
    let Ok(Answer::Taken(hint)) = fixture.call(&claim_of_a_try, How::Create) else { panic!() };
    assert_eq!((hint.ask_in, hint.ahead), (Some(TTL), Some(0)));
    assert_eq!(fixture.view().waiters.len(), 0);
    assert!(fixture.release(1, grant.token) && fixture.notified().is_empty());
    held(fixture.call(&claim_of_a_try, How::Create).unwrap());
}

#[test]
fn the_queue_is_bounded() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    let mut queued_claim = claim(2, Exclusive);
    // Not through `claim`, which first searches the whole queue for each claim.
    for number in 1..MAX_WAITERS as u64 {
        queued_claim.id.0[..8].copy_from_slice(&number.to_be_bytes());
        fixture.lock.enqueue(Waiter::new(&queued_claim, &2, fixture.now));
    }
    assert_eq!(fixture.wait(3, Exclusive), MAX_WAITERS as u32 - 1);
    assert_eq!(fixture.call(&claim(4, Exclusive), How::Create).unwrap_err(), Refusal::QueueFull);
    assert_eq!(fixture.wait(3, Exclusive), MAX_WAITERS as u32 - 1, "a queued claim stays queued");
    fixture.release(3, None);
    fixture.wait(4, Exclusive);
}

#[test]
fn the_holders_are_bounded() {
    let mut fixture = Fixture::new();
    let mut reader_claim = claim(2, Shared);
    for number in 0..MAX_HOLDERS as u64 {
        reader_claim.id.0[..8].copy_from_slice(&number.to_be_bytes());
        let waiter = Waiter::new(&reader_claim, &2, fixture.now);
        let pushed = false;
        fixture.step(|lock, step| lock.grant_to(waiter, TTL, pushed, step));
    }
    assert_eq!(fixture.wait(3, Shared), 0);
    fixture.break_hold(1, true).unwrap();
    assert_eq!(fixture.notified(), [3]);
}
