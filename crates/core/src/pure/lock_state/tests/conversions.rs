//! Tests of downgrades and upgrades.

use crate::{
    Answer, Grant, How, Loss,
    Mode::{Exclusive, Shared},
    Previous, Upgraded,
    pure::lock_state::fixture::*,
};

fn upgraded(answer: Upgraded) -> Grant {
    match answer {
        Upgraded::Held(grant) => grant,
        other => panic!("not upgraded: {other:?}"),
    }
}

#[test]
fn a_downgrade_lets_in_the_readers_ahead_of_the_next_writer() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    for (number, mode) in [(2, Shared), (3, Shared), (4, Exclusive), (5, Shared)] {
        fixture.wait(number, mode);
    }
    fixture.downgrade(1, grant.token).unwrap();
    assert_eq!(fixture.notified(), [2, 3]);
    assert!(fixture.pushed.iter().all(|pushed| pushed.grant.previous == Previous::Clean));
    assert_eq!((fixture.wait(4, Exclusive), fixture.wait(5, Shared)), (0, 1), "both keep their places");
    for number in [2, 3] {
        assert!(
            fixture.release(number, None) && fixture.notified().is_empty(),
            "the downgraded hold is there"
        );
    }
    assert!(fixture.release(1, grant.token), "it keeps its token");
    assert_eq!(fixture.notified(), [4]);
}

#[test]
fn a_repeated_downgrade_extends_the_hold_and_changes_nothing_else() {
    let mut fixture = Fixture::new();
    let grant = fixture.hold(1, Exclusive);
    fixture.downgrade(1, grant.token).unwrap();
    fixture.hold(2, Shared);
    fixture.advance(29_000);
    fixture.downgrade(1, grant.token).unwrap();
    fixture.advance(2_000);
    assert_eq!(fixture.renew(1, grant.token), Ok(()), "extended by the second request");
    assert_eq!(fixture.downgrade(2, token(99)), Err(Loss::Gone), "another token");
    assert_eq!(fixture.downgrade(3, grant.token), Err(Loss::Gone), "another claim");
}

#[test]
fn the_writer_that_downgraded_ended_clean_for_later_grants() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    fixture.advance(31_000);
    let grant = fixture.hold(2, Exclusive);
    assert_eq!(grant.previous, Previous::Lapsed);
    fixture.downgrade(2, grant.token).unwrap();
    assert_eq!(fixture.hold(3, Shared).previous, Previous::Clean, "the data were mended");
    fixture.advance(31_000);
    assert_eq!(fixture.hold(4, Exclusive).previous, Previous::Lapsed, "the readers lapsed");
}

#[test]
fn the_only_reader_is_upgraded_with_a_larger_token() {
    let mut fixture = Fixture::new();
    let reader = fixture.hold(1, Shared);
    let writer = upgraded(fixture.upgrade(1, reader.token, 2));
    assert!(writer.token.number > reader.token.number);
    assert_eq!(upgraded(fixture.upgrade(1, reader.token, 2)).token, writer.token, "the same answer");
    assert_eq!(fixture.wait(3, Shared), 0, "it is exclusive");
    assert_eq!(fixture.renew(1, reader.token), Err(Loss::Gone));
    assert!(matches!(fixture.call(&claim(1, Shared), How::Create), Ok(Answer::Gone)), "a late request");
    assert!(!fixture.release(1, reader.token), "the shared hold has ended");
    assert!(fixture.release(2, writer.token));
    assert_eq!(fixture.notified(), [3]);
}

#[test]
fn an_upgrade_beside_a_reader_or_a_waiter_changes_nothing() {
    let mut fixture = Fixture::new();
    let (first, second) = (fixture.hold(1, Shared), fixture.hold(2, Shared));
    for (number, grant, new) in [(1, &first, 11), (2, &second, 12)] {
        assert!(matches!(fixture.upgrade(number, grant.token, new), Upgraded::Taken), "two upgraders");
    }
    assert!(fixture.release(2, second.token));
    fixture.wait(3, Exclusive);
    assert!(matches!(fixture.upgrade(1, first.token, 11), Upgraded::Taken), "a writer waits");
    assert_eq!(fixture.view().waiters.len(), 1, "nothing of the upgrade is left");
    assert!(fixture.release(3, None));
    upgraded(fixture.upgrade(1, first.token, 11));
}

#[test]
fn a_released_upgrade_is_not_applied_later() {
    let mut fixture = Fixture::new();
    let reader = fixture.hold(1, Shared);
    assert!(!fixture.release(2, None));
    assert!(matches!(fixture.upgrade(1, reader.token, 2), Upgraded::Taken));
    assert_eq!(fixture.renew(1, reader.token), Ok(()));
}

#[test]
fn a_hold_that_is_gone_or_broken_is_not_converted() {
    let mut fixture = Fixture::new();
    let (reader, writer) = (fixture.hold(1, Shared), 2);
    assert!(matches!(fixture.upgrade(1, token(99), writer), Upgraded::Lost(Loss::Gone)), "another token");
    assert!(matches!(fixture.upgrade(7, reader.token, writer), Upgraded::Lost(Loss::Gone)), "another claim");
    fixture.break_hold(reader.token.number, false);
    assert!(matches!(fixture.upgrade(1, reader.token, writer), Upgraded::Lost(Loss::Broken)));
    assert!(fixture.release(1, reader.token));
    let grant = fixture.hold(3, Exclusive);
    assert!(
        matches!(fixture.upgrade(3, grant.token, 4), Upgraded::Lost(Loss::Gone)),
        "it is exclusive already"
    );
    fixture.break_hold(grant.token.number, false);
    assert_eq!(fixture.downgrade(3, grant.token), Err(Loss::Broken));
    fixture.advance(31_000);
    fixture.settle();
    assert!(!fixture.lock.is_used());
}

#[test]
fn a_pushed_grant_that_is_downgraded_is_confirmed() {
    let mut fixture = Fixture::new();
    fixture.hold(1, Exclusive);
    fixture.wait(2, Exclusive);
    assert!(fixture.release(1, None));
    let grant = fixture.pushed[0].grant.clone();
    fixture.downgrade(2, grant.token).unwrap();
    fixture.advance(5_000);
    assert_eq!(fixture.renew(2, grant.token), Ok(()), "the claim time is over");
}
