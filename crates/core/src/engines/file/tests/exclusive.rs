//! Exclusive holds, also when processes are killed or stopped.

use nix::sys::signal::Signal;

use super::{helper::Helper, *};

#[test]
fn a_free_name_is_held_and_a_held_one_is_taken() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.engine(), scratch.engine());
    let first = claim("job", Mode::Exclusive);
    let grant = held(create(&one, &first));
    assert_eq!((grant.token.number, grant.tokens, grant.ttl, grant.previous), (1, 1, None, Previous::Clean));
    for engine in [&one, &two] {
        taken(create(engine, &try_claim("job", Mode::Exclusive)));
        taken(create(engine, &try_claim("job", Mode::Shared)));
        held(create(engine, &try_claim(&format!("other-{engine:p}"), Mode::Exclusive)));
    }
    release_claim(&one, &first);
    assert_eq!(held(create(&two, &try_claim("job", Mode::Exclusive))).token.number, 2);
}

#[test]
fn verbs_are_idempotent_by_id() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    assert!(matches!(ask(&engine, &first), Ok(Answer::Gone)), "asking creates nothing");
    let grant = held(create(&engine, &first));
    assert_eq!(held(create(&engine, &first)).token, grant.token);
    assert_eq!(held(ask(&engine, &first)).token, grant.token);
    release_claim(&engine, &first);
    assert!(matches!(release(&engine, &first), Released::NotThere));
    assert!(
        matches!(create(&engine, &first), Ok(Answer::Gone)),
        "a late claim of a released id creates nothing"
    );
    held(create(&engine, &try_claim("job", Mode::Exclusive)));
}

#[test]
fn a_release_before_its_claim_leaves_a_tombstone() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let late = claim("job", Mode::Exclusive);
    assert!(matches!(release(&engine, &late), Released::NotThere));
    assert!(matches!(create(&engine, &late), Ok(Answer::Gone)));
    held(create(&engine, &try_claim("job", Mode::Exclusive)));
}

#[test]
fn only_the_matching_grant_is_released_or_renewed() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let first = claim("job", Mode::Exclusive);
    let token = held(create(&engine, &first)).token;
    let wrong = Token { number: token.number + 1, ..token };
    assert!(matches!(renew(&engine, &first, wrong), Renewed::Lost(crate::Loss::Gone)));
    assert!(matches!(renew(&engine, &first, token), Renewed::Extended { ttl: None, .. }));
    assert!(matches!(send_release(&engine, release_request(&first, Some(token))), Released::Freed));
    assert!(matches!(renew(&engine, &first, token), Renewed::Lost(crate::Loss::Gone)));
    let next = claim("job", Mode::Exclusive);
    held(create(&engine, &next));
    assert!(matches!(send_release(&engine, release_request(&next, Some(token))), Released::NotThere));
    held(create(&engine, &try_claim("job", Mode::Exclusive)));
}

#[test]
fn a_killed_holder_frees_the_name_at_once() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    for mode_word in ["exclusive", "shared", "1/1"] {
        let mut helper = Helper::start(&scratch.dir());
        assert!(
            helper.request(&format!("claim {} {mode_word}", mode_word.replace('/', "-"))).starts_with("held")
        );
        let text = mode_word.replace('/', "-");
        let mode = if mode_word == "1/1" { Mode::Permits { count: 1, limit: 1 } } else { Mode::Exclusive };
        taken(create(&engine, &try_claim(&text, mode)));
        helper.kill();
        let grant = held(create(&engine, &try_claim(&text, mode)));
        assert_eq!(grant.previous, Previous::Lapsed, "{mode_word}");
    }
}

#[test]
fn a_stopped_holder_still_holds() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    let mut helper = Helper::start(&scratch.dir());
    helper.request("claim job exclusive");
    helper.signal(Signal::SIGSTOP);
    let waiter = claim("job", Mode::Exclusive);
    waiting(create(&engine, &waiter));
    waiting(ask(&engine, &waiter));
    helper.signal(Signal::SIGCONT);
    assert_eq!(helper.request("release"), "Freed");
    assert_eq!(held(ask(&engine, &waiter)).previous, Previous::Clean);
}

#[test]
fn the_next_grant_reports_how_the_last_hold_ended() {
    let scratch = Scratch::new();
    let engine = scratch.engine();
    for mode in [Mode::Exclusive, Mode::Shared, PERMIT] {
        let text = mode.word();
        for (ended, expected) in
            [(Previous::Abandoned, Previous::Abandoned), (Previous::Clean, Previous::Clean)]
        {
            let first = claim(text, mode);
            let token = held(create(&engine, &first)).token;
            send_release(&engine, Release { ended, ..release_request(&first, Some(token)) });
            let next = claim(text, mode);
            assert_eq!(held(create(&engine, &next)).previous, expected, "{mode}");
            release_claim(&engine, &next);
        }
    }
}

#[test]
fn a_release_frees_the_name_despite_an_inherited_descriptor() {
    let scratch = Scratch::new();
    let (engine, first) = (scratch.engine(), claim("job", Mode::Exclusive));
    held(create(&engine, &first));
    let _inherited = engine.descriptor(first.id).unwrap().expect("it holds");
    release_claim(&engine, &first);
    held(create(&scratch.engine(), &try_claim("job", Mode::Exclusive)));
}

#[test]
fn a_child_with_the_inherited_descriptor_still_holds() {
    let scratch = Scratch::new();
    let (engine, other) = (scratch.engine(), scratch.engine());
    let first = claim("job", Mode::Exclusive);
    held(create(&engine, &first));
    let inherited = engine.descriptor(first.id).unwrap().unwrap();
    let mut child = program("sleep").arg("1000").stdin(inherited).spawn().unwrap();
    drop(engine);
    taken(create(&other, &try_claim("job", Mode::Exclusive)));
    assert_eq!(pollster::block_on(crate::Inspect::show(&other, &name("job"))).unwrap().holders.len(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(held(create(&other, &try_claim("job", Mode::Exclusive))).previous, Previous::Lapsed);
    assert!(other.descriptor(first.id).unwrap().is_none());
}
