//! Tests of the queue: leases of queue entries, pushed grants that no client takes, waiting for time.

use std::time::Duration;

use crate::{
    Answer, How,
    Mode::{Exclusive, Shared},
    Previous,
    pure::lock_state::{MIN_ENTRY_LIFE, MIN_HOLD_OWNER, WATCHERS, entry_life, fixture::*},
};

#[test]
fn a_pushed_grant_lasts_the_claim_time_until_its_claim_asks() {
    let mut fixture = Fixture::new();
    let first = fixture.hold(1, Exclusive);
    fixture.wait(2, Exclusive);
    fixture.release(1, first.token);
    let pushed = fixture.pushed[0].grant.clone();
    assert_eq!(pushed.ttl, Some(CLAIM_TIME));
    assert_eq!(fixture.view().holders[0].remaining, Some(CLAIM_TIME));
    fixture.renew(2, pushed.token).unwrap();
    assert_eq!(fixture.view().holders[0].remaining, Some(TTL));

    fixture.wait(3, Exclusive);
    fixture.release(2, pushed.token);
    let confirmed = held(fixture.ask(3));
    assert_eq!((confirmed.ttl, confirmed.token), (Some(TTL), holder_token(&fixture)));
}

/// The token of the only holder.
fn holder_token(fixture: &Fixture) -> crate::Token {
    token(fixture.view().holders[0].token.unwrap())
}

#[test]
fn a_claim_time_is_at_most_the_ttl() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    let mut short_claim = claim(2, Exclusive);
    short_claim.ttl = Duration::from_millis(500);
    fixture.call(&short_claim, How::Create).unwrap();
    fixture.release(1, None);
    assert_eq!(fixture.pushed[0].grant.ttl, Some(short_claim.ttl));
}

#[test]
fn a_waiter_that_misses_its_grant_is_requeued_when_it_asks() {
    let mut fixture = Fixture::new();
    let first = fixture.hold(1, Exclusive);
    for number in [2, 3, 4] {
        fixture.wait(number, Exclusive);
    }
    fixture.release(1, first.token);
    assert_eq!(fixture.notified(), [2]);
    fixture.advance(2_000);
    fixture.settle();
    assert_eq!(fixture.notified(), [3], "the first is silent");
    assert_eq!(fixture.pushed[0].grant.previous, Previous::Lapsed, "its client may have been notified");
    assert_eq!(fixture.view().waiters.len(), 2, "and it has not vanished");

    assert_eq!(ahead(fixture.ask(2)), 1, "behind the fourth");
    assert!(fixture.release(3, None));
    assert_eq!(fixture.notified(), [4]);
    assert!(fixture.release(4, None));
    assert_eq!(fixture.notified(), [2]);
}

#[test]
fn a_waiter_that_just_missed_its_grant_gets_the_free_name() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    fixture.wait(2, Exclusive);
    fixture.release(1, None);
    let missed_token = fixture.pushed[0].grant.token;
    fixture.advance(2_000);
    let grant = held(fixture.ask(2));
    assert!(grant.token > missed_token && grant.ttl == Some(TTL));
    assert!(fixture.pushed.is_empty(), "reported by the answer alone");
    assert!(fixture.renew(2, missed_token).is_err(), "the missed grant is over");
}

#[test]
fn a_silent_claim_cannot_return_beside_another_kind_of_lock() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    fixture.wait(2, Exclusive);
    fixture.release(1, None);
    fixture.advance(2_000);
    fixture.hold(3, crate::Mode::Permits { count: 1, limit: 2 });
    assert!(fixture.call(&claim(2, Exclusive), How::Ask).is_err());
    fixture.release(3, None);
    held(fixture.ask(2));
}

#[test]
fn queue_entries_are_leases_that_asking_extends() {
    let mut fixture = Fixture::new();
    let holder = fixture.hold(1, Shared);
    fixture.wait(2, Exclusive);
    fixture.wait(3, Shared);
    let life = entry_life(TTL);
    assert!(life >= MIN_ENTRY_LIFE && entry_life(Duration::ZERO) == MIN_ENTRY_LIFE);
    fixture.advance(20_000);
    fixture.renew(1, holder.token).unwrap();
    assert_eq!(ahead(fixture.ask(3)), 1);
    fixture.advance(10_000);
    fixture.renew(1, holder.token).unwrap();
    assert_eq!(fixture.notified(), [3], "the writer is dead: the reader joins the reader");
    assert!(matches!(fixture.ask(2), Answer::Gone));
}

#[test]
fn an_expired_lease_frees_the_name_for_the_next_claim() {
    let mut fixture = Fixture::new();
    let first = fixture.hold(1, Exclusive);
    assert_eq!(fixture.wait(2, Exclusive), 0);
    let Answer::Waiting(hint) = fixture.ask(2) else { panic!() };
    assert_eq!(hint.ask_in, Some(TTL), "with a hint when to ask");
    fixture.advance(20_000);
    fixture.ask(2);
    fixture.advance(9_999);
    assert_eq!(ahead(fixture.ask(2)), 0);
    fixture.advance(1);
    let grant = held(fixture.ask(2));
    assert_eq!(grant.previous, Previous::Lapsed);
    assert!(fixture.renew(1, first.token).is_err());
    assert!(!fixture.release(1, first.token), "a late release of the old hold does nothing");
    fixture.renew(2, grant.token).unwrap();
}

#[test]
fn only_the_first_waiters_get_a_time_hint() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    for position in 0..=WATCHERS {
        let Answer::Waiting(hint) = fixture.create(position as u8 + 2, Exclusive) else { panic!() };
        assert_eq!(hint.ask_in.is_some(), position < WATCHERS, "{position}");
    }
}

#[test]
fn a_minimum_hold_blocks_the_name_without_a_holder() {
    let mut fixture = Fixture::new();
    let first = fixture.hold(1, Exclusive);
    let min_hold = Some(Duration::from_secs(5));
    assert!(fixture.send_release(&crate::Release { min_hold, ..release(1, Some(first.token)) }));
    assert_eq!(fixture.view().holders[0].owner, MIN_HOLD_OWNER);
    assert_eq!(fixture.wait(2, Exclusive), 0);
    assert!(!fixture.release(1, first.token), "a doubled release does not end it");
    assert!(fixture.renew(1, first.token).is_err());
    fixture.advance(4_999);
    assert_eq!(ahead(fixture.ask(2)), 0);
    fixture.advance(1);
    assert_eq!(held(fixture.ask(2)).previous, Previous::Clean, "that was no lapse");
}

#[test]
fn a_grant_whose_client_is_gone_goes_to_the_next() {
    let mut fixture = Fixture::new();
    let first = fixture.hold(1, Exclusive);
    fixture.wait(2, Exclusive);
    fixture.wait(3, Exclusive);
    let abandoned = crate::Release { ended: Previous::Abandoned, ..release(1, Some(first.token)) };
    fixture.send_release(&abandoned);
    assert_eq!(fixture.notified(), [2]);
    fixture.step(|lock, step| lock.take_back_undelivered(id(2), step));
    assert_eq!(fixture.notified(), [3]);
    assert_eq!(fixture.pushed[0].grant.previous, Previous::Abandoned, "no holder in between");
    fixture.step(|lock, step| lock.take_back_undelivered(id(9), step));
    fixture.renew(3, holder_token(&fixture)).unwrap();
    fixture.step(|lock, step| lock.take_back_undelivered(id(3), step));
    assert_eq!(fixture.view().holders.len(), 1, "a grant that was confirmed stays");
}
