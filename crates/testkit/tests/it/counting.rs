//! `Counting` counts calls and items.

use leasehold_core::{Answer, Engine, How, Inspect};
use leasehold_testkit::decorators::{Count, Counting, Verb};

use crate::rig::{Rig, claim, hold, now, release};

#[test]
fn calls_and_batches_are_counted() {
    let counting = Counting::new(Rig::new().engine());
    let (a, b) = (claim(1, "a"), claim(2, "b"));
    let Ok(Answer::Held(grant_a)) = now(counting.claim(&a, How::Create)) else { panic!("a is free") };
    let Ok(Answer::Held(grant_b)) = now(counting.claim(&b, How::Create)) else { panic!("b is free") };
    now(counting.renew(&[hold(&a, &grant_a), hold(&b, &grant_b)]));
    now(counting.renew(&[hold(&a, &grant_a)]));
    now(counting.release(&[release(&a), release(&b)]));
    now(counting.show(&a.name)).unwrap();
    assert_eq!(counting.count(Verb::Claim), Count { calls: 2, items: 2, largest: 1 });
    assert_eq!(counting.count(Verb::Renew), Count { calls: 2, items: 3, largest: 2 });
    assert_eq!(counting.count(Verb::Release), Count { calls: 1, items: 2, largest: 2 });
    assert_eq!(counting.count(Verb::Inspect).calls, 1);
    assert_eq!(counting.count(Verb::Notification), Count::default());
    counting.reset();
    assert_eq!(counting.count(Verb::Renew), Count::default());
}

#[test]
fn delivered_notifications_are_counted() {
    let rig = Rig::new();
    let (one, counting) = (rig.engine(), Counting::new(rig.engine()));
    let (holder, waiter) = (claim(1, "a"), claim(2, "a"));
    now(one.claim(&holder, How::Create)).unwrap();
    assert!(matches!(now(counting.claim(&waiter, How::Create)), Ok(Answer::Waiting(_))));
    now(one.release(&[release(&holder)]));
    assert_eq!(now(counting.notifications()).len(), 1);
    assert_eq!(counting.count(Verb::Notification), Count { calls: 1, items: 1, largest: 1 });
}
