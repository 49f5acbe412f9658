//! Mistakes of the core that the simulation must find. With each seed, a core with one mistake was found; when the
//! plans of seeds change, other seeds must replace them.

use crate::assert_no_violation;

/// Found a `Lease::renewed` that takes the answer to an older renewal for the newest state.
#[test]
fn an_answer_from_before_a_doubt_does_not_end_it() {
    assert_no_violation(&[88_518, 130_809]);
}

/// Found a keeper that ignores `Notification::Doubt`.
#[test]
fn a_hold_in_doubt_is_not_valid() {
    assert_no_violation(&[413, 625]);
}

/// Found a driver that forgets a notification received while its request was in flight.
#[test]
fn a_notification_that_overtakes_an_answer_is_used() {
    assert_no_violation(&[956]);
}

/// Found a driver that uses grants that lapsed in flight.
#[test]
fn a_grant_that_lapsed_in_flight_is_not_used() {
    assert_no_violation(&[3288]);
}

/// Found a release of a guard, beside others of its hold, that answers "freed" while the hold is in doubt.
#[test]
fn a_hold_in_doubt_is_not_reported_as_freed() {
    assert_no_violation(&[10_592, 13_609, 15_424]);
}

/// Found a release that always answers "freed".
#[test]
fn a_lapsed_hold_is_not_reported_as_freed() {
    assert_no_violation(&[303, 406]);
}
