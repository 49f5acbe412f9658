//! Seeds whose lock was reported as wrong by mistake: the simulation had recorded something false, or the checker had
//! drawn a wrong conclusion. When the plans of seeds change, other seeds must replace them.

use crate::assert_no_violation;

/// A process is stopped at its grant, and its first renewal leaves before its user gets the guard: the server never
/// granted that lease.
#[test]
fn a_lease_counts_from_an_answered_request() {
    assert_no_violation(&[700_062_033, 700_220_292]);
}

/// One of several attempts is granted and its answer is lost. It blocks the name until it is cleaned up, and a later
/// attempt is granted.
#[test]
fn an_earlier_attempt_of_an_acquire_may_hold() {
    assert_no_violation(&[700_022_487]);
}

/// Other guards of the process may renew the hold.
#[test]
fn a_shared_hold_without_renewal_has_no_last_deadline() {
    assert_no_violation(&[9_050_774, 9_319_662]);
}

/// A process is stopped before it confirms a pushed grant.
#[test]
fn a_minimum_hold_counts_from_the_push() {
    assert_no_violation(&[9_166_925, 2_078_000_010_971]);
}

/// The request and its answer are slow, and a clock runs fast.
#[test]
fn a_request_may_be_repeated_without_a_fault() {
    assert_no_violation(&[9_061_936, 9_078_347, 9_135_182, 2_078_000_025_609]);
}

/// The owner entered the hold again, and released the guard with the minimum hold time first: the release of the other
/// guard applies it, later.
#[test]
fn the_last_release_applies_the_minimum_hold_of_the_first() {
    assert_no_violation(&[800_145_245]);
}

/// An operator broke the hold, and its user went on until its short lease ended. The waiter had been answered for a
/// longer lease. The end of a lease sends no notification. A lost notification is not excused: see the scenarios of the
/// checker that name `lapse`.
#[test]
fn a_lease_that_ends_without_a_notification_is_found_by_polling() {
    assert_no_violation(&[900_039_905]);
}

/// A process was stopped between reading the world's clock and its own, so that the recorded deadline was too early by
/// that time. By its own clock, which is slower than allowed, it held until its release, beside the next holder.
#[test]
fn a_deadline_is_read_at_one_moment() {
    assert_no_violation(&[900_129_278]);
}

/// A process is killed while it waits for a longer lease than any that was granted: its queue entry lasts by the
/// requested lease.
#[test]
fn the_entry_of_a_dead_process_lasts_by_its_requested_lease() {
    assert_no_violation(&[1_100_329_061]);
}

/// The holders report the loss by their own clocks, while earlier renewals are in flight: the server receives these,
/// and they count.
#[test]
fn a_renewal_in_flight_at_the_reported_loss_counts() {
    assert_no_violation(&[1_101_538_049, 1_101_717_169]);
}

/// The server's clock is set back, then another server takes over that does not know the newest grant: it mints the
/// same token again.
#[test]
fn a_token_minted_twice_fences_nothing() {
    assert_no_violation(&[1_101_718_674]);
}

/// The first attempt was granted, its answer was lost, and so was the first cleanup: it still blocked the name after
/// the second attempt had been granted and released.
#[test]
fn an_earlier_attempt_may_be_cleaned_up_after_the_release() {
    assert_no_violation(&[1_102_642_839]);
}

/// The release of a cancelled wait is repeated after each lost request: four of its process were lost.
#[test]
fn each_lost_request_delays_the_cleanup() {
    assert_no_violation(&[1_102_719_710]);
}
