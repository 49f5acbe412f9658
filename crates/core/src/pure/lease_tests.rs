//! Tests of [`Lease`]: deadlines, renewals, loss and doubt.

use proptest::prelude::*;

use super::*;

/// The instant `millis` milliseconds after the start of the test.
fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

const TTL: Duration = Duration::from_secs(30);

/// The lease of a request sent at this time in milliseconds.
fn lease(sent_at: u64) -> Lease {
    Lease::granted(at(sent_at), Some(TTL), TTL, Renewal::Background)
}

#[test]
fn the_deadline_counts_from_before_the_request_left() {
    // 30 s less 1 % drift less 1 % margin.
    assert_eq!(deadline(at(1000), TTL), at(1000 + 29_400));
    // Short leases keep a margin of at least 2 ms.
    assert_eq!(deadline(at(0), Duration::from_millis(100)), at(97));
}

#[test]
fn renewal_is_due_at_a_third_and_again_a_twelfth_later() {
    let mut lease = lease(0);
    assert_eq!(lease.step(at(9_999)), LeaseAction::Sleep(at(10_000)));
    assert_eq!(lease.step(at(10_000)), LeaseAction::Renew);
    lease.renewal_sent(at(10_000));
    assert_eq!(lease.step(at(10_001)), LeaseAction::Sleep(at(12_500)));
    assert_eq!(lease.step(at(12_500)), LeaseAction::Renew);
}

/// R13: the engine may not have told that the hold was broken, or its notification was lost.
#[test]
fn a_long_lease_is_asked_for_every_twenty_seconds() {
    let hour = Duration::from_secs(3600);
    let mut lease = Lease::granted(at(0), Some(hour), hour, Renewal::Background);
    assert_eq!(next_renewal(&mut lease, 0), at(20_000));
    lease.renewal_sent(at(20_000));
    assert_eq!(next_renewal(&mut lease, 20_000), at(40_000), "also if there is no answer");
    lease.renewed(at(40_000), at(40_001), Some(hour), None);
    assert_eq!(next_renewal(&mut lease, 40_001), at(60_000));
    let mut chosen = Lease::granted(at(0), Some(hour), hour, Renewal::Every(hour / 2));
    assert_eq!(next_renewal(&mut chosen, 0), at(1_800_000), "a chosen interval is kept");
}

#[test]
fn a_lease_is_renewed_as_often_as_its_user_wants() {
    let secs = Duration::from_secs;
    let mut lease = Lease::granted(at(0), Some(TTL), TTL, Renewal::Every(secs(2)));
    assert!(lease.is_renewed());
    assert_eq!(next_renewal(&mut lease, 0), at(2_000));
    lease.renewal_sent(at(2_000));
    assert_eq!(next_renewal(&mut lease, 2_000), at(4_000), "before a twelfth of the lease has passed");
    lease.renewed(at(4_000), at(4_001), Some(TTL), Some(7));
    assert_eq!(next_renewal(&mut lease, 4_001), at(6_000), "no turn of a group");
    let mut rare = Lease::granted(at(0), Some(TTL), TTL, Renewal::Every(secs(15)));
    assert_eq!(next_renewal(&mut rare, 0), at(15_000));
    rare.renewal_sent(at(15_000));
    assert_eq!(next_renewal(&mut rare, 15_000), at(17_500));
    rare.stop_renewal();
    assert!(!rare.is_renewed());
}

#[test]
fn an_extension_is_kept_by_later_renewals_and_delays_none() {
    for renewal in [Renewal::Background, Renewal::Off] {
        let mut lease = Lease::granted(at(0), Some(TTL), TTL, renewal);
        let until = at(100_000);
        lease.extend(at(0), until);
        lease.extend(at(0), at(50_000));
        let wanted = lease.requested_ttl(at(5_000));
        assert!(deadline(at(5_000), wanted) >= until, "{wanted:?}");
        lease.renewed(at(5_000), at(5_001), Some(wanted), None);
        assert!(lease.deadline() >= until);
        if renewal == Renewal::Background {
            assert_eq!(next_renewal(&mut lease, 5_001), at(15_000), "as without an extension");
            let next = lease.requested_ttl(at(15_000));
            lease.renewed(at(15_000), at(15_001), Some(next), None);
            assert!(lease.deadline() >= until, "a renewal does not shorten it");
        }
        assert_eq!(lease.requested_ttl(at(90_000)), TTL, "never less than the ttl");
    }
}

/// When the next renewal is due; none is due at `now`, in milliseconds.
fn next_renewal(lease: &mut Lease, now: u64) -> Instant {
    match lease.step(at(now)) {
        LeaseAction::Sleep(until) => until,
        action => panic!("{action:?}"),
    }
}

#[test]
fn holds_of_a_group_are_renewed_together_once_they_were_renewed() {
    let group = Some(4711);
    // The phase of the third renewal within the interval between turns, for a lease granted at this time.
    let phase_of = |granted_at: u64| {
        let mut lease = lease(granted_at);
        // The first renewal is not grouped, because a hold that ends before it needs none.
        assert_eq!(
            next_renewal(&mut lease, granted_at),
            // Rounded down to 20 ms.
            at(granted_at / 20 * 20 + 10_000),
            "the first, as without a group"
        );
        let mut sent_at = next_renewal(&mut lease, granted_at);
        for _ in 0..3 {
            lease.renewal_sent(sent_at);
            lease.renewed(sent_at, sent_at.after(Duration::from_millis(1)), Some(TTL), group);
            let earliest = sent_at.after(TTL / 8);
            let latest = sent_at.after(TTL / 3);
            sent_at = next_renewal(&mut lease, sent_at.as_nanos() / 1_000_000 + 1);
            assert!((earliest..=latest).contains(&sent_at), "{earliest:?} {latest:?} {sent_at:?}");
        }
        assert_eq!(due::due_in_group(sent_at, TTL, TTL, 4711), sent_at.after(TTL / 3));
        sent_at.as_nanos() % (TTL / 3).as_nanos() as u64
    };
    let first = phase_of(0);
    assert!((1..10_000).step_by(13).all(|granted_at| phase_of(granted_at) == first));
    let mut other_group = lease(0);
    other_group.renewed(at(10_000), at(10_001), Some(TTL), Some(4712));
    assert_ne!(next_renewal(&mut other_group, 10_001).as_nanos() % (TTL / 3).as_nanos() as u64, first);
}

#[test]
fn a_group_changes_nothing_of_an_unanswered_renewal_a_fixed_lease_or_a_doubt() {
    let group = Some(9);
    let mut unanswered = lease(0);
    unanswered.renewed(at(10_000), at(10_001), Some(TTL), group);
    unanswered.renewal_sent(at(15_000));
    assert_eq!(next_renewal(&mut unanswered, 15_001), at(17_500));
    let mut fixed = Lease::pushed(at(0), Some(Duration::from_secs(2)), TTL, Renewal::Off);
    fixed.renewed(at(500), at(501), Some(TTL), group);
    assert_eq!(next_renewal(&mut fixed, 501), at(500 + 29_400), "not renewed any more");
    let mut doubted = lease(0);
    doubted.renewed(at(10_000), at(10_001), Some(TTL), group);
    doubted.doubt(at(10_002));
    assert_eq!(doubted.step(at(10_002)), LeaseAction::Renew);
}

#[test]
fn only_an_acknowledged_renewal_moves_the_deadline() {
    let mut lease = lease(0);
    lease.renewal_sent(at(10_000));
    assert_eq!(lease.deadline(), at(29_400));
    lease.renewed(at(10_000), at(10_500), Some(TTL), None);
    assert_eq!(lease.deadline(), at(39_400), "counted from when the renewal left, not from its answer");
}

#[test]
fn an_answer_to_an_older_renewal_changes_nothing() {
    let mut lease = lease(0);
    lease.renewed(at(12_000), at(12_100), Some(TTL), None);
    lease.renewed(at(10_000), at(12_200), Some(TTL), None);
    assert_eq!(lease.deadline(), at(41_400));
}

#[test]
fn a_lost_lease_stays_lost() {
    let mut late = lease(0);
    late.renewed(at(29_399), at(29_400), Some(TTL), None);
    assert_eq!(
        late.step(at(29_400)),
        LeaseAction::Lost(Loss::Lapsed),
        "the answer granted_at at the deadline"
    );

    let mut broken = lease(0);
    broken.mark_lost(Loss::Broken);
    broken.mark_lost(Loss::Gone);
    broken.renewed(at(10), at(20), Some(TTL), None);
    assert_eq!(broken.step(at(30)), LeaseAction::Lost(Loss::Broken));
}

#[test]
fn a_fixed_lease_is_not_renewed() {
    let mut lease = Lease::granted(at(0), Some(TTL), TTL, Renewal::Off);
    assert_eq!(lease.step(at(15_000)), LeaseAction::Sleep(at(29_400)));
    assert_eq!(lease.step(at(29_400)), LeaseAction::Lost(Loss::Lapsed));
}

#[test]
fn stopping_renewal_keeps_the_deadline() {
    let mut lease = lease(0);
    lease.stop_renewal();
    assert_eq!(lease.step(at(15_000)), LeaseAction::Sleep(at(29_400)));
}

#[test]
fn holds_that_never_lapse_are_checked_by_the_ttl() {
    let mut lease = Lease::granted(at(0), None, TTL, Renewal::Background);
    assert_eq!(lease.deadline(), Instant::NEVER);
    assert_eq!(lease.step(at(10_000)), LeaseAction::Renew);
    let mut unchecked = Lease::granted(at(0), None, TTL, Renewal::Off);
    assert_eq!(unchecked.step(at(1 << 40)), LeaseAction::Sleep(Instant::NEVER));
}

#[test]
fn a_pushed_grant_is_renewed_early_even_without_renewals() {
    // The clocks of the server and of this machine may differ by 2 % of the time.
    let (claim_time, of_claim_time, of_ttl) = (2000, 2000 - 40, 30_000 - 600);
    for renewal in [Renewal::Background, Renewal::Off] {
        let mut lease = Lease::pushed(at(5), Some(Duration::from_millis(claim_time)), TTL, renewal);
        assert_eq!(lease.deadline(), at(5 + of_claim_time));
        assert_eq!(lease.step(at(6)), LeaseAction::Sleep(at(5 + 500)), "most are over by then");
        assert_eq!(lease.step(at(505)), LeaseAction::Renew);
        lease.renewed(at(505), at(506), Some(TTL), None);
        assert_eq!(lease.deadline(), at(505 + of_ttl));
    }
}

/// What happens to a lease; times are in milliseconds.
#[derive(Clone, Debug)]
enum LeaseEvent {
    /// A renewal is sent.
    RenewalSent,
    /// The answer to a renewal that was sent that long ago arrives.
    Renewed { sent_ago: u64, granted: u64, group: Option<u16> },
    /// The engine reports that the hold is gone.
    Lost,
    /// Renewing stops.
    RenewalStopped,
    /// The hold is put in doubt.
    Doubted,
}

fn lease_event() -> impl Strategy<Value = LeaseEvent> {
    prop_oneof![
        4 => Just(LeaseEvent::RenewalSent),
        4 => (0u64..5_000, 100u64..60_000, any::<Option<u16>>())
            .prop_map(|(sent_ago, granted, group)| LeaseEvent::Renewed { sent_ago, granted, group }),
        1 => Just(LeaseEvent::Lost),
        1 => Just(LeaseEvent::RenewalStopped),
        1 => Just(LeaseEvent::Doubted),
    ]
}

proptest! {
    /// For all answers at all times: the deadline of the lease is never later than the newest acknowledged request
    /// allows, and nothing revives a lost lease.
    #[test]
    fn validity_is_bounded_by_acknowledged_requests(events in prop::collection::vec((0u64..8_000, lease_event()), 0..60)) {
        let mut lease = lease(0);
        let mut now = 0;
        // What the events allow at most: the deadline, and the oldest request whose answer may still move it.
        let mut latest_deadline = deadline(at(0), TTL);
        let mut newest_request = 0;
        let mut lost = None;
        let mut in_doubt = false;
        for (pause, event) in events {
            now += pause;
            let action = lease.step(at(now));
            if let Some(loss) = lost {
                prop_assert_eq!(action, LeaseAction::Lost(loss));
            }
            if let LeaseAction::Lost(loss) = action {
                lost = Some(loss);
            } else {
                prop_assert!(at(now) < latest_deadline, "valid at {now} ms, past {latest_deadline:?}");
            }
            match event {
                LeaseEvent::RenewalSent => lease.renewal_sent(at(now)),
                LeaseEvent::Renewed { sent_ago, granted, group } => {
                    let sent_at = now.saturating_sub(sent_ago);
                    lease.renewed(at(sent_at), at(now), Some(Duration::from_millis(granted)), group);
                    if lost.is_none() && sent_at >= newest_request {
                        newest_request = sent_at;
                        in_doubt = false;
                        latest_deadline = deadline(at(sent_at), Duration::from_millis(granted));
                    }
                }
                LeaseEvent::Lost => lease.mark_lost(Loss::Gone),
                LeaseEvent::RenewalStopped => lease.stop_renewal(),
                LeaseEvent::Doubted => {
                    lease.doubt(at(now));
                    if lost.is_none() && !matches!(lease.step(at(now)), LeaseAction::Lost(_)) {
                        in_doubt = true;
                        newest_request = newest_request.max(now);
                    }
                }
            }
            let is_live = lease.lost().is_none();
            let shows_doubt = lease.valid_until() != lease.deadline();
            prop_assert_eq!(lost.is_none() && is_live && in_doubt, is_live && shows_doubt);
            prop_assert!(lost.is_some() || lease.deadline() <= latest_deadline);
        }
    }
}

#[test]
fn a_short_grant_is_renewed_at_its_own_interval() {
    let mut pushed = Lease::pushed(at(0), Some(Duration::from_secs(2)), TTL, Renewal::Background);
    assert_eq!(pushed.step(at(500)), LeaseAction::Renew);
    pushed.renewal_sent(at(500));
    let LeaseAction::Sleep(next_renewal) = pushed.step(at(501)) else { panic!("it was just sent") };
    assert!(next_renewal.after(Duration::from_secs(1)) < pushed.deadline(), "room for several more tries");
}

#[test]
fn a_lease_without_renewal_is_not_handed_over() {
    let mut lease = lease(0);
    assert!(lease.is_fresh(at(1)) && lease.is_renewed());
    lease.stop_renewal();
    assert!(!lease.is_fresh(at(1)) && !lease.is_renewed());
}

#[test]
fn a_hold_in_doubt_is_renewed_at_once_and_valid_when_confirmed() {
    for renewal in [Renewal::Background, Renewal::Off] {
        let mut lease = Lease::granted(at(0), Some(TTL), TTL, renewal);
        lease.renewal_sent(at(9_000));
        lease.doubt(at(10_000));
        assert_eq!(lease.valid_until(), DOUBT);
        assert_eq!(lease.step(at(10_000)), LeaseAction::Renew);
        assert!(!lease.is_fresh(at(10_000)));
        let requested = if renewal == Renewal::Off { Duration::from_millis(19_400) } else { TTL };
        assert_eq!(lease.requested_ttl(at(10_000)), requested, "a fixed lease is not made longer");
        // This renewal was sent before the doubt, so it does not end the doubt.
        lease.renewed(at(9_000), at(10_001), Some(TTL), None);
        assert_eq!(lease.valid_until(), DOUBT);
        lease.renewal_sent(at(10_000));
        lease.renewed(at(10_000), at(10_002), Some(requested), None);
        assert_eq!(lease.valid_until(), lease.deadline());
        assert!(lease.deadline() <= deadline(at(10_000), requested));
        lease.doubt(at(10_003));
        assert_eq!(lease.step(lease.deadline()), LeaseAction::Lost(Loss::Lapsed), "never confirmed");
    }
}

#[test]
fn a_pushed_grant_is_handed_over_before_its_renewal_is_confirmed() {
    let pushed = Lease::pushed(at(0), Some(Duration::from_secs(2)), TTL, Renewal::Background);
    assert!(pushed.is_fresh(at(1)) && pushed.is_fresh(at(1_200)) && !pushed.is_fresh(at(1_900)));
}

#[test]
fn a_doubted_pushed_lease_is_still_renewed_to_what_was_asked_for() {
    let mut fixed = Lease::pushed(at(0), Some(Duration::from_secs(2)), TTL, Renewal::Off);
    fixed.doubt(at(100));
    assert_eq!(fixed.requested_ttl(at(100)), TTL);
    fixed.renewed(at(100), at(101), Some(TTL), None);
    fixed.doubt(at(200));
    assert!(fixed.requested_ttl(at(200)) < TTL, "once only");
}

/// A hold of 30 s from 0 on, whose renewal is sent after 10 s: by then it has 20 s left, if no program changed that.
#[test]
fn a_changed_time_is_told_from_a_slow_answer() {
    let secs = |secs| TimeLeft::For(Duration::from_secs(secs));
    for (answered_at, left, change) in [
        (10_100, secs(20), None),
        (10_100, TimeLeft::Unknown, None),
        (10_100, TimeLeft::Endless, Some(TimeChange::Removed)),
        (10_100, secs(18), Some(TimeChange::Shortened)),
        (10_100, secs(0), Some(TimeChange::Shortened)),
        // The answer took 3 s: the time may have been measured at its end.
        (13_000, secs(17), None),
        (13_000, secs(15), Some(TimeChange::Shortened)),
        // Another renewal of ours, whose answer was lost, may have set the ttl anew.
        (10_100, secs(30), None),
        (10_100, secs(31), Some(TimeChange::Lengthened)),
    ] {
        let mut lease = lease(0);
        assert_eq!(lease.compare_time(at(10_000), at(answered_at), left), change, "{answered_at} {left:?}");
        assert_eq!(lease.compare_time(at(10_000), at(answered_at), left), None, "reported once");
        assert_eq!(lease.time_change(), change);
        lease.compare_time(at(10_000), at(10_100), secs(20));
        assert_eq!(
            lease.compare_time(at(10_000), at(answered_at), left),
            change,
            "reported after a renewal without a change"
        );
    }
}

#[test]
fn the_time_of_a_hold_in_doubt_or_without_an_end_is_not_compared() {
    let mut doubted = lease(0);
    doubted.doubt(at(5000));
    let mut endless = Lease::granted(at(0), None, TTL, Renewal::Background);
    for lease in [&mut doubted, &mut endless] {
        assert_eq!(lease.compare_time(at(10_000), at(10_100), TimeLeft::For(Duration::from_secs(1))), None);
        assert_eq!(lease.time_change(), None);
    }
}

proptest! {
    #[test]
    fn the_time_asked_for_is_enough(valid in 0..u64::MAX / 1_000_000_000) {
        let valid = Duration::from_micros(valid);
        prop_assert!(valid_for(time_for(valid)) >= valid);
        prop_assert!(time_for(valid) <= valid + valid / 40 + LEAST_MARGIN * 2);
    }
}

/// The answer to a renewal that asked for an extension was lost, and the engine had applied it.
#[test]
fn an_extension_whose_answer_was_lost_is_no_change_by_another_program() {
    let mut lease = lease(0);
    let left = TimeLeft::For(Duration::from_secs(600));
    assert_eq!(lease.compare_time(at(10_000), at(10_100), left), Some(TimeChange::Lengthened));
    lease.extend(at(10_000), at(600_000));
    assert_eq!(lease.compare_time(at(10_000), at(10_100), left), None);
}

/// The engine never shortens a hold, so until its end an extended hold has more time left than its renewals ask for.
#[test]
fn an_extended_hold_that_is_renewed_until_its_end_was_changed_by_nobody() {
    for (ttl, extension) in [(30_u64, 600_u64), (30, 3600), (10, 300), (1, 84_000)] {
        let (ttl, extension) = (Duration::from_secs(ttl), Duration::from_secs(extension));
        let mut lease = Lease::granted(at(0), Some(ttl), ttl, Renewal::Background);
        lease.extend(at(0), at(0).after(extension));
        let mut end = at(0).after(ttl);
        let mut sent_at = at(0);
        while sent_at < at(0).after(extension + ttl * 3) {
            let answered_at = sent_at.after(Duration::from_millis(2));
            let left = TimeLeft::For(end.since(sent_at));
            assert_eq!(
                lease.compare_time(sent_at, answered_at, left),
                None,
                "{ttl:?} {extension:?} {sent_at:?}"
            );
            // The engine answers with the time that was asked for, although it keeps a longer one.
            let asked = lease.requested_ttl(sent_at);
            end = end.max(answered_at.after(asked));
            lease.renewed(sent_at, answered_at, Some(asked), None);
            sent_at = sent_at.after(ttl / 3);
        }
    }
}

/// An answer to an older request than the one that set the deadline tells of the time before.
#[test]
fn an_outdated_answer_is_not_compared() {
    let mut lease = lease(0);
    lease.renewed(at(20_000), at(20_001), Some(TTL), None);
    let left = TimeLeft::For(Duration::from_secs(1));
    assert_eq!(lease.compare_time(at(10_000), at(20_002), left), None);
    assert_eq!(lease.compare_time(at(20_000), at(20_002), left), Some(TimeChange::Shortened));
    assert_eq!(lease.compare_time(at(20_000), at(20_003), TimeLeft::Unknown), None);
    assert_eq!(lease.time_change(), Some(TimeChange::Shortened), "nothing newer is known");
}
