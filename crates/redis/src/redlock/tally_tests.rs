//! Tests of the tally: votes and the decisions that follow.

use super::*;

/// The ttl of the claim.
const TTL: Duration = Duration::from_secs(10);

/// A vote of a node whose clock is at `node_micros`, with this newest token, and this token for the claim.
fn vote(node_micros: u64, newest_token: u64, first_token: u64) -> Ballot {
    let clock_lead = ClockLead { least: node_micros as i64, most: node_micros as i64 + 10 };
    let (newest_hold_ended, tokens) = (Previous::Clean, u32::from(first_token > 0));
    Ballot::Vote(Vote {
        node_micros,
        clock_lead,
        newest_token,
        newest_hold_ended,
        first_token,
        tokens,
        was_locked: false,
        is_data_new: false,
    })
}

/// A vote as [`vote`] makes it, of a node that had the lock of the claim before.
fn locked_before(node_micros: u64, newest_token: u64, first_token: u64) -> Ballot {
    match vote(node_micros, newest_token, first_token) {
        Ballot::Vote(vote) => Ballot::Vote(Vote { was_locked: true, ..vote }),
        other => other,
    }
}

/// The answer of a node where another lock lasts for this many milliseconds more.
fn taken(millis: u64) -> Ballot {
    Ballot::Taken(Some(Duration::from_millis(millis)))
}

/// The failure of a node to give a vote.
fn failed(fault: Fault) -> Ballot {
    Ballot::Failed(EngineError::new(fault, format!("{fault:?}")))
}

/// The decision about a claim with this guessed token and these ballots.
fn decided(guessed_token: u64, is_final: bool, ballots: Vec<Ballot>) -> String {
    let mut tally = Tally::new(ballots.len(), TTL, guessed_token);
    tally.ballots = ballots;
    match tally.decide(is_final) {
        Decision::Held { first_token, .. } => format!("held {first_token}"),
        Decision::Write { first_token, .. } => format!("write {first_token}"),
        Decision::Taken(ask_in) => format!("taken {:?}", ask_in.map(|ask_in| ask_in.as_millis())),
        Decision::Failed(error) => format!("failed {:?}", error.fault),
        other => format!("{other:?}").to_lowercase(),
    }
}

#[test]
fn a_majority_decides_without_the_rest() {
    // vote(time of the node, its newest token, its token for the claim)
    for (ballots, expected) in [
        // A majority has the token.
        (vec![vote(1000, 5, 2000), vote(1010, 7, 2000), Ballot::Pending], "held 2000"),
        // One vote of three, and answers to come.
        (vec![vote(1000, 5, 2000), Ballot::Pending, Ballot::Pending], "undecided"),
        (vec![vote(1000, 5, 2000), taken(30), Ballot::Pending], "undecided"),
        // Other locks are in the way on so many nodes that no majority is left: the time until one may be.
        (vec![taken(50), taken(30), Ballot::Pending], "taken Some(50)"),
        (vec![vote(1000, 5, 2000), taken(50), taken(30)], "taken Some(30)"),
        (vec![vote(1000, 5, 2000), taken(50), failed(Fault::Retry)], "taken Some(50)"),
        (vec![Ballot::Taken(None), Ballot::Taken(None), vote(1, 0, 2000)], "taken None"),
        // So many nodes fail that no majority is left.
        (vec![failed(Fault::Retry), failed(Fault::Unknown), Ballot::Pending], "failed Retry"),
        (vec![failed(Fault::Denied), failed(Fault::Refused), vote(1, 0, 2000)], "failed Denied"),
        (vec![failed(Fault::Denied), failed(Fault::Retry), vote(1, 0, 2000)], "failed Retry"),
        // A majority does not know the claim.
        (vec![Ballot::Absent, Ballot::Absent, Ballot::Pending], "gone"),
        // A majority has the lock, and one node of that majority refused the token: the token is written again.
        (
            vec![vote(1000, 5, 2000), vote(1010, 7, 2000), vote(1, 0, 0), taken(9), Ballot::Pending],
            "write 2000",
        ),
        // A node knows that the claim has ended.
        (vec![vote(1000, 5, 2000), Ballot::Dead, Ballot::Pending], "gone"),
    ] {
        let description = format!("{ballots:?}");
        assert_eq!(decided(2000, false, ballots), expected, "{description}");
    }
    // No more answers are expected.
    let ballots = vec![vote(1000, 5, 2000), taken(30), Ballot::Pending];
    assert_eq!(decided(2000, true, ballots), "taken Some(30)", "no other node is waited for");
}

#[test]
fn a_token_is_larger_than_seen_tokens_and_clocks() {
    // vote(time of the node, its newest token, its token for the claim)
    for (guessed_token, ballots, expected) in [
        // No guess was sent.
        (0, vec![vote(1000, 5, 0), vote(1010, 7, 0), Ballot::Pending], "write 1010"),
        (0, vec![vote(1000, 5000, 0), vote(1010, 7, 0), Ballot::Pending], "write 5001"),
        // One node has a larger token already.
        (2000, vec![vote(1000, 2000, 0), vote(1010, 7, 2000), Ballot::Pending], "write 2001"),
        (2000, vec![vote(1000, 2600, 0), vote(1010, 7, 2000), Ballot::Pending], "write 2601"),
        // The guess is behind the clock of a node: a token that this node has forgotten may be as large.
        (2000, vec![vote(2500, 7, 2000), vote(2510, 7, 2000), Ballot::Pending], "undecided"),
        (2000, vec![vote(2500, 7, 2000), vote(2510, 7, 2000), taken(9)], "write 2510"),
        // An answer was lost. The token that some nodes have for this claim is written on the other nodes, if the lock
        // of the claim was on a majority of the nodes before. locked_before(time of the node, its newest token, its
        // token for the claim)
        (
            9000,
            vec![locked_before(3000, 2500, 2500), locked_before(3010, 7, 0), Ballot::Pending],
            "undecided",
        ),
        (9000, vec![locked_before(3000, 2500, 2500), locked_before(3010, 7, 0), taken(9)], "write 2500"),
        // One lock was not there before, so another claim can have held since: a new token is written.
        (9000, vec![locked_before(3000, 2500, 2500), vote(3010, 7, 0), taken(9)], "write 3010"),
        // Another token is larger: a new token is written.
        (9000, vec![locked_before(3000, 2500, 2500), locked_before(3010, 2700, 0), taken(9)], "write 3010"),
        // A majority has the token.
        (
            9000,
            vec![locked_before(3000, 2500, 2500), locked_before(3010, 2500, 2500), Ballot::Pending],
            "held 2500",
        ),
    ] {
        let description = format!("{ballots:?}");
        assert_eq!(decided(guessed_token, false, ballots), expected, "{description}");
    }
}

#[test]
fn a_node_with_a_differing_clock_has_no_vote() {
    const HOUR: u64 = 3_600_000_000;
    // vote(time of the node, its newest token, its token for the claim)
    let with_two_votes =
        |is_final| decided(2000, is_final, vec![vote(1000, 5, 2000), vote(HOUR, 7, 2000), Ballot::Pending]);
    assert_eq!(
        (with_two_votes(false).as_str(), with_two_votes(true).as_str()),
        ("undecided", "failed Retry")
    );
    let three_votes = vec![vote(1000, 5, 2000), vote(HOUR, 7, 2000), vote(1020, 0, 2000)];
    assert_eq!(decided(2000, false, three_votes), "held 2000");
    let three_votes = vec![vote(1000, 5, 0), vote(HOUR, 7, 0), vote(1020, 0, 0)];
    assert_eq!(
        decided(0, false, three_votes),
        "write 1020",
        "the token need not be above the differing clock"
    );
}

#[test]
fn a_majority_with_the_token_holds_and_a_raced_token_is_retried() {
    let mut tally = Tally::new(3, TTL, 0);
    tally.ballots = vec![vote(1000, 5, 0), vote(1010, 7, 0), Ballot::Pending];
    tally.start_write(1010, 4);
    tally.record_write(0, true, None, 1013);
    assert!(matches!(tally.decide(true), Decision::Failed(_)));
    tally.record_write(1, false, None, 1500);
    assert_eq!(tally.next_token(), Some(1501));
    tally.start_write(1501, 4);
    tally.record_write(0, true, None, 1504);
    tally.record_write(1, true, None, 1504);
    assert!(matches!(tally.decide(false), Decision::Held { first_token: 1501, tokens: 4, .. }));
    tally.drop_vote(1, EngineError::new(Fault::Unknown, "the connection broke"));
    assert!(matches!(tally.decide(false), Decision::Undecided) && tally.next_token().is_none());
}

#[test]
fn the_newest_token_has_the_end_of_the_previous_hold() {
    let previous_with = |newest_token: [u64; 2], newest_hold_ended: [Previous; 2], is_data_new: bool| {
        let mut tally = Tally::new(3, TTL, 2000);
        for node in 0..2 {
            tally.ballots[node] = vote(1000, newest_token[node], 2000);
            if let Ballot::Vote(vote) = &mut tally.ballots[node] {
                (vote.newest_hold_ended, vote.is_data_new) = (newest_hold_ended[node], is_data_new);
            }
        }
        match tally.decide(false) {
            Decision::Held { previous, .. } => previous,
            other => panic!("{other:?}"),
        }
    };
    use Previous::{Abandoned, Clean, Lapsed, Unknown};
    assert_eq!(previous_with([3, 5], [Clean, Lapsed], false), Lapsed);
    assert_eq!(previous_with([6, 5], [Abandoned, Lapsed], false), Abandoned);
    assert_eq!(previous_with([0, 0], [Clean, Clean], false), Clean);
    assert_eq!(previous_with([0, 0], [Clean, Clean], true), Unknown);
}
