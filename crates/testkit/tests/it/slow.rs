//! `Slow` holds calls until the test opens its gates.

use std::{
    future::Future,
    task::{Context, Poll, Waker},
};

use leasehold_core::{Answer, Engine, How};
use leasehold_testkit::{
    decorators::{Slow, Verb},
    dropper::poll_once,
};

use crate::rig::{Rig, claim, now};

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_held_request_is_not_applied_until_its_gate_opens() {
    let rig = Rig::new();
    let (slow, other) = (Slow::new(rig.engine()), rig.engine());
    assert!(!slow.profile().inline, "a call may wait here");
    slow.hold_requests(Verb::Claim);
    let held = claim(1, "a");
    let mut call = slow.claim(&held, How::Create);
    assert!(poll(&mut call).is_pending());
    assert_eq!(slow.waiting(Verb::Claim), 1);
    now(slow.requests_held(Verb::Claim, 1));
    assert!(matches!(now(other.claim(&claim(2, "a"), How::Create)), Ok(Answer::Held(_))));
    slow.open(Verb::Claim);
    assert!(matches!(poll(&mut call), Poll::Ready(Ok(Answer::Waiting(_)))));
    assert_eq!(slow.waiting(Verb::Claim), 0);
}

#[test]
fn a_held_reply_belongs_to_an_applied_request() {
    let rig = Rig::new();
    let (slow, other) = (Slow::new(rig.engine()), rig.engine());
    slow.hold_replies(Verb::Claim);
    let held = claim(1, "a");
    let mut call = slow.claim(&held, How::Create);
    assert!(poll(&mut call).is_pending());
    now(slow.replies_held(Verb::Claim, 1));
    assert!(matches!(now(other.claim(&claim(2, "a"), How::Create)), Ok(Answer::Waiting(_))));
    slow.open(Verb::Claim);
    assert!(matches!(poll(&mut call), Poll::Ready(Ok(Answer::Held(_)))));
}

#[test]
fn a_call_dropped_at_the_gate_leaves_it() {
    let rig = Rig::new();
    let slow = Slow::new(rig.engine());
    slow.hold_requests(Verb::Claim);
    let held = claim(1, "a");
    let mut call = slow.claim(&held, How::Create);
    assert!(poll(&mut call).is_pending());
    drop(call);
    assert_eq!(slow.waiting(Verb::Claim), 0);
    assert!(poll_once(slow.requests_held(Verb::Claim, 1)).is_none());
    slow.open(Verb::Claim);
    assert!(matches!(now(slow.claim(&held, How::Ask)), Ok(Answer::Gone)), "it was never applied");
}
