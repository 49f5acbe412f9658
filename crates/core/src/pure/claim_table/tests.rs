//! Tests of the claim table, without a server.

use std::time::Duration;

use super::*;
use crate::{Mode, Name};

/// What a claim has on the server is a number, what it waits for another claim's number, and the engine's data is the
/// lease of the claim.
type Table = ClaimTable<u32, u32, u8>;

fn claim(id: u8) -> Claim {
    Claim {
        id: ClaimId([id; 16]),
        name: Name::new("a").unwrap(),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(30),
        claim_time: Duration::from_secs(2),
        may_queue: true,
        tokens: 1,
        owner: "me".into(),
        stops_on_term: false,
    }
}

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

const fn id(number: u8) -> ClaimId {
    ClaimId([number; 16])
}

/// The claims with these numbers, all on lease 7 and created now.
fn table(numbers: &[u8]) -> Table {
    let mut table = Table::default();
    numbers.iter().for_each(|&number| table.enter(&claim(number), 7, at(0)));
    table
}

fn state(table: &mut Table, number: u8) -> ClaimState<u32, u32> {
    table.get(id(number)).unwrap().state.clone()
}

#[test]
fn a_claim_that_asks_is_extended_and_a_silent_one_is_ended_once() {
    let (mut table, lifetime) = (table(&[1, 2]), crate::pure::lock_state::entry_life(claim(1).ttl));
    table.get(id(1)).unwrap().waits(5, 4, at(1000));
    assert_eq!(table.next_due(), Some(at(0).after(lifetime)));
    assert_eq!(table.overdue(at(0).after(lifetime)), [id(2)], "the other one asked since");
    assert_eq!(table.next_due(), Some(at(1000).after(lifetime)));
    table.get(id(2)).unwrap().asked_again(at(0).after(lifetime));
    assert_eq!(state(&mut table, 2), ClaimState::Ending { own: None, again: false }, "too late");
    assert_eq!(table.overdue(at(1000).after(lifetime)), [id(1)]);
    assert_eq!(state(&mut table, 1), ClaimState::Ending { own: Some(5), again: false });
    assert_eq!(table.overdue(at(9000).after(lifetime)), [], "each once");
    for number in [1, 2] {
        assert_eq!(table.ended(id(number), at(9000)).unwrap().data, 7);
    }
    assert!(table.entries().next().is_none() && table.next_due().is_none());
}

#[test]
fn an_unconfirmed_grant_lapses_and_its_claim_may_queue_again() {
    let mut table = table(&[1]);
    table.get(id(1)).unwrap().waits(5, 4, at(0));
    table.hold(id(1), 5, false, (at(0), at(2000)));
    assert_eq!(table.overdue(at(1999)), []);
    assert_eq!(table.overdue(at(2000)), [id(1)], "sooner than a claim in the queue");
    assert_eq!(state(&mut table, 1), ClaimState::Ending { own: Some(5), again: true });
    assert!(table.ended(id(1), at(3000)).is_none());
    assert_eq!(state(&mut table, 1), ClaimState::Lapsed);
    table.get(id(1)).unwrap().asked_again(at(4000));
    assert_eq!(state(&mut table, 1), ClaimState::Made);
    // A claim that did send a request ends when its own time ends.
    table.hold(id(1), 9, true, (at(5000), at(40_000)));
    assert_eq!(table.overdue(at(100_000)), [id(1)]);
    assert!(table.ended(id(1), at(100_000)).is_some());
    assert!(table.get(id(1)).is_none() && table.next_due().is_none(), "nothing is left of it");
}

#[test]
fn a_lapsed_claim_that_does_not_ask_is_forgotten() {
    let mut table = table(&[1]);
    table.hold(id(1), 5, false, (at(0), at(2000)));
    assert_eq!(table.overdue(at(2000)), [id(1)]);
    assert!(table.ended(id(1), at(2000)).is_none());
    assert_eq!(table.lasting(at(2000)), [], "it does not hold");
    let over = at(2000).after(crate::pure::lock_state::entry_life(claim(1).ttl));
    assert_eq!((table.overdue(at(2001)), table.next_due()), (vec![], Some(over)));
    assert_eq!(table.overdue(over), [], "nothing of it is on the server");
    assert!(table.get(id(1)).is_none() && table.next_due().is_none());
}

#[test]
fn an_older_answer_does_not_shorten_a_hold() {
    let mut table = table(&[1]);
    table.hold(id(1), 5, false, (at(0), at(2000)));
    table.hold(id(1), 5, true, (at(100), at(30_000)));
    table.hold(id(1), 5, true, (at(200), at(20_000)));
    assert_eq!(table.overdue(at(29_999)), []);
    assert_eq!(table.overdue(at(30_000)), [id(1)]);
}

#[test]
fn a_lasting_hold_is_watched_once_for_each_connection() {
    let mut table = table(&[1, 2]);
    table.get(id(2)).unwrap().waits(6, 5, at(0));
    table.hold(id(1), 5, true, (at(0), at(20_000)));
    assert_eq!(table.next_due(), Some(at(0).after(WATCHED_AFTER)));
    assert_eq!(table.lasting(at(99)), [], "it may be over soon");
    assert_eq!(table.lasting(at(100)), [id(1)]);
    table.hold(id(1), 5, true, (at(150), at(25_000)));
    assert_eq!(table.lasting(at(1000)), [], "it is watched already");
    table.watch_again(at(3000), |entry| entry.data == 8, |_| panic!("on another lease"));
    assert_eq!(table.lasting(at(3000)), []);
    table.watch_again(at(3000), |entry| entry.data == 7, |before| *before = 0);
    assert_eq!(table.lasting(at(3000)), [id(1)], "the other one waits");
    assert_eq!(state(&mut table, 2), ClaimState::Waiting { own: 6, before: 0 });
    table.watch_again(at(4000), |_| true, |_| {});
    table.get(id(1)).unwrap().state = ClaimState::Gone;
    assert_eq!(table.lasting(at(4000)), [], "it holds no longer");
}

#[test]
fn a_claim_that_is_closed_needs_no_request() {
    let mut table = table(&[1]);
    let closed_state = |table: &Table, number| match table.closed(id(number)) {
        None => "open",
        Some(Answer::Waiting(_)) => "waiting",
        Some(Answer::Gone) => "gone",
        Some(answer) => panic!("{answer:?}"),
    };
    assert_eq!([closed_state(&table, 1), closed_state(&table, 2)], ["open", "gone"]);
    for (state, answer) in [
        (ClaimState::Waiting { own: 5, before: 4 }, "open"),
        (ClaimState::Held { own: 5, confirmed: true }, "open"),
        (ClaimState::Ending { own: None, again: true }, "waiting"),
        (ClaimState::Lapsed, "waiting"),
        (ClaimState::Gone, "gone"),
    ] {
        table.get(id(1)).unwrap().state = state.clone();
        assert_eq!(closed_state(&table, 1), answer, "{state:?}");
    }
}

#[test]
fn the_end_of_a_lease_loses_its_holds_and_rechecks_its_waiters() {
    let mut table = table(&[1, 2]);
    table.enter(&claim(3), 8, at(0));
    table.hold(id(1), 5, true, (at(0), at(20_000)));
    table.hold(id(3), 6, true, (at(0), at(20_000)));
    let mut notification = table.lost(|entry| entry.data == 7);
    notification.sort_by_key(|notification| !matches!(notification, Notification::Lost { .. }));
    let [Notification::Lost { id: lost, loss: Loss::Gone, .. }, Notification::Recheck { id: asked, .. }] =
        &notification[..]
    else {
        panic!("{notification:?}")
    };
    assert_eq!((*lost, *asked), (id(1), id(2)));
}

#[test]
fn a_claim_created_again_starts_from_its_initial_state() {
    let mut table = table(&[1]);
    table.hold(id(1), 5, false, (at(0), at(2000)));
    table.enter(&claim(1), 8, at(1000));
    assert_eq!((state(&mut table, 1), table.get(id(1)).unwrap().data), (ClaimState::Made, 8));
    assert_eq!(table.lasting(at(5000)), []);
    assert_eq!(table.overdue(at(5000)), [], "nothing is left of the first");
}
