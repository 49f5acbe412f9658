//! Claim and ask: R21 and R22.

use leasehold_core::{Answer, How, Mode, Previous};

use super::{
    case::{Case, Outcome, case, ensure, want},
    fixture::Fixture,
};
use crate::claims;

pub(super) const CASES: &[Case] = &[
    case!(a_free_name_is_granted),
    case!(a_taken_name_is_not_granted_again),
    case!(a_claim_that_may_not_queue_leaves_nothing),
    case!(a_repeated_claim_gets_the_same_grant),
    case!(a_repeated_waiting_claim_keeps_its_position, skip = super::case::needs_fifo),
    case!(asking_again_returns_the_same_token),
    case!(ask_never_creates),
    case!(
        inline_verbs_complete_at_their_first_poll,
        skip = |profile| { (!profile.inline).then_some("its verbs wait for something outside the process") }
    ),
];

async fn a_free_name_is_granted(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client.hold(&claim).await?;
    ensure!(grant.token.number >= 1, "tokens count from 1: {:?}", grant.token);
    ensure!(grant.tokens >= 1, "a grant carries at least its own token: {grant:?}");
    ensure!(
        matches!(grant.previous, Previous::Clean | Previous::Unknown),
        "the name had no previous hold, but the grant reports {:?}",
        grant.previous
    );
    let lapses = fixture.profile().life != leasehold_core::Life::Process;
    ensure!(grant.ttl.is_some() == lapses, "a {:?} granted the ttl {:?}", fixture.profile().life, grant.ttl);
    client.free(&claim, &grant).await
}

async fn a_taken_name_is_not_granted_again(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let claim = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    one.finds_taken(&name).await?;
    other.finds_taken(&name).await?;
    other.blocked(&fixture.claim(&name, Mode::Exclusive)).await?;
    one.free(&claim, &grant).await
}

async fn a_claim_that_may_not_queue_leaves_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&holder).await?;
    let attempt = fixture.attempt(&name, Mode::Exclusive);
    other.blocked(&attempt).await?;
    let view = one.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.waiters.is_empty(), "a claim that may not queue is queued: {:?}", view.waiters);
    one.free(&holder, &grant).await?;
    let answer = other.ask(&attempt, How::Ask).await?;
    want!(answer, Answer::Gone | Answer::Taken(_) => (), "a claim that was answered taken got the name later");
    one.finds_free(&name).await.map(drop)
}

async fn a_repeated_claim_gets_the_same_grant(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let first = client.hold(&claim).await?;
    let second = client.hold(&claim).await?;
    ensure!(first.token == second.token, "one claim was granted twice: {} and {}", first.token, second.token);
    let view = client.engine.show(&claim.name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.holders.len() == 1, "a repeated claim holds twice: {:?}", view.holders);
    client.free(&claim, &second).await?;
    client.finds_free(&claim.name).await.map(drop)
}

async fn a_repeated_waiting_claim_keeps_its_position(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&holder).await?;
    let (first, second) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Exclusive));
    one.blocked(&first).await?;
    other.blocked(&second).await?;
    one.blocked(&first).await?;
    let view = one.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    let queue: Vec<_> = view.waiters.iter().map(|waiter| waiter.id.clone()).collect();
    ensure!(
        queue == [first.id.to_string(), second.id.to_string()],
        "the queue after a repeated claim: {queue:?}"
    );
    one.free(&holder, &grant).await?;
    one.granted(&first).await.map(drop)
}

async fn asking_again_returns_the_same_token(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client.hold(&claim).await?;
    let asked = client.ask(&claim, How::Ask).await?;
    let asked = want!(asked, Answer::Held(grant) => grant, "asking a live grant");
    ensure!(asked.token == grant.token, "asking changed the token {} to {}", grant.token, asked.token);
    ensure!(asked.tokens == grant.tokens, "asking changed the block {} to {}", grant.tokens, asked.tokens);
    client.free(&claim, &asked).await
}

async fn ask_never_creates(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let unknown = fixture.claim(&name, Mode::Exclusive);
    want!(one.ask(&unknown, How::Ask).await?, Answer::Gone => (), "asking for an unknown claim of a free name");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = other.hold(&holder).await?;
    let other_unknown = leasehold_core::Claim { id: claims::fresh_id(), ..unknown };
    want!(one.ask(&other_unknown, How::Ask).await?, Answer::Gone => (), "asking for an unknown claim of a held name");
    other.free(&holder, &grant).await?;
    let view = one.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.holders.is_empty() && view.waiters.is_empty(), "asking left something: {view:?}");
    Ok(())
}

async fn inline_verbs_complete_at_their_first_poll(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    client.remember(&claim);
    let engine = &client.engine;
    // On a thread without a runtime, as core calls inline engines from blocking callers.
    let answered = std::thread::scope(|scope| {
        let verbs = || {
            let grant = match crate::dropper::poll_once(engine.claim(&claim, How::Create))? {
                Ok(Answer::Held(grant)) => grant,
                _ => return None,
            };
            let hold = [super::fixture::hold_of(&claim, &grant)];
            crate::dropper::poll_once(engine.renew(&hold))?;
            let releases = [super::fixture::release_of(&claim, Some(&grant))];
            crate::dropper::poll_once(engine.release(&releases))
        };
        scope.spawn(verbs).join().ok().flatten()
    });
    want!(answered.as_deref(), Some([leasehold_core::Released::Freed]) => (), "claim, renew, release in one poll each");
    Ok(())
}
