//! Tests of the claim table, without a server.

use std::time::Duration;

use super::*;
use crate::{Mode, Name};

/// `O`, what a claim has on the server, is the number of a key. `B`, what a claim waits for, is the number of the key
/// ahead of it. `D` is the number of the lease of the claim.
type Table = ClaimTable<u32, u32, u8>;

const LEASE: u8 = 7;
const OTHER_LEASE: u8 = 8;
/// The keys of claims in the queue, in the order of the queue, and the number for "no key".
const KEY_AHEAD: u32 = 4;
const KEY: u32 = 5;
const KEY_BEHIND: u32 = 6;
const NO_KEY: u32 = 0;
/// Whether the client of a claim knows of its hold.
const CONFIRMED: bool = true;
const UNCONFIRMED: bool = false;

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

/// The instant `millis` milliseconds after the start.
fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

const fn id(number: u8) -> ClaimId {
    ClaimId([number; 16])
}

/// The claims with these numbers, all on [`LEASE`] and entered at the start.
fn table(numbers: &[u8]) -> Table {
    let mut table = Table::default();
    numbers.iter().for_each(|&number| table.enter(&claim(number), LEASE, at(0)));
    table
}

fn state(table: &mut Table, number: u8) -> ClaimState<u32, u32> {
    table.get(id(number)).unwrap().state.clone()
}

#[test]
fn a_claim_that_asks_is_extended_and_a_silent_one_is_ended_once() {
    let (mut table, lifetime) = (table(&[1, 2]), WATCHED_CLAIM_LIFE);
    table.get(id(1)).unwrap().waits(KEY, KEY_AHEAD, at(1000));
    assert_eq!(table.next_due(), Some(at(0).after(lifetime)));
    assert_eq!(table.take_overdue(at(0).after(lifetime)), [id(2)], "the other one asked since");
    assert_eq!(table.next_due(), Some(at(1000).after(lifetime)));
    table.get(id(2)).unwrap().asked_again(at(0).after(lifetime));
    assert_eq!(state(&mut table, 2), ClaimState::Ending { own: None, may_requeue: false }, "too late");
    assert_eq!(table.take_overdue(at(1000).after(lifetime)), [id(1)]);
    assert_eq!(state(&mut table, 1), ClaimState::Ending { own: Some(KEY), may_requeue: false });
    assert_eq!(table.take_overdue(at(9000).after(lifetime)), [], "each once");
    for number in [1, 2] {
        assert_eq!(table.record_end(id(number), at(9000)).unwrap().data, LEASE);
    }
    assert!(table.entries().next().is_none() && table.next_due().is_none());
}

#[test]
fn an_unconfirmed_grant_lapses_and_its_claim_may_queue_again() {
    let mut table = table(&[1]);
    table.get(id(1)).unwrap().waits(KEY, KEY_AHEAD, at(0));
    table.hold(id(1), KEY, UNCONFIRMED, (at(0), at(2000)));
    assert_eq!(table.take_overdue(at(1999)), []);
    assert_eq!(table.take_overdue(at(2000)), [id(1)], "sooner than a claim in the queue");
    assert_eq!(state(&mut table, 1), ClaimState::Ending { own: Some(KEY), may_requeue: true });
    assert!(table.record_end(id(1), at(3000)).is_none());
    assert_eq!(state(&mut table, 1), ClaimState::Lapsed);
    table.get(id(1)).unwrap().asked_again(at(4000));
    assert_eq!(state(&mut table, 1), ClaimState::Made);
    // A claim whose hold is confirmed does not queue again: when its time is over, it ends and leaves the table.
    table.hold(id(1), KEY_BEHIND, CONFIRMED, (at(5000), at(40_000)));
    assert_eq!(table.take_overdue(at(100_000)), [id(1)]);
    assert!(table.record_end(id(1), at(100_000)).is_some());
    assert!(table.get(id(1)).is_none() && table.next_due().is_none(), "nothing is left of it");
}

#[test]
fn a_lapsed_claim_that_does_not_ask_is_forgotten() {
    let mut table = table(&[1]);
    table.hold(id(1), KEY, UNCONFIRMED, (at(0), at(2000)));
    assert_eq!(table.take_overdue(at(2000)), [id(1)]);
    assert!(table.record_end(id(1), at(2000)).is_none());
    assert_eq!(table.begin_watches(at(2000)), [], "it does not hold");
    let end_of_lifetime = at(2000).after(WATCHED_CLAIM_LIFE);
    assert_eq!((table.take_overdue(at(2001)), table.next_due()), (vec![], Some(end_of_lifetime)));
    assert_eq!(table.take_overdue(end_of_lifetime), [], "nothing of it is on the server");
    assert!(table.get(id(1)).is_none() && table.next_due().is_none());
}

#[test]
fn an_older_answer_does_not_shorten_a_hold() {
    let mut table = table(&[1]);
    table.hold(id(1), KEY, UNCONFIRMED, (at(0), at(2000)));
    table.hold(id(1), KEY, CONFIRMED, (at(100), at(30_000)));
    table.hold(id(1), KEY, CONFIRMED, (at(200), at(20_000)));
    assert_eq!(table.take_overdue(at(29_999)), []);
    assert_eq!(table.take_overdue(at(30_000)), [id(1)]);
}

#[test]
fn a_lasting_hold_is_watched_once_for_each_connection() {
    let mut table = table(&[1, 2]);
    table.get(id(2)).unwrap().waits(KEY_BEHIND, KEY, at(0));
    table.hold(id(1), KEY, CONFIRMED, (at(0), at(20_000)));
    assert_eq!(table.next_due(), Some(at(0).after(WATCHED_AFTER)));
    assert_eq!(table.begin_watches(at(99)), [], "it may be over soon");
    assert_eq!(table.begin_watches(at(100)), [id(1)]);
    table.hold(id(1), KEY, CONFIRMED, (at(150), at(25_000)));
    assert_eq!(table.begin_watches(at(1000)), [], "it is watched already");
    table.watch_again(at(3000), |entry| entry.data == OTHER_LEASE, |_| panic!("on another lease"));
    assert_eq!(table.begin_watches(at(3000)), []);
    table.watch_again(at(3000), |entry| entry.data == LEASE, |blocker| *blocker = NO_KEY);
    assert_eq!(table.begin_watches(at(3000)), [id(1)], "the other one waits");
    assert_eq!(state(&mut table, 2), ClaimState::Waiting { own: KEY_BEHIND, blocker: NO_KEY });
    table.watch_again(at(4000), |_| true, |_| {});
    table.get(id(1)).unwrap().state = ClaimState::Gone;
    assert_eq!(table.begin_watches(at(4000)), [], "it holds no longer");
}

#[test]
fn a_claim_that_is_over_needs_no_request() {
    let mut table = table(&[1]);
    let answer_word = |table: &Table, number| match table.answer_without_request(id(number)) {
        None => "open",
        Some(Answer::Waiting(_)) => "waiting",
        Some(Answer::Gone) => "gone",
        Some(answer) => panic!("{answer:?}"),
    };
    assert_eq!([answer_word(&table, 1), answer_word(&table, 2)], ["open", "gone"]);
    for (state, answer) in [
        (ClaimState::Waiting { own: KEY, blocker: KEY_AHEAD }, "open"),
        (ClaimState::Held { own: KEY, confirmed: true }, "open"),
        (ClaimState::Ending { own: None, may_requeue: true }, "waiting"),
        (ClaimState::Lapsed, "waiting"),
        (ClaimState::Gone, "gone"),
    ] {
        table.get(id(1)).unwrap().state = state.clone();
        assert_eq!(answer_word(&table, 1), answer, "{state:?}");
    }
}

#[test]
fn the_end_of_a_lease_loses_its_holds_and_rechecks_its_waiters() {
    let mut table = table(&[1, 2]);
    table.enter(&claim(3), OTHER_LEASE, at(0));
    table.hold(id(1), KEY, CONFIRMED, (at(0), at(20_000)));
    table.hold(id(3), KEY_BEHIND, CONFIRMED, (at(0), at(20_000)));
    let mut notifications = table.notifications_of_lost_lease(|entry| entry.data == LEASE);
    notifications.sort_by_key(|notification| !matches!(notification, Notification::Lost { .. }));
    let [Notification::Lost { id: lost, loss: Loss::Gone, .. }, Notification::Recheck { id: asked, .. }] =
        &notifications[..]
    else {
        panic!("{notifications:?}")
    };
    assert_eq!((*lost, *asked), (id(1), id(2)));
}

#[test]
fn a_claim_created_again_starts_from_its_initial_state() {
    let mut table = table(&[1]);
    table.hold(id(1), KEY, UNCONFIRMED, (at(0), at(2000)));
    table.enter(&claim(1), OTHER_LEASE, at(1000));
    assert_eq!((state(&mut table, 1), table.get(id(1)).unwrap().data), (ClaimState::Made, OTHER_LEASE));
    assert_eq!(table.begin_watches(at(5000)), []);
    assert_eq!(table.take_overdue(at(5000)), [], "nothing is left of the first");
}
