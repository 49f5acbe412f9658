//! `Faulty` applies the planned fault to each call.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use leasehold_core::{
    Answer, Engine, EngineError, Fault as Meaning, How, Inspect, Loss, Notification, Released, Renewed,
};
use leasehold_testkit::{
    decorators::{Counting, Fault, Faulty, Rates, Verb},
    dropper::poll_once,
};

use crate::rig::{Rig, claim, hold, now, release};

type Claimed = Result<Answer, EngineError>;

fn is_unknown(answer: &Claimed) -> bool {
    matches!(answer, Err(error) if error.fault == Meaning::Unknown)
}

/// Whether `a` is held.
fn is_held(rig: &Rig) -> bool {
    !now(rig.engine().show(&claim(0, "a").name)).unwrap().holders.is_empty()
}

#[test]
fn a_lost_reply_is_applied_and_a_lost_request_is_not() {
    let rig = Rig::new();
    let faulty = Faulty::new(rig.engine());
    let mine = claim(1, "a");
    faulty.next(Verb::Claim, Fault::RequestLost);
    assert!(is_unknown(&now(faulty.claim(&mine, How::Create))));
    assert!(!is_held(&rig));
    faulty.next(Verb::Claim, Fault::ReplyLost);
    assert!(is_unknown(&now(faulty.claim(&mine, How::Create))));
    assert!(is_held(&rig));
    faulty.next(Verb::Release, Fault::RequestLost);
    assert!(matches!(&now(faulty.release(&[release(&mine)]))[..], [Released::Unknown(_)]));
    assert!(is_held(&rig));
    faulty.next(Verb::Release, Fault::ReplyLost);
    assert!(matches!(&now(faulty.release(&[release(&mine)]))[..], [Released::Unknown(_)]));
    assert!(!is_held(&rig));
    assert_eq!(faulty.pending(), 0);
}

#[test]
fn a_lost_batch_has_one_answer_for_each_item() {
    let rig = Rig::new();
    let faulty = Faulty::new(rig.engine());
    let (a, b) = (claim(1, "a"), claim(2, "b"));
    let Ok(Answer::Held(grant_a)) = now(faulty.claim(&a, How::Create)) else { panic!("a is free") };
    let Ok(Answer::Held(grant_b)) = now(faulty.claim(&b, How::Create)) else { panic!("b is free") };
    faulty.next(Verb::Renew, Fault::ReplyLost);
    let holds = [hold(&a, &grant_a), hold(&b, &grant_b)];
    assert!(matches!(&now(faulty.renew(&holds))[..], [Renewed::Unknown(_), Renewed::Unknown(_)]));
    assert!(matches!(&now(faulty.renew(&holds))[..], [Renewed::Extended { .. }, Renewed::Extended { .. }]));
}

#[test]
fn a_late_claim_arrives_when_it_is_delivered() {
    let rig = Rig::new();
    let faulty = Faulty::new(rig.engine());
    faulty.next(Verb::Claim, Fault::Late);
    assert!(is_unknown(&now(faulty.claim(&claim(1, "a"), How::Create))));
    assert!(!is_held(&rig));
    now(faulty.deliver_late());
    assert!(is_held(&rig), "it was not cleaned up");
}

#[test]
fn a_late_claim_finds_the_tombstone_of_its_release() {
    let rig = Rig::new();
    let faulty = Faulty::new(rig.engine());
    let mine = claim(1, "a");
    faulty.next(Verb::Claim, Fault::Late);
    assert!(is_unknown(&now(faulty.claim(&mine, How::Create))));
    assert!(matches!(&now(faulty.release(&[release(&mine)]))[..], [Released::NotThere]));
    now(faulty.deliver_late());
    assert!(!is_held(&rig));
}

#[test]
fn a_duplicated_release_returns_the_first_answer() {
    let rig = Rig::new();
    let counting = std::sync::Arc::new(Counting::new(rig.engine()));
    let faulty = Faulty::new(std::sync::Arc::<Counting>::clone(&counting));
    let mine = claim(1, "a");
    now(faulty.claim(&mine, How::Create)).unwrap();
    faulty.next(Verb::Release, Fault::Duplicated);
    assert!(matches!(&now(faulty.release(&[release(&mine)]))[..], [Released::Freed]));
    assert_eq!(counting.count(Verb::Release).calls, 2);
}

#[test]
fn a_reordered_claim_is_overtaken_by_the_next() {
    let rig = Rig::new();
    let faulty = Faulty::new(rig.engine());
    let (first, second) = (claim(1, "a"), claim(2, "a"));
    faulty.next(Verb::Claim, Fault::Reordered);
    let mut held = faulty.claim(&first, How::Create);
    let mut poll = || Pin::new(&mut held).poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    assert!(matches!(now(faulty.claim(&second, How::Create)), Ok(Answer::Held(_))));
    assert!(matches!(poll(), Poll::Ready(Ok(Answer::Waiting(_)))));
}

#[test]
fn a_reordered_claim_arrives_after_its_caller_gave_up() {
    let rig = Rig::new();
    let faulty = Faulty::new(rig.engine());
    faulty.next(Verb::Claim, Fault::Reordered);
    assert!(poll_once(faulty.claim(&claim(1, "a"), How::Create)).is_none());
    assert!(!is_held(&rig));
    now(faulty.claim(&claim(2, "b"), How::Create)).unwrap();
    assert!(is_held(&rig));
}

#[test]
fn a_lost_session_loses_its_claims_and_heals_with_ask_all() {
    let rig = Rig::new();
    let (faulty, other) = (Faulty::new(rig.engine()), rig.engine());
    let (mine, theirs) = (claim(1, "a"), claim(2, "b"));
    let Ok(Answer::Held(grant)) = now(faulty.claim(&mine, How::Create)) else { panic!("a is free") };
    now(other.claim(&theirs, How::Create)).unwrap();
    faulty.next(Verb::Renew, Fault::SessionGone);
    assert!(matches!(&now(faulty.renew(&[hold(&mine, &grant)]))[..], [Renewed::Unknown(_)]));
    assert!(!is_held(&rig));
    assert!(matches!(now(other.claim(&theirs, How::Ask)), Ok(Answer::Held(_))), "the session of another");
    let answer = now(faulty.claim(&claim(3, "c"), How::Create));
    assert!(matches!(answer, Err(error) if error.fault == Meaning::Retry));
    assert!(now(faulty.list("")).is_err());
    assert!(poll_once(faulty.notifications()).is_none());
    faulty.heal();
    assert!(matches!(&now(faulty.notifications())[..], [Notification::AskAll]));
    assert!(matches!(&now(faulty.renew(&[hold(&mine, &grant)]))[..], [Renewed::Lost(Loss::Gone)]));
}

/// A waiter behind a faulty network, and a function that grants to it.
fn notifications_under(fault: Fault) -> (Faulty, impl Fn(u8)) {
    let rig = Rig::new();
    let (faulty, other) = (Faulty::new(rig.engine()), rig.engine());
    faulty.next(Verb::Notification, fault);
    for name in [1, 2] {
        now(other.claim(&claim(name, &name.to_string()), How::Create)).unwrap();
        let waiter = claim(name + 10, &name.to_string());
        assert!(matches!(now(faulty.claim(&waiter, How::Create)), Ok(Answer::Waiting(_))));
    }
    let grant = move |name: u8| drop(now(other.release(&[release(&claim(name, &name.to_string()))])));
    (faulty, grant)
}

fn ids(batch: &[Notification]) -> Vec<u8> {
    let id = |notification: &Notification| match notification {
        Notification::Granted { id, .. } => id.0[0],
        other => panic!("{other:?}"),
    };
    batch.iter().map(id).collect()
}

#[test]
fn notifications_are_lost_duplicated_delayed_and_reordered() {
    let (faulty, grant) = notifications_under(Fault::ReplyLost);
    grant(1);
    assert!(poll_once(faulty.notifications()).is_none());
    grant(2);
    assert_eq!(ids(&now(faulty.notifications())), [12]);

    let (faulty, grant) = notifications_under(Fault::Duplicated);
    grant(1);
    assert_eq!(ids(&now(faulty.notifications())), [11]);
    assert_eq!(ids(&now(faulty.notifications())), [11]);

    let (faulty, grant) = notifications_under(Fault::Late);
    grant(1);
    assert!(poll_once(faulty.notifications()).is_none());
    grant(2);
    assert_eq!(ids(&now(faulty.notifications())), [12]);
    now(faulty.deliver_late());
    assert_eq!(ids(&now(faulty.notifications())), [11]);

    let (faulty, grant) = notifications_under(Fault::Reordered);
    grant(1);
    assert!(poll_once(faulty.notifications()).is_none());
    grant(2);
    assert_eq!(ids(&now(faulty.notifications())), [12, 11]);
}

#[test]
fn a_seed_reproduces_its_faults_at_the_given_rates() {
    let rates = Rates { request_lost: 200, reply_lost: 100, late: 100, duplicated: 100, ..Rates::default() };
    let run = |seed| {
        let faulty = Faulty::seeded(Rig::new().engine(), seed, rates);
        (0..200)
            .map(|id| is_unknown(&now(faulty.claim(&claim(id, &id.to_string()), How::Create))))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let unknown = run(3).into_iter().filter(|&unknown| unknown).count();
    assert!((50..=110).contains(&unknown), "{unknown} of 200 at 40 %");
}

#[test]
fn seeded_late_requests_arrive_by_themselves() {
    let rig = Rig::new();
    let faulty = Faulty::seeded(rig.engine(), 1, Rates { late: 1000, ..Rates::default() });
    assert!(is_unknown(&now(faulty.claim(&claim(1, "a"), How::Create))));
    assert!(!is_held(&rig));
    faulty.stop_random_faults();
    for id in 2..12 {
        now(faulty.claim(&claim(id, &id.to_string()), How::Create)).unwrap();
    }
    assert!(is_held(&rig));
}
