//! Claim and ask: rules R21 and R22 of `docs/rules.md`.

use leasehold_core::{Answer, How, Mode, Previous};

use super::{
    case::{Case, Outcome, case, ensure, expect_match},
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
    let grant = client.acquire(&claim).await?;
    ensure!(grant.token.number >= 1, "tokens count from 1: {:?}", grant.token);
    ensure!(grant.tokens >= 1, "a grant carries at least its own token: {grant:?}");
    ensure!(
        matches!(grant.previous, Previous::Clean | Previous::Unknown),
        "the name had no previous hold, but the grant reports {:?}",
        grant.previous
    );
    let has_ttl = fixture.profile().life.lapses();
    ensure!(grant.ttl.is_some() == has_ttl, "a {:?} granted the ttl {:?}", fixture.profile().life, grant.ttl);
    client.release_hold(&claim, &grant).await
}

async fn a_taken_name_is_not_granted_again(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let claim = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.expect_taken(&name).await?;
    client_b.expect_taken(&name).await?;
    client_b.claim_blocked(&fixture.claim(&name, Mode::Exclusive)).await?;
    client_a.release_hold(&claim, &grant).await
}

async fn a_claim_that_may_not_queue_leaves_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&holder).await?;
    let try_claim = fixture.try_claim(&name, Mode::Exclusive);
    client_b.claim_blocked(&try_claim).await?;
    let view = client_a.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.waiters.is_empty(), "a claim that may not queue is queued: {:?}", view.waiters);
    client_a.release_hold(&holder, &grant).await?;
    let answer = client_b.send_claim(&try_claim, How::Ask).await?;
    expect_match!(
        answer,
        Answer::Gone | Answer::Taken(_) => (),
        "a claim that was answered taken got the name later"
    );
    client_a.expect_free(&name).await.map(drop)
}

async fn a_repeated_claim_gets_the_same_grant(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let first = client.acquire(&claim).await?;
    let second = client.acquire(&claim).await?;
    ensure!(first.token == second.token, "one claim was granted twice: {} and {}", first.token, second.token);
    let view = client.engine.show(&claim.name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.holders.len() == 1, "a repeated claim holds twice: {:?}", view.holders);
    client.release_hold(&claim, &second).await?;
    client.expect_free(&claim.name).await.map(drop)
}

async fn a_repeated_waiting_claim_keeps_its_position(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&holder).await?;
    let (first, second) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Exclusive));
    client_a.claim_blocked(&first).await?;
    client_b.claim_blocked(&second).await?;
    client_a.claim_blocked(&first).await?;
    let view = client_a.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    let queue = &view.waiters;
    ensure!(
        fixture.is_queue(queue, [&first, &second].into_iter()),
        "the queue after a repeated claim: {queue:?}"
    );
    client_a.release_hold(&holder, &grant).await?;
    client_a.ask_until_granted(&first).await.map(drop)
}

async fn asking_again_returns_the_same_token(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client.acquire(&claim).await?;
    let asked = client.send_claim(&claim, How::Ask).await?;
    let asked = expect_match!(asked, Answer::Held(grant) => grant, "asking a live grant");
    ensure!(asked.token == grant.token, "asking changed the token {} to {}", grant.token, asked.token);
    ensure!(asked.tokens == grant.tokens, "asking changed the block {} to {}", grant.tokens, asked.tokens);
    client.release_hold(&claim, &asked).await
}

async fn ask_never_creates(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let unknown = fixture.claim(&name, Mode::Exclusive);
    expect_match!(
        client_a.send_claim(&unknown, How::Ask).await?,
        Answer::Gone => (),
        "asking for an unknown claim of a free name"
    );
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = client_b.acquire(&holder).await?;
    let other_unknown = leasehold_core::Claim { id: claims::fresh_id(), ..unknown };
    expect_match!(
        client_a.send_claim(&other_unknown, How::Ask).await?,
        Answer::Gone => (),
        "asking for an unknown claim of a held name"
    );
    client_b.release_hold(&holder, &grant).await?;
    let view = client_a.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.holders.is_empty() && view.waiters.is_empty(), "asking left something: {view:?}");
    Ok(())
}

async fn inline_verbs_complete_at_their_first_poll(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    client.add_to_clean_up(&claim);
    let engine = &client.engine;
    // The verbs run on a thread without a runtime, as they do when a blocking caller uses an inline engine.
    let answered = std::thread::scope(|scope| {
        let verbs = || {
            let grant = match crate::dropper::poll_once(engine.claim(&claim, How::Create))? {
                Ok(Answer::Held(grant)) => grant,
                _ => return None,
            };
            let holds = [super::fixture::hold_of(&claim, &grant)];
            crate::dropper::poll_once(engine.renew(&holds))?;
            let releases = [super::fixture::release_of(&claim, Some(&grant))];
            crate::dropper::poll_once(engine.release(&releases))
        };
        scope.spawn(verbs).join().ok().flatten()
    });
    expect_match!(
        answered.as_deref(),
        Some([leasehold_core::Released::Freed]) => (),
        "claim, renew, release in one poll each"
    );
    Ok(())
}
