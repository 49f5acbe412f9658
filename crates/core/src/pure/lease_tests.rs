//! Tests of [`Lease`]: deadlines, renewals, loss and doubt.

use proptest::prelude::*;

use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

const TTL: Duration = Duration::from_secs(30);

fn lease(sent: u64) -> Lease {
    Lease::granted(at(sent), Some(TTL), TTL, Renewal::Background)
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
    lease.sent(at(10_000));
    assert_eq!(lease.step(at(10_001)), LeaseAction::Sleep(at(12_500)));
    assert_eq!(lease.step(at(12_500)), LeaseAction::Renew);
}

/// The time of the next renewal; nothing is due at `now`.
fn due(lease: &mut Lease, now: u64) -> Instant {
    match lease.step(at(now)) {
        LeaseAction::Sleep(at) => at,
        step => panic!("{step:?}"),
    }
}

#[test]
fn holds_of_a_group_are_renewed_together_once_they_were_renewed() {
    let group = Some(4711);
    let next = |came: u64| {
        let mut lease = lease(came);
        // The first renewal is not grouped, because a hold that ends before it needs none.
        assert_eq!(due(&mut lease, came), at(came / 20 * 20 + 10_000), "the first, as without a group");
        let mut sent = due(&mut lease, came);
        for _ in 0..3 {
            lease.sent(sent);
            lease.renewed(sent, sent.after(Duration::from_millis(1)), Some(TTL), group);
            let before = sent;
            sent = due(&mut lease, sent.as_nanos() / 1_000_000 + 1);
            assert!(sent <= before.after(TTL / 3) && sent >= before.after(TTL / 8), "{before:?} {sent:?}");
        }
        assert_eq!(due::in_group(sent, TTL, TTL, 4711), sent.after(TTL / 3));
        sent.as_nanos() % (TTL / 3).as_nanos() as u64
    };
    let first = next(0);
    assert!((1..10_000).step_by(13).all(|came| next(came) == first));
    let mut other = lease(0);
    other.renewed(at(10_000), at(10_001), Some(TTL), Some(4712));
    assert_ne!(due(&mut other, 10_001).as_nanos() % (TTL / 3).as_nanos() as u64, first);
}

#[test]
fn a_group_changes_nothing_of_a_silent_renewal_a_fixed_lease_or_a_doubt() {
    let group = Some(9);
    let mut silent = lease(0);
    silent.renewed(at(10_000), at(10_001), Some(TTL), group);
    silent.sent(at(15_000));
    assert_eq!(due(&mut silent, 15_001), at(17_500));
    let mut fixed = Lease::pushed(at(0), Some(Duration::from_secs(2)), TTL, Renewal::Off);
    fixed.renewed(at(500), at(501), Some(TTL), group);
    assert_eq!(due(&mut fixed, 501), at(500 + 29_400), "not renewed any more");
    let mut doubted = lease(0);
    doubted.renewed(at(10_000), at(10_001), Some(TTL), group);
    doubted.doubt(at(10_002));
    assert_eq!(doubted.step(at(10_002)), LeaseAction::Renew);
}

#[test]
fn only_an_acknowledged_renewal_moves_the_deadline() {
    let mut lease = lease(0);
    lease.sent(at(10_000));
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
    assert_eq!(late.step(at(29_400)), LeaseAction::Lost(Loss::Lapsed), "the answer came at the deadline");

    let mut broken = lease(0);
    broken.lose(Loss::Broken);
    broken.lose(Loss::Gone);
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
fn a_pushed_grant_is_renewed_early_even_if_fixed() {
    for renewal in [Renewal::Background, Renewal::Off] {
        let mut lease = Lease::pushed(at(5), Some(Duration::from_secs(2)), TTL, renewal);
        assert_eq!(lease.deadline(), at(5 + 1960));
        assert_eq!(lease.step(at(6)), LeaseAction::Sleep(at(5 + 500)), "most are over by then");
        assert_eq!(lease.step(at(505)), LeaseAction::Renew);
        lease.renewed(at(505), at(506), Some(TTL), None);
        assert_eq!(lease.deadline(), at(505 + 29_400));
    }
}

#[derive(Clone, Debug)]
enum RenewalAnswer {
    Sent,
    Renewed { sent_ago: u64, granted: u64, group: Option<u16> },
    Lose,
    Stop,
    Doubt,
}

fn renewal_answer() -> impl Strategy<Value = RenewalAnswer> {
    prop_oneof![
        4 => Just(RenewalAnswer::Sent),
        4 => (0u64..5_000, 100u64..60_000, any::<Option<u16>>())
            .prop_map(|(sent_ago, granted, group)| RenewalAnswer::Renewed { sent_ago, granted, group }),
        1 => Just(RenewalAnswer::Lose),
        1 => Just(RenewalAnswer::Stop),
        1 => Just(RenewalAnswer::Doubt),
    ]
}

proptest! {
    /// For all answers at all times: the deadline is never later than the deadline by the newest acknowledged request,
    /// and nothing revives a lost lease.
    #[test]
    fn validity_is_bounded_by_acknowledged_requests(events in prop::collection::vec((0u64..8_000, renewal_answer()), 0..60)) {
        let mut lease = lease(0);
        let mut now = 0;
        let mut bound = deadline(at(0), TTL);
        let mut newest = 0;
        let mut lost = None;
        let mut doubted = false;
        for (pause, event) in events {
            now += pause;
            let step = lease.step(at(now));
            if let Some(loss) = lost {
                prop_assert_eq!(step, LeaseAction::Lost(loss));
            }
            if let LeaseAction::Lost(loss) = step {
                lost = Some(loss);
            } else {
                prop_assert!(at(now) < bound, "valid at {now} ms, past {bound:?}");
            }
            match event {
                RenewalAnswer::Sent => lease.sent(at(now)),
                RenewalAnswer::Renewed { sent_ago, granted, group } => {
                    let sent = now.saturating_sub(sent_ago);
                    lease.renewed(at(sent), at(now), Some(Duration::from_millis(granted)), group);
                    if lost.is_none() && sent >= newest {
                        newest = sent;
                        doubted = false;
                        bound = deadline(at(sent), Duration::from_millis(granted));
                    }
                }
                RenewalAnswer::Lose => lease.lose(Loss::Gone),
                RenewalAnswer::Stop => lease.stop_renewal(),
                RenewalAnswer::Doubt => {
                    lease.doubt(at(now));
                    if lost.is_none() && !matches!(lease.step(at(now)), LeaseAction::Lost(_)) {
                        doubted = true;
                        newest = newest.max(now);
                    }
                }
            }
            prop_assert_eq!(lost.is_none() && lease.lost().is_none() && doubted, lease.lost().is_none() && lease.valid_until() != lease.deadline());
            prop_assert!(lost.is_some() || lease.deadline() <= bound);
        }
    }
}

#[test]
fn a_short_grant_is_renewed_at_its_own_interval() {
    let mut pushed = Lease::pushed(at(0), Some(Duration::from_secs(2)), TTL, Renewal::Background);
    assert_eq!(pushed.step(at(500)), LeaseAction::Renew);
    pushed.sent(at(500));
    let LeaseAction::Sleep(again) = pushed.step(at(501)) else { panic!("it was just sent") };
    assert!(again.after(Duration::from_secs(1)) < pushed.deadline(), "room for several more tries");
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
        lease.sent(at(9_000));
        lease.doubt(at(10_000));
        assert_eq!(lease.valid_until(), DOUBT);
        assert_eq!(lease.step(at(10_000)), LeaseAction::Renew);
        assert!(!lease.is_fresh(at(10_000)));
        let wanted = if renewal == Renewal::Off { Duration::from_millis(19_400) } else { TTL };
        assert_eq!(lease.asks_for(at(10_000)), wanted, "a fixed lease is not made longer");
        // This renewal was sent before the doubt, so it does not end the doubt.
        lease.renewed(at(9_000), at(10_001), Some(TTL), None);
        assert_eq!(lease.valid_until(), DOUBT);
        lease.sent(at(10_000));
        lease.renewed(at(10_000), at(10_002), Some(wanted), None);
        assert_eq!(lease.valid_until(), lease.deadline());
        assert!(lease.deadline() <= deadline(at(10_000), wanted));
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
    assert_eq!(fixed.asks_for(at(100)), TTL);
    fixed.renewed(at(100), at(101), Some(TTL), None);
    fixed.doubt(at(200));
    assert!(fixed.asks_for(at(200)) < TTL, "once only");
}
