//! Tests of the tally: votes and the decisions that follow.

use super::*;

const TTL: Duration = Duration::from_secs(10);

/// A vote of a node whose clock is at `micros`, with this newest token, and this token for the claim.
fn vote(micros: u64, newest: u64, first: u64) -> Ballot {
    let clock_lead = ClockLead { least: micros as i64, most: micros as i64 + 10 };
    let (ended, tokens) = (Previous::Clean, u32::from(first > 0));
    Ballot::Vote(Vote { micros, clock_lead, newest, ended, first, tokens, was_locked: false, is_new: false })
}

/// The same, with a lock that was there before.
fn locked_before(micros: u64, newest: u64, first: u64) -> Ballot {
    match vote(micros, newest, first) {
        Ballot::Vote(vote) => Ballot::Vote(Vote { was_locked: true, ..vote }),
        other => other,
    }
}

fn taken(millis: u64) -> Ballot {
    Ballot::Taken(Some(Duration::from_millis(millis)))
}

fn failed(fault: Fault) -> Ballot {
    Ballot::Failed(EngineError::new(fault, format!("{fault:?}")))
}

fn decided(guess: u64, last: bool, ballots: Vec<Ballot>) -> String {
    let mut tally = Tally::new(ballots.len(), TTL, guess);
    tally.ballots = ballots;
    match tally.decide(last) {
        Decision::Held { first, .. } => format!("held {first}"),
        Decision::Write { first, .. } => format!("write {first}"),
        Decision::Taken(left) => format!("taken {:?}", left.map(|left| left.as_millis())),
        Decision::Failed(error) => format!("failed {:?}", error.fault),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[test]
fn a_majority_decides_without_the_rest() {
    for (ballots, expected) in [
        (vec![vote(1000, 5, 2000), vote(1010, 7, 2000), Ballot::Open], "held 2000"),
        (vec![vote(1000, 5, 2000), Ballot::Open, Ballot::Open], "open"),
        (vec![vote(1000, 5, 2000), taken(30), Ballot::Open], "open"),
        (vec![taken(50), taken(30), Ballot::Open], "taken Some(50)"),
        (vec![vote(1000, 5, 2000), taken(50), taken(30)], "taken Some(30)"),
        (vec![vote(1000, 5, 2000), taken(50), failed(Fault::Retry)], "taken Some(50)"),
        (vec![Ballot::Taken(None), Ballot::Taken(None), vote(1, 0, 2000)], "taken None"),
        (vec![failed(Fault::Retry), failed(Fault::Unknown), Ballot::Open], "failed Retry"),
        (vec![failed(Fault::Denied), failed(Fault::Refused), vote(1, 0, 2000)], "failed Denied"),
        (vec![failed(Fault::Denied), failed(Fault::Retry), vote(1, 0, 2000)], "failed Retry"),
        (vec![Ballot::Absent, Ballot::Absent, Ballot::Open], "gone"),
        (vec![vote(1000, 5, 2000), vote(1010, 7, 2000), vote(1, 0, 0), taken(9), Ballot::Open], "write 2000"),
        (vec![vote(1000, 5, 2000), Ballot::Dead, Ballot::Open], "gone"),
    ] {
        let text = format!("{ballots:?}");
        assert_eq!(decided(2000, false, ballots), expected, "{text}");
    }
    let hung = vec![vote(1000, 5, 2000), taken(30), Ballot::Open];
    assert_eq!(decided(2000, true, hung), "taken Some(30)", "no other node is waited for");
}

#[test]
fn a_token_is_larger_than_seen_tokens_and_clocks() {
    for (guess, ballots, expected) in [
        // No guess was sent.
        (0, vec![vote(1000, 5, 0), vote(1010, 7, 0), Ballot::Open], "write 1010"),
        (0, vec![vote(1000, 5000, 0), vote(1010, 7, 0), Ballot::Open], "write 5001"),
        // One node has a larger token already.
        (2000, vec![vote(1000, 2000, 0), vote(1010, 7, 2000), Ballot::Open], "write 2001"),
        (2000, vec![vote(1000, 2600, 0), vote(1010, 7, 2000), Ballot::Open], "write 2601"),
        // The guess is behind a clock: a token which that node forgot may be as large.
        (2000, vec![vote(2500, 7, 2000), vote(2510, 7, 2000), Ballot::Open], "open"),
        (2000, vec![vote(2500, 7, 2000), vote(2510, 7, 2000), taken(9)], "write 2510"),
        // An answer was lost: the token that some have for this claim is written to the others, if the locks were there
        // all the time.
        (9000, vec![locked_before(3000, 2500, 2500), locked_before(3010, 7, 0), Ballot::Open], "open"),
        (9000, vec![locked_before(3000, 2500, 2500), locked_before(3010, 7, 0), taken(9)], "write 2500"),
        (9000, vec![locked_before(3000, 2500, 2500), vote(3010, 7, 0), taken(9)], "write 3010"),
        (9000, vec![locked_before(3000, 2500, 2500), locked_before(3010, 2700, 0), taken(9)], "write 3010"),
        (
            9000,
            vec![locked_before(3000, 2500, 2500), locked_before(3010, 2500, 2500), Ballot::Open],
            "held 2500",
        ),
    ] {
        let text = format!("{ballots:?}");
        assert_eq!(decided(guess, false, ballots), expected, "{text}");
    }
}

#[test]
fn a_node_with_a_differing_clock_has_no_vote() {
    const HOUR: u64 = 3_600_000_000;
    let two = |last| decided(2000, last, vec![vote(1000, 5, 2000), vote(HOUR, 7, 2000), Ballot::Open]);
    assert_eq!((two(false).as_str(), two(true).as_str()), ("open", "failed Retry"));
    let three = vec![vote(1000, 5, 2000), vote(HOUR, 7, 2000), vote(1020, 0, 2000)];
    assert_eq!(decided(2000, false, three), "held 2000");
    let three = vec![vote(1000, 5, 0), vote(HOUR, 7, 0), vote(1020, 0, 0)];
    assert_eq!(decided(0, false, three), "write 1020", "and says nothing of the time");
}

#[test]
fn a_majority_with_the_token_holds_and_a_raced_token_is_retried() {
    let mut tally = Tally::new(3, TTL, 0);
    tally.ballots = vec![vote(1000, 5, 0), vote(1010, 7, 0), Ballot::Open];
    tally.start_write(1010, 4);
    tally.record_write(0, true, None, 1013);
    assert!(matches!(tally.decide(true), Decision::Failed(_)));
    tally.record_write(1, false, None, 1500);
    assert_eq!(tally.next_token(), Some(1501));
    tally.start_write(1501, 4);
    tally.record_write(0, true, None, 1504);
    tally.record_write(1, true, None, 1504);
    assert!(matches!(tally.decide(false), Decision::Held { first: 1501, tokens: 4, .. }));
    tally.drop_vote(1, EngineError::new(Fault::Unknown, "the connection broke"));
    assert!(matches!(tally.decide(false), Decision::Open) && tally.next_token().is_none());
}

#[test]
fn the_newest_token_has_the_end_of_the_previous_hold() {
    let with = |newest: [u64; 2], ended: [Previous; 2], is_new: bool| {
        let mut tally = Tally::new(3, TTL, 2000);
        for node in 0..2 {
            tally.ballots[node] = vote(1000, newest[node], 2000);
            if let Ballot::Vote(vote) = &mut tally.ballots[node] {
                (vote.ended, vote.is_new) = (ended[node], is_new);
            }
        }
        match tally.decide(false) {
            Decision::Held { previous, .. } => previous,
            other => panic!("{other:?}"),
        }
    };
    use Previous::{Abandoned, Clean, Lapsed, Unknown};
    assert_eq!(with([3, 5], [Clean, Lapsed], false), Lapsed);
    assert_eq!(with([6, 5], [Abandoned, Lapsed], false), Abandoned);
    assert_eq!(with([0, 0], [Clean, Clean], false), Clean);
    assert_eq!(with([0, 0], [Clean, Clean], true), Unknown);
}
