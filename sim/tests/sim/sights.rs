//! What the simulation must see of the core. Each seed is one in which a core that was broken by hand was found out; when the
//! plans of seeds change, others must take their place.

use crate::stands;

/// Found out when `Lease::renewed` takes the answer to an older renewal for the newest truth.
#[test]
fn an_answer_from_before_a_doubt_dispels_nothing() {
    stands(&[88_518, 130_809]);
}

/// Found out when the keeper does nothing about `Notification::Doubt`.
#[test]
fn a_hold_in_doubt_is_not_believed_in() {
    stands(&[413, 625]);
}

/// Found out when a driver forgets what rang while its request was under way.
#[test]
fn notifications_that_overtakes_an_answer_is_not_forgotten() {
    stands(&[956]);
}

/// Found out when a driver takes grants that lapsed on their way.
#[test]
fn what_lapsed_on_its_way_is_given_to_nobody() {
    stands(&[3288]);
}

/// Found out when the release of a guard beside others of its hold answers "freed" while the hold is in doubt.
#[test]
fn a_hold_in_doubt_is_not_called_freed() {
    stands(&[10_592, 13_609, 15_424]);
}

/// Found out when it answers so, whatever became of the hold.
#[test]
fn a_hold_that_lapsed_is_not_called_freed() {
    stands(&[303, 406]);
}
