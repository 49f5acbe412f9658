//! Tests of inspecting and breaking.

use super::fixture::*;
use crate::{
    Answer, Broken, How, Inspect, Level, Loss, Mode, Notification, Renewed, Watched,
    driver::keeper::poll_once, notices,
};

#[test]
fn names_are_listed_by_prefix_and_shown() {
    let (store, clock) = store();
    let (one, two) = (Client::of(&store), Client::of(&store));
    for (number, name_text) in [(1, "b"), (2, "a/2"), (3, "a/1"), (4, "a")] {
        held(one.call(&claim(number, name_text), How::Create).unwrap());
    }
    clock.advance(CLAIM_TIME);
    two.call(&claim(5, "a/1"), How::Create).unwrap();
    clock.advance(CLAIM_TIME);
    let views = ready_answer(two.0.list("a/")).unwrap();
    let names: Vec<_> = views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["a/1", "a/2"]);
    let (view, holder, waiter) = (&views[0], &views[0].holders[0], &views[0].waiters[0]);
    assert_eq!((view.key.as_str(), view.mode), ("a/1", Some(Mode::Exclusive)));
    assert_eq!((holder.id.as_str(), holder.owner.as_str()), (id(3).to_string().as_str(), "owner 3"));
    assert_eq!((holder.token, holder.held, holder.foreign), (Some(3), Some(2 * CLAIM_TIME), false));
    assert_eq!(holder.remaining, Some(TTL - 2 * CLAIM_TIME));
    assert_eq!((waiter.owner.as_str(), waiter.waiting), ("owner 5", Some(CLAIM_TIME)));
    clock.advance(TTL - 2 * CLAIM_TIME);
    assert!(
        ready_answer(two.0.list("")).unwrap().iter().all(|view| view.name.as_str() == "a/1"),
        "the rest has lapsed"
    );
    assert_eq!(two.granted().0, id(5), "by the look of it");
}

#[test]
fn a_free_name_is_shown_free() {
    let (store, _) = store();
    let view = Client::of(&store).show();
    assert!(view.mode.is_none() && view.holders.is_empty() && view.waiters.is_empty());
    assert_eq!(store.leftovers(), [""; 0]);
}

#[test]
fn a_break_notifies_the_holder_and_waits_for_it() {
    let (store, _) = store();
    let (one, two, operator) = (Client::of(&store), Client::of(&store), Client::of(&store));
    let first = one.hold(1);
    two.wait(2);
    assert_eq!(operator.break_hold(99, false), Broken::NotHeld);
    assert_eq!(operator.break_hold(first.token.number, false), Broken::Done);
    assert!(
        matches!(one.notifications()[..], [Notification::Lost { id: lost, loss: Loss::Broken, .. }] if lost == id(1))
    );
    assert!(matches!(one.renew(1, first.token), Renewed::Lost(Loss::Broken)));
    assert!(two.notifications().is_empty() && matches!(two.ask(2), Answer::Waiting(_)));
    assert!(one.release(release(1, first.token)), "it lets go");
    assert_eq!(two.granted().1.previous, crate::Previous::Broken);
}

#[test]
fn a_forced_break_does_not_wait() {
    let (store, _) = store();
    let (one, two) = (Client::of(&store), Client::of(&store));
    let first = one.hold(1);
    two.wait(2);
    assert_eq!(two.break_hold(first.token.number, true), Broken::Done);
    assert!(matches!(one.notifications()[..], [Notification::Lost { loss: Loss::Broken, .. }]));
    assert_eq!(two.granted().0, id(2));
    assert_eq!(two.break_hold(first.token.number, true), Broken::NotHeld);
}

#[test]
fn the_guarantee_is_limited_to_one_process() {
    let (store, _) = store();
    let guarantee = ready_answer(Client::of(&store).0.guarantee()).unwrap();
    assert_eq!(guarantee.level, Level::LeaseBounded);
    assert!(guarantee.notes.iter().any(|note| note.contains("process")));
}

#[test]
fn a_view_is_told_of_changes_of_its_names_and_not_of_looks() {
    let (store, clock) = store();
    let (one, two, viewer) = (Client::of(&store), Client::of(&store), Client::of(&store));
    let (sender, mut notices) = notices();
    let watched = Watched::Prefix("n".to_owned());
    let mut telling = viewer.0.tell_changes(&watched, &sender);
    assert!(poll_once(telling.as_mut()).is_none() && notices.are_pushed());
    let mut is_told = move || poll_once(std::pin::pin!(notices.changed())).is_some();
    assert!(is_told() && !is_told(), "that it begins");
    held(one.create(1));
    assert!(is_told(), "a grant");
    two.create(2);
    assert!(is_told(), "a wait");
    two.call(&claim(2, "n"), How::Ask).unwrap();
    one.call(&claim(3, "other"), How::Create).unwrap();
    ready_answer(viewer.0.list("")).unwrap();
    viewer.show();
    assert!(!is_told(), "asking and looking change nothing, and the other name is not shown");
    let second = TTL / 30;
    for _ in 1..30 {
        clock.advance(second);
        two.call(&claim(2, "n"), How::Ask).unwrap();
    }
    assert!(!is_told(), "the lease lasts");
    clock.advance(second);
    held(two.call(&claim(2, "n"), How::Ask).unwrap());
    assert!(is_told(), "a lease that ran out");
    one.create(4);
    let token = ready_answer(viewer.0.list("n")).unwrap()[0].holders[0].token.unwrap();
    assert!(is_told(), "a wait");
    ready_answer(viewer.0.break_hold(&name("n"), token, true)).unwrap();
    assert!(is_told(), "a break");
    drop(telling);
    one.create(5);
    assert!(!is_told(), "nobody views");
}
