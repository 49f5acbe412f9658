//! Tests of hand-over from one client to the next.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use super::fixture::*;
use crate::{
    Answer, Clock, Engine, How, Life, Loss, MAX_NOTIFICATIONS, Notification, Previous, Release, Renewed,
};

#[test]
fn a_release_pushes_the_grant_to_the_other_client() {
    let (store, clock) = store();
    let (one, two) = (Client::of(&store), Client::of(&store));
    let first = one.hold(1);
    two.wait(2);
    assert!(one.notifications().is_empty() && two.notifications().is_empty());

    assert!(one.release(release(1, first.token)));
    let (claim, grant, since) = two.granted();
    assert_eq!((claim, grant.ttl, since), (id(2), Some(CLAIM_TIME), Some(clock.now())));
    assert!(grant.token > first.token);
    assert!(matches!(two.renew(2, grant.token), Renewed::Extended { ttl: Some(TTL), .. }));
    clock.advance(CLAIM_TIME);
    assert_eq!(held(two.ask(2)).token, grant.token);
    assert!(one.notifications().is_empty());
    assert!(two.release(release(2, grant.token)));
}

#[test]
fn a_verb_does_nothing_before_it_is_polled() {
    let (store, _) = store();
    let one = Client::of(&store);
    drop(one.0.claim(&claim(1, "n"), How::Create));
    assert_eq!(store.leftovers(), [""; 0]);
    one.hold(2);
}

#[test]
fn a_silent_waiter_is_passed_over_when_its_claim_time_ends() {
    let (store, clock) = store();
    let (one, silent, three) = (Client::of(&store), Client::of(&store), Client::of(&store));
    let first = one.hold(1);
    silent.wait(2);
    three.wait(3);
    one.release(release(1, first.token));
    assert!(three.notifications().is_empty());
    let Answer::Waiting(hint) = three.ask(3) else { panic!() };
    assert_eq!(hint.ask_in, Some(CLAIM_TIME));
    clock.advance(CLAIM_TIME);
    assert_eq!(held(three.ask(3)).previous, Previous::Lapsed);
    assert_eq!(silent.granted().0, id(2), "it was notified too late");
    assert!(matches!(silent.ask(2), Answer::Waiting(_)), "it is queued again");
}

#[test]
fn a_waiter_whose_client_is_gone_is_passed_over_at_once() {
    let (store, _) = store();
    let (one, dead, three) = (Client::of(&store), Client::of(&store), Client::of(&store));
    let first = one.hold(1);
    dead.wait(2);
    three.wait(3);
    drop(dead);
    one.release(release(1, first.token));
    let (claim, grant, _) = three.granted();
    assert_eq!((claim, grant.previous), (id(3), Previous::Clean));
}

#[test]
fn a_cancelled_waiter_passes_on_its_pushed_grant() {
    let (store, _) = store();
    let (one, two, three) = (Client::of(&store), Client::of(&store), Client::of(&store));
    let first = one.hold(1);
    two.wait(2);
    three.wait(3);
    one.release(release(1, first.token));
    assert!(two.release(release(2, None)));
    assert_eq!(three.granted().0, id(3));
}

#[test]
fn an_expired_lease_frees_the_name_and_the_head_has_a_hint() {
    let (store, clock) = store();
    let (one, two, three) = (Client::of(&store), Client::of(&store), Client::of(&store));
    let old = one.hold(1);
    clock.advance(TTL / 2);
    two.wait(2);
    three.wait(3);
    clock.advance(TTL / 2);
    assert!(matches!(three.ask(3), Answer::Waiting(_)));
    let (claim, grant, _) = two.granted();
    assert_eq!((claim, grant.previous), (id(2), Previous::Lapsed));

    assert!(matches!(one.renew(1, old.token), Renewed::Lost(Loss::Gone)));
    assert!(!one.release(release(1, old.token)), "a late release of the old hold ends no other hold");
    assert!(matches!(two.renew(2, grant.token), Renewed::Extended { .. }));
}

#[test]
fn a_minimum_hold_blocks_the_name_after_its_release() {
    let (store, clock) = store();
    let one = Client::of(&store);
    let first = one.hold(1);
    let min_hold = Some(Duration::from_secs(10));
    assert!(one.release(Release { min_hold, ..release(1, first.token) }));
    let mut try_claim = claim(2, "n");
    try_claim.may_queue = false;
    let Ok(Answer::Taken(hint)) = one.call(&try_claim, How::Create) else { panic!() };
    assert_eq!(hint.ask_in, min_hold);
    clock.advance(Duration::from_secs(10));
    held(one.call(&try_claim, How::Create).unwrap());
}

#[test]
fn renewals_and_releases_are_answered_one_by_one() {
    let (store, _) = store();
    let one = Client::of(&store);
    let first = one.hold(1);
    let hold = |number, token| crate::Hold {
        id: id(number),
        name: name("n"),
        mode: crate::Mode::Exclusive,
        token,
        ttl: TTL,
    };
    let answers = ready_answer(one.0.renew(&[hold(9, first.token), hold(1, first.token)]));
    assert!(matches!(answers[..], [Renewed::Lost(Loss::Gone), Renewed::Extended { .. }]), "{answers:?}");
    let answers =
        ready_answer(one.0.release(&[release(9, None), release(1, first.token), release(1, first.token)]));
    use crate::Released::{Freed, NotThere};
    assert!(matches!(answers[..], [NotThere, Freed, NotThere]), "{answers:?}");
}

#[test]
fn too_many_notifications_become_ask_all() {
    let (store, _) = store();
    let (one, two) = (Client::of(&store), Client::of(&store));
    for number in 0..=MAX_NOTIFICATIONS {
        let unique = |first: u8| {
            let mut claim = claim(first, "n");
            claim.id.0[8..].copy_from_slice(&(number as u64).to_be_bytes());
            claim.name = name(&format!("n{number}"));
            claim
        };
        let (holding, waiting) = (unique(1), unique(2));
        held(one.call(&holding, How::Create).unwrap());
        assert!(matches!(two.call(&waiting, How::Create), Ok(Answer::Waiting(_))));
        one.release(Release { id: holding.id, name: holding.name, ..release(1, None) });
    }
    assert!(matches!(two.notifications()[..], [Notification::AskAll]));
    assert!(two.notifications().is_empty());
}

#[derive(Default)]
struct CountingWaker(AtomicUsize);

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_reader_of_notifications_is_woken_and_a_dropped_one_loses_nothing() {
    let (store, _) = store();
    let (one, two) = (Client::of(&store), Client::of(&store));
    let counting = Arc::new(CountingWaker::default());
    let waker = Waker::from(Arc::clone(&counting));
    let mut context = Context::from_waker(&waker);
    let first = one.hold(1);
    two.wait(2);
    let mut dropped = two.0.notifications();
    assert!(dropped.as_mut().poll(&mut context).is_pending());
    one.release(release(1, first.token));
    assert_eq!(counting.0.load(Ordering::Relaxed), 1);
    drop(dropped);
    let Poll::Ready(notification) = two.0.notifications().as_mut().poll(&mut context) else { panic!() };
    assert!(matches!(notification[..], [Notification::Granted { .. }]));
}

#[test]
fn the_profile_matches_the_behaviour() {
    let (store, _) = store();
    let one = Client::of(&store);
    let profile = one.0.profile();
    assert_eq!((profile.engine, profile.life), ("memory", Life::Lease));
    assert!(
        profile.push && profile.inline && profile.fifo && profile.supports_min_hold && profile.tokens > 1
    );
    let block = held(one.call(&crate::Claim { tokens: 64, ..claim(1, "n") }, How::Create).unwrap());
    assert_eq!(block.tokens, 64);
    assert_eq!(one.call(&claim(2, "m"), How::Create).map(held).unwrap().token.number, 65);
}
