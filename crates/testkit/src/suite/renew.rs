//! Renew: R4, one answer for each hold.

use std::time::Duration;

use leasehold_core::{Hold, Loss, Mode, Renewed, Token};

use super::{
    case::{Case, Outcome, case, ensure, needs_lease, want},
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
    let (one, other) = (fixture.client().await, fixture.client().await);
    for (suffix, mode) in
        [("-x", Mode::Exclusive), ("-s", Mode::Shared), ("-p", Mode::Permits { count: 2, limit: 3 })]
    {
        let mode = fixture.or_exclusive(mode);
        let claim = fixture.claim(&fixture.name(suffix), mode);
        let grant = one.hold(&claim).await?;
        let answers = one.engine.renew(&[hold_of(&claim, &grant)]).await;
        let ttl = want!(&answers[..], [Renewed::Extended { ttl }] => *ttl, "the renewal of {mode}");
        ensure!(ttl.is_some() == grant.ttl.is_some(), "granted for {:?}, renewed for {ttl:?}", grant.ttl);
        other
            .blocked(&fixture.attempt(
                &claim.name,
                match mode {
                    Mode::Permits { .. } => mode,
                    _ => Mode::Exclusive,
                },
            ))
            .await?;
        one.free(&claim, &grant).await?;
    }
    Ok(())
}

async fn renew_extends_a_lease(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let granted = want!(grant.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
    let (mut left, mut passed) = (granted, Duration::ZERO);
    while passed <= granted {
        passed += most_of(fixture, left).await;
        let answers = one.engine.renew(&[hold_of(&claim, &grant)]).await;
        left =
            want!(&answers[..], [Renewed::Extended { ttl: Some(ttl) }] => *ttl, "a renewal within the lease");
        ensure!(left >= claim.ttl / 3, "renewed for {left:?} of {:?}", claim.ttl);
    }
    most_of(fixture, left).await;
    other.finds_taken(&claim.name).await?;
    one.free(&claim, &grant).await
}

async fn asking_extends_a_lease(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let granted = want!(grant.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
    let (mut left, mut passed) = (granted, Duration::ZERO);
    while passed <= granted {
        passed += most_of(fixture, left).await;
        let asked = one.granted(&claim).await?;
        ensure!(asked.token == grant.token, "asking changed the token {} to {}", grant.token, asked.token);
        left = want!(asked.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
        ensure!(left >= claim.ttl / 3, "asking extended to {left:?} of {:?}", claim.ttl);
    }
    most_of(fixture, left).await;
    other.finds_taken(&claim.name).await?;
    one.free(&claim, &grant).await
}

/// Lets most of the remaining lease time pass, and returns how much that is.
async fn most_of(fixture: &Fixture<'_>, left: Duration) -> Duration {
    let most = left.mul_f64(0.6);
    fixture.advance(most).await;
    most
}

async fn renew_of_another_id_is_lost(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let foreign = Hold { id: claims::fresh_id(), ..hold_of(&claim, &grant) };
    for client in [&one, &other] {
        let answers = client.engine.renew(std::slice::from_ref(&foreign)).await;
        want!(&answers[..], [Renewed::Lost(Loss::Gone)] => (), "the renewal of a hold by another id");
    }
    one.free(&claim, &grant).await
}

async fn renew_of_another_token_is_lost(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client.hold(&claim).await?;
    let wrong = Token { number: grant.token.number + 1_000_000, ..grant.token };
    let answers = client.engine.renew(&[Hold { token: wrong, ..hold_of(&claim, &grant) }]).await;
    want!(&answers[..], [Renewed::Lost(Loss::Gone)] => (), "the renewal of a hold by another token");
    let answers = client.engine.renew(&[hold_of(&claim, &grant)]).await;
    want!(&answers[..], [Renewed::Extended { .. }] => (), "the renewal of the true hold after it");
    client.free(&claim, &grant).await
}

async fn renew_after_the_release_is_lost(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    one.free(&claim, &grant).await?;
    let next = fixture.claim(&claim.name, Mode::Exclusive);
    let next_grant = other.hold(&next).await?;
    let answers = one.engine.renew(&[hold_of(&claim, &grant)]).await;
    want!(&answers[..], [Renewed::Lost(_)] => (), "the renewal of a hold that was released");
    one.finds_taken(&claim.name).await?;
    other.free(&next, &next_grant).await
}

async fn renewals_answer_one_by_one_in_order(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let (a, b) = (
        fixture.claim(&fixture.name("-a"), Mode::Exclusive),
        fixture.claim(&fixture.name("-b"), fixture.or_exclusive(Mode::Shared)),
    );
    let (grant_a, grant_b) = (client.hold(&a).await?, client.hold(&b).await?);
    let foreign = Hold { id: claims::fresh_id(), ..hold_of(&a, &grant_a) };
    let nowhere = Hold { name: fixture.name("-c"), ..hold_of(&b, &grant_b) };
    let answers =
        client.engine.renew(&[hold_of(&a, &grant_a), foreign, nowhere, hold_of(&b, &grant_b)]).await;
    want!(
        &answers[..],
        [Renewed::Extended { .. }, Renewed::Lost(Loss::Gone), Renewed::Lost(Loss::Gone), Renewed::Extended { .. }] => (),
        "a batch of a hold, another id, another name, and a hold"
    );
    let none = client.engine.renew(&[]).await;
    ensure!(none.is_empty(), "an empty batch was answered: {none:?}");
    Ok(())
}

async fn renew_never_creates(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    one.free(&claim, &grant).await?;
    let answers = one.engine.renew(&[hold_of(&claim, &grant)]).await;
    want!(&answers[..], [Renewed::Lost(_)] => (), "the renewal of a hold that was released");
    other.finds_free(&claim.name).await.map(drop)
}
