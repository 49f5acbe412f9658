//! Renew: rule R4 of `docs/rules.md`, one answer for each hold.

use std::time::Duration;

use leasehold_core::{Hold, Loss, Mode, Renewed, Token};

use super::{
    case::{Case, Outcome, case, ensure, expect_match, needs_lease},
    fixture::{Fixture, hold_of},
};
use crate::claims;

pub(super) const CASES: &[Case] = &[
    case!(renew_keeps_a_hold),
    case!(renew_extends_a_lease, skip = needs_lease),
    case!(asking_extends_a_lease, skip = needs_lease),
    case!(renew_of_another_id_is_lost),
    case!(renew_of_another_token_is_lost),
    case!(renew_after_the_release_is_lost),
    case!(renewals_answer_one_by_one_in_order),
    case!(renew_never_creates),
];

async fn renew_keeps_a_hold(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    for (suffix, mode) in
        [("-x", Mode::Exclusive), ("-s", Mode::Shared), ("-p", Mode::Permits { count: 2, limit: 3 })]
    {
        let mode = fixture.mode_or_exclusive(mode);
        let claim = fixture.claim(&fixture.name(suffix), mode);
        let grant = client_a.acquire(&claim).await?;
        let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
        let ttl =
            expect_match!(&answers[..], [Renewed::Extended { ttl, .. }] => *ttl, "the renewal of {mode}");
        ensure!(ttl.is_some() == grant.ttl.is_some(), "granted for {:?}, renewed for {ttl:?}", grant.ttl);
        client_b
            .claim_blocked(&fixture.try_claim(
                &claim.name,
                match mode {
                    Mode::Permits { .. } => mode,
                    _ => Mode::Exclusive,
                },
            ))
            .await?;
        client_a.release_hold(&claim, &grant).await?;
    }
    Ok(())
}

async fn renew_extends_a_lease(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let granted_ttl = expect_match!(grant.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
    let (mut remaining, mut passed) = (granted_ttl, Duration::ZERO);
    while passed <= granted_ttl {
        passed += advance_most_of(fixture, remaining).await;
        let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
        remaining = expect_match!(
            &answers[..],
            [Renewed::Extended { ttl: Some(ttl), .. }] => *ttl,
            "a renewal within the lease"
        );
        ensure!(remaining >= claim.ttl / 3, "renewed for {remaining:?} of {:?}", claim.ttl);
    }
    advance_most_of(fixture, remaining).await;
    client_b.expect_taken(&claim.name).await?;
    client_a.release_hold(&claim, &grant).await
}

async fn asking_extends_a_lease(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let granted_ttl = expect_match!(grant.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
    let (mut remaining, mut passed) = (granted_ttl, Duration::ZERO);
    while passed <= granted_ttl {
        passed += advance_most_of(fixture, remaining).await;
        let asked = client_a.ask_until_granted(&claim).await?;
        ensure!(asked.token == grant.token, "asking changed the token {} to {}", grant.token, asked.token);
        remaining = expect_match!(asked.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
        ensure!(remaining >= claim.ttl / 3, "asking extended to {remaining:?} of {:?}", claim.ttl);
    }
    advance_most_of(fixture, remaining).await;
    client_b.expect_taken(&claim.name).await?;
    client_a.release_hold(&claim, &grant).await
}

/// Lets most of the remaining lease time pass, and returns how much that is.
async fn advance_most_of(fixture: &Fixture<'_>, remaining: Duration) -> Duration {
    let most = remaining.mul_f64(0.6);
    fixture.advance(most).await;
    most
}

async fn renew_of_another_id_is_lost(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let foreign = Hold { id: claims::fresh_id(), ..hold_of(&claim, &grant) };
    for client in [&client_a, &client_b] {
        let answers = client.engine.renew(std::slice::from_ref(&foreign)).await;
        expect_match!(&answers[..], [Renewed::Lost(Loss::Gone)] => (), "the renewal of a hold by another id");
    }
    client_a.release_hold(&claim, &grant).await
}

async fn renew_of_another_token_is_lost(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client.acquire(&claim).await?;
    let wrong = Token { number: grant.token.number + 1_000_000, ..grant.token };
    let answers = client.engine.renew(&[Hold { token: wrong, ..hold_of(&claim, &grant) }]).await;
    expect_match!(&answers[..], [Renewed::Lost(Loss::Gone)] => (), "the renewal of a hold by another token");
    let answers = client.engine.renew(&[hold_of(&claim, &grant)]).await;
    expect_match!(&answers[..], [Renewed::Extended { .. }] => (), "the renewal of the true hold after it");
    client.release_hold(&claim, &grant).await
}

async fn renew_after_the_release_is_lost(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.release_hold(&claim, &grant).await?;
    let next = fixture.claim(&claim.name, Mode::Exclusive);
    let next_grant = client_b.acquire(&next).await?;
    let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
    expect_match!(&answers[..], [Renewed::Lost(_)] => (), "the renewal of a hold that was released");
    client_a.expect_taken(&claim.name).await?;
    client_b.release_hold(&next, &next_grant).await
}

async fn renewals_answer_one_by_one_in_order(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let (a, b) = (
        fixture.claim(&fixture.name("-a"), Mode::Exclusive),
        fixture.claim(&fixture.name("-b"), fixture.mode_or_exclusive(Mode::Shared)),
    );
    let (grant_a, grant_b) = (client.acquire(&a).await?, client.acquire(&b).await?);
    let foreign = Hold { id: claims::fresh_id(), ..hold_of(&a, &grant_a) };
    let nowhere = Hold { name: fixture.name("-c"), ..hold_of(&b, &grant_b) };
    let answers =
        client.engine.renew(&[hold_of(&a, &grant_a), foreign, nowhere, hold_of(&b, &grant_b)]).await;
    expect_match!(
        &answers[..],
        [Renewed::Extended { .. }, Renewed::Lost(Loss::Gone), Renewed::Lost(Loss::Gone), Renewed::Extended { .. }] => (),
        "a batch of a hold, another id, another name, and a hold"
    );
    let none = client.engine.renew(&[]).await;
    ensure!(none.is_empty(), "an empty batch was answered: {none:?}");
    Ok(())
}

async fn renew_never_creates(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    client_a.release_hold(&claim, &grant).await?;
    let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
    expect_match!(&answers[..], [Renewed::Lost(_)] => (), "the renewal of a hold that was released");
    client_b.expect_free(&claim.name).await.map(drop)
}
