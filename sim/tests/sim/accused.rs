//! Seeds in which the lock was accused, and did no wrong: the simulation had written down what was not so, or the checker had drawn a
//! wrong conclusion. When the plans of seeds change, others must take their place.

use crate::stands;

/// A process stands still when it is granted, and its first renewal leaves before its user is told: the server never kept that lease.
#[test]
fn a_lease_counts_from_what_the_server_answered() {
    stands(&[700_062_033, 700_220_292]);
}

/// One of several tries is granted, its answer is lost, and it is in the way until it is cleaned up; a later one is granted.
#[test]
fn an_earlier_try_of_an_acquire_may_hold() {
    stands(&[700_022_487]);
}

/// Others of the process may renew it.
#[test]
fn a_shared_hold_that_is_not_renewed_has_no_last_deadline() {
    stands(&[9_050_774, 9_319_662]);
}

/// A process stands still before it confirms what was pushed to it.
#[test]
fn what_is_kept_counts_from_the_push() {
    stands(&[9_166_925, 2_078_000_010_971]);
}

/// Its way and its answer are slow, and a clock runs fast.
#[test]
fn a_request_may_be_sent_again_where_nothing_goes_wrong() {
    stands(&[9_061_936, 9_078_347, 9_135_182, 2_078_000_025_609]);
}

/// Its owner entered it again and wanted it kept, and let go of that first: the release of the other one has it kept, a while later.
#[test]
fn what_is_kept_for_the_first_is_kept_by_the_release_of_the_last() {
    stands(&[800_145_245]);
}

/// An operator broke it, its user went on until its short lease was over, and who waited had been told when a longer one may be over.
/// Nothing rings then. What rings is not excused: the tales of the checker that name `lapse`.
#[test]
fn a_lease_that_runs_out_unheard_is_found_by_the_poll() {
    stands(&[900_039_905]);
}

/// A process stood still between the world's clock and its own, so that the deadline of its hold was written down too early by as much.
/// By its own clock, which is slower than allowed for, it held until it let go, beside who was granted the lock meanwhile.
#[test]
fn a_deadline_is_read_at_one_moment() {
    stands(&[900_129_278]);
}

/// A process is killed while it waits for a longer lease than anybody was granted: its place in line lasts as long as what it asked for.
#[test]
fn the_place_of_who_died_stands_for_the_lease_that_it_asked_for() {
    stands(&[1_100_329_061]);
}

/// Their holders were told the loss by their own clocks, while renewals from before it were under way: these came, and counted.
#[test]
fn a_renewal_that_was_under_way_when_the_loss_was_told_counts() {
    stands(&[1_101_538_049, 1_101_717_169]);
}

/// The server's clock is set back, then another server takes over that has not heard of the newest grant: it mints the same token again.
#[test]
fn a_token_that_was_minted_twice_is_no_fence() {
    stands(&[1_101_718_674]);
}

/// Its first try was granted, the answer was lost, and so was the first request to clean it up: it was in the way after the second one
/// had been granted and released.
#[test]
fn an_earlier_try_may_be_cleaned_up_after_the_release() {
    stands(&[1_102_642_839]);
}

/// The release of a cancelled wait is sent again after each request that comes to nothing: four of its process did.
#[test]
fn each_request_that_is_lost_puts_off_the_cleaning_up() {
    stands(&[1_102_719_710]);
}
