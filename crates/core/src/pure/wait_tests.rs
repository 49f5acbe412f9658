//! Tests of [`Wait`]: pauses, poll intervals, and the end of a wait.

use proptest::prelude::*;

use super::*;
use crate::{Previous, Token};

/// The jitter with which a pause is half of its interval, and all of it.
const HALF_PAUSE: u32 = 0;
const FULL_PAUSE: u32 = u32::MAX;

/// Whether the engine pushes notifications.
const PUSH: bool = true;
const NO_PUSH: bool = false;

/// The profile of an engine whose poll intervals are 50 ms to 1 s.
fn profile(push: bool) -> Profile {
    Profile { push, poll: Duration::from_millis(50)..=Duration::from_secs(1), ..Profile::new("test") }
}

/// The time of the test; it does not pass.
fn now() -> Instant {
    Instant::from_nanos(1_000_000_000)
}

/// The pause that an answer at [`now`] leads to.
fn pause(action: &WaitAction) -> Duration {
    match action {
        WaitAction::Call { at, .. } => at.since(now()),
        other => panic!("expected a pause, got {other:?}"),
    }
}

/// A hint: how many claims are ahead, and after how many milliseconds to ask again.
fn hint(ahead: Option<u32>, ask_in_millis: Option<u64>) -> Hint {
    Hint { ahead, ask_in: ask_in_millis.map(Duration::from_millis), obstacle: None }
}

/// The answer of an engine that fails.
fn failed(fault: Fault) -> Result<Answer, EngineError> {
    Err(EngineError::new(fault, "a failure of the test"))
}

#[test]
fn a_queued_claim_with_push_asks_rarely() {
    let mut wait = Wait::new(&profile(PUSH), None);
    assert_eq!(wait.how(), How::Create);
    let action = wait.answered(Ok(Answer::Waiting(hint(Some(0), None))), now(), FULL_PAUSE);
    assert_eq!(pause(&action), Duration::from_secs(1));
    assert_eq!(wait.how(), How::Ask);
}

#[test]
fn a_pace_replaces_the_intervals_within_the_bounds_of_the_engine() {
    let pace = Pace::doubled(Duration::from_millis(30), Duration::from_secs(60)).without_jitter();
    let waiting = |ask_in| Ok(Answer::Waiting(hint(Some(3), ask_in)));
    for push in [PUSH, NO_PUSH] {
        let mut wait = Wait::new(&profile(push), None);
        wait.set_pace(Some(pace));
        let mut pause = |answer| pause(&wait.answered(answer, now(), FULL_PAUSE)).as_millis();
        assert_eq!([pause(waiting(None)), pause(waiting(None)), pause(waiting(Some(7)))], [30, 60, 7]);
        for _ in 0..9 {
            pause(waiting(None));
        }
        // A claim keeps its position in the queue only if it asks at the longest interval of the engine.
        assert_eq!(pause(waiting(None)), 1000);
        assert_eq!(pause(Ok(Answer::Taken(hint(None, None)))), 60_000, "no place to lose");
        assert_eq!(pause(failed(Fault::Full)), 50, "the pace does not count for a full server");
    }
    let mut wait = Wait::new(&profile(PUSH), None);
    wait.set_pace(Some(pace));
    assert_eq!(pause(&wait.answered(waiting(None), now(), FULL_PAUSE)).as_millis(), 30);
    let mut renewed = wait.with_new_id(&profile(PUSH), None);
    assert_eq!(pause(&renewed.answered(waiting(None), now(), FULL_PAUSE)).as_millis(), 60, "goes on");
}

#[test]
fn without_push_the_head_of_the_queue_asks_fastest() {
    let mut wait = Wait::new(&profile(NO_PUSH), None);
    let mut interval =
        |ahead| pause(&wait.answered(Ok(Answer::Waiting(hint(ahead, None))), now(), FULL_PAUSE));
    assert_eq!(interval(Some(0)), Duration::from_millis(50));
    assert_eq!(interval(Some(3)), Duration::from_millis(200));
    assert_eq!(interval(Some(10_000)), Duration::from_secs(1));
    assert_eq!(interval(None), Duration::from_secs(1));
}

#[test]
fn a_time_hint_is_used() {
    let mut wait = Wait::new(&profile(PUSH), None);
    let action = wait.answered(Ok(Answer::Waiting(hint(None, Some(7)))), now(), HALF_PAUSE);
    assert_eq!(pause(&action), Duration::from_millis(7));
    let action = wait.answered(Ok(Answer::Taken(hint(None, Some(3)))), now(), FULL_PAUSE);
    assert_eq!(pause(&action), Duration::from_millis(3));
}

#[test]
fn without_a_queue_entry_pauses_grow_to_a_bound() {
    let mut wait = Wait::new(&profile(NO_PUSH), None);
    let mut pauses = Vec::new();
    for _ in 0..40 {
        pauses.push(pause(&wait.answered(Ok(Answer::Taken(Hint::default())), now(), FULL_PAUSE)).as_millis());
    }
    assert_eq!(pauses[..6], [50, 100, 200, 400, 800, 1000]);
    assert!(pauses[6..].iter().all(|&pause| pause == 1000));
    assert_eq!(wait.how(), How::Create);
}

#[test]
fn a_restarted_wait_continues_after_a_refusal() {
    let mut wait = Wait::new(&profile(PUSH), None);
    assert!(
        matches!(wait.answered(failed(Fault::Refused), now(), HALF_PAUSE), WaitAction::Fail(_)),
        "it was never queued"
    );
    wait.answered(Ok(Answer::Waiting(hint(None, None))), now(), HALF_PAUSE);
    assert!(matches!(wait.answered(Ok(Answer::Gone), now(), HALF_PAUSE), WaitAction::Restart));
    let mut restarted = wait.with_new_id(&profile(PUSH), None);
    assert!(matches!(
        restarted.answered(failed(Fault::Refused), now(), HALF_PAUSE),
        WaitAction::Call { how: How::Create, .. }
    ));
}

#[test]
fn a_never_reached_engine_is_given_up_in_time() {
    let connect_deadline = now();
    let mut wait = Wait::new(&profile(NO_PUSH), Some(connect_deadline));
    let before_deadline = connect_deadline.before(Duration::from_millis(1));
    assert!(matches!(
        wait.answered(failed(Fault::Retry), before_deadline, HALF_PAUSE),
        WaitAction::Call { .. }
    ));
    assert!(matches!(wait.answered(failed(Fault::Retry), connect_deadline, HALF_PAUSE), WaitAction::Fail(_)));
    let action = wait.answered(failed(Fault::Unknown), connect_deadline, HALF_PAUSE);
    assert!(matches!(action, WaitAction::Call { .. }), "it may have been reached");
}

#[test]
fn the_last_try_to_reach_an_engine_is_made_at_the_limit() {
    let connect_deadline = now().after(Duration::from_millis(70));
    for fault in [Fault::Retry, Fault::Unknown] {
        let mut wait = Wait::new(&profile(NO_PUSH), Some(connect_deadline));
        assert_eq!(pause(&wait.answered(failed(fault), now(), FULL_PAUSE)), Duration::from_millis(50));
        assert_eq!(pause(&wait.answered(failed(fault), now(), FULL_PAUSE)), Duration::from_millis(70));
    }
}

#[test]
fn once_reached_outages_are_waited_out() {
    let mut wait = Wait::new(&profile(NO_PUSH), Some(now()));
    wait.answered(Ok(Answer::Waiting(Hint::default())), now(), HALF_PAUSE);
    for fault in [Fault::Retry, Fault::Unknown, Fault::Refused] {
        let action = wait.answered(failed(fault), now().after(Duration::from_secs(3600)), HALF_PAUSE);
        assert!(matches!(action, WaitAction::Call { how: How::Ask, .. }), "{fault:?}: {action:?}");
    }
}

#[test]
fn a_refusal_ends_a_wait_only_before_the_first_queue_entry() {
    let mut wait = Wait::new(&profile(NO_PUSH), None);
    wait.answered(Ok(Answer::Taken(Hint::default())), now(), HALF_PAUSE);
    assert!(matches!(
        wait.answered(failed(Fault::Refused), now(), HALF_PAUSE),
        WaitAction::Call { how: How::Create, .. }
    ));
}

#[test]
fn a_full_server_counts_as_reached_and_is_retried_with_growing_pauses() {
    let mut wait = Wait::new(&profile(NO_PUSH), Some(now()));
    let late = now().after(Duration::from_secs(3600));
    let mut pauses = Vec::new();
    for _ in 0..20 {
        match wait.answered(failed(Fault::Full), late, FULL_PAUSE) {
            WaitAction::Call { at, how: How::Create } => pauses.push(at.since(late).as_millis()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(pauses[..9], [50, 100, 200, 400, 800, 1600, 3200, 6400, 10_000]);
    assert!(pauses[9..].iter().all(|&pause| pause == 10_000));
}

#[test]
fn a_definite_refusal_ends_the_wait() {
    for fault in [Fault::Refused, Fault::Denied, Fault::Misconfigured, Fault::Internal] {
        let mut wait = Wait::new(&profile(PUSH), None);
        assert!(matches!(wait.answered(failed(fault), now(), HALF_PAUSE), WaitAction::Fail(_)));
    }
}

#[test]
fn an_unknown_create_is_created_again_under_the_same_id() {
    let mut wait = Wait::new(&profile(PUSH), None);
    assert!(matches!(
        wait.answered(failed(Fault::Unknown), now(), HALF_PAUSE),
        WaitAction::Call { how: How::Create, .. }
    ));
}

#[test]
fn a_forgotten_claim_is_created_again() {
    let mut wait = Wait::new(&profile(PUSH), None);
    assert!(matches!(wait.answered(Ok(Answer::Gone), now(), HALF_PAUSE), WaitAction::Restart));
}

/// Which answer it is (see the test below), how many claims are ahead, and the hint `ask_in` in milliseconds.
fn answer() -> impl Strategy<Value = (u8, Option<u32>, Option<u64>)> {
    (0u8..5, prop::option::of(any::<u32>()), prop::option::of(0u64..100_000))
}

proptest! {
    /// No pause is unbounded, and no pause is shorter than the profile allows, unless the engine's hint asked for it.
    #[test]
    fn every_pause_is_within_the_profile(push: bool, answers in prop::collection::vec((answer(), any::<u32>()), 1..50)) {
        let mut wait = Wait::new(&profile(push), None);
        for ((kind, ahead, ask_in), jitter) in answers {
            let answer = match kind {
                0 => Ok(Answer::Waiting(hint(ahead, ask_in))),
                1 => Ok(Answer::Taken(hint(ahead, ask_in))),
                2 => failed(Fault::Retry),
                3 => failed(Fault::Unknown),
                _ => Ok(Answer::Held(Grant {
                    token: Token { lineage: crate::Lineage::new(1), number: 1 }, tokens: 1, ttl: None, previous: Previous::Clean,
                })),
            };
            match wait.answered(answer, now(), jitter) {
                WaitAction::Call { at, .. } => {
                    let pause = at.since(now());
                    prop_assert!(pause <= Duration::from_secs(1));
                    let has_hint = kind < 2 && ask_in.is_some();
                    prop_assert!(has_hint || pause >= Duration::from_millis(25));
                }
                WaitAction::Held(_) => prop_assert_eq!(kind, 4),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }
}
