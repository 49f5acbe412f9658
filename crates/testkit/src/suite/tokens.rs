//! Tokens: rule R10 of `docs/rules.md`. They only grow within a name and lineage.

use leasehold_core::{Claim, Grant, Mode};

use super::{
    case::{Case, Outcome, case, ensure, needs_fifo, needs_lease, needs_modes},
    fixture::Fixture,
};

pub(super) const CASES: &[Case] = &[
    case!(tokens_grow_across_clients),
    case!(tokens_grow_across_modes, skip = needs_modes),
    case!(tokens_grow_after_an_expiry, skip = needs_lease),
    case!(tokens_grow_along_the_queue, skip = needs_fifo),
    case!(blocks_of_tokens_do_not_overlap),
    case!(a_grant_carries_no_more_tokens_than_asked_for),
];

async fn tokens_grow_across_clients(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let mut last = client_a.expect_free(&fixture.name("")).await?;
    for index in 0..10 {
        let client = if index % 3 == 0 { &client_a } else { &client_b };
        last = check_token_grew(last, client.expect_free(&fixture.name("")).await?)?;
    }
    Ok(())
}

async fn tokens_grow_across_modes(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let permits = |count| Mode::Permits { count, limit: 3 };
    let mut last = client_a.expect_free(&name).await?;
    for modes in [[Mode::Shared, Mode::Shared], [permits(1), permits(2)]] {
        let claims = modes.map(|mode| fixture.claim(&name, mode));
        for (claim, client) in claims.iter().zip([&client_a, &client_b]) {
            last = check_token_grew(last, client.acquire(claim).await?)?;
        }
        for (claim, client) in claims.iter().zip([&client_a, &client_b]) {
            client.release(claim, None).await?;
        }
        last = check_token_grew(last, client_b.expect_free(&name).await?)?;
    }
    Ok(())
}

async fn tokens_grow_after_an_expiry(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let lapsing = client_a.acquire(&fixture.short_lease_claim(&name, Mode::Exclusive)).await?;
    fixture.wait_until_expired(&lapsing).await?;
    check_token_grew(lapsing, client_b.expect_free_soon(&name).await?).map(drop)
}

async fn tokens_grow_along_the_queue(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = Claim { tokens: 8, ..fixture.claim(&name, Mode::Exclusive) };
    let mut last = client_a.acquire(&holder).await?;
    let waiters = [3, 1, 5].map(|tokens| Claim { tokens, ..fixture.claim(&name, Mode::Exclusive) });
    for waiter in &waiters {
        client_b.claim_blocked(waiter).await?;
    }
    client_a.release_hold(&holder, &last).await?;
    for waiter in &waiters {
        last = check_token_grew(last, client_b.ask_until_granted(waiter).await?)?;
        client_b.release_hold(waiter, &last).await?;
    }
    check_token_grew(last, client_a.expect_free(&name).await?).map(drop)
}

async fn blocks_of_tokens_do_not_overlap(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let mut last = client_a.expect_free(&name).await?;
    for (tokens, mode) in
        [(64, Mode::Exclusive), (1, Mode::Exclusive), (1_000, Mode::Shared), (7, Mode::Exclusive)]
    {
        let claim = Claim { tokens, ..fixture.claim(&name, fixture.mode_or_exclusive(mode)) };
        let grant = client_b.acquire(&claim).await?;
        let again = client_b.acquire(&claim).await?;
        ensure!(
            (again.token, again.tokens) == (grant.token, grant.tokens),
            "a repeated claim of a block got another block: {grant:?}, {again:?}"
        );
        client_b.release_hold(&claim, &grant).await?;
        last = check_token_grew(last, grant)?;
    }
    check_token_grew(last, client_a.expect_free(&name).await?).map(drop)
}

async fn a_grant_carries_no_more_tokens_than_asked_for(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let claim = Claim { tokens: 16, ..fixture.claim(&fixture.name(""), Mode::Exclusive) };
    let grant = client.acquire(&claim).await?;
    let most = if fixture.profile().tokens > 1 { 16 } else { 1 };
    ensure!((1..=most).contains(&grant.tokens), "asked for 16 tokens, at most {most} expected: {grant:?}");
    client.release_hold(&claim, &grant).await
}

/// Fails the case unless the token of the later grant comes after the whole block of the earlier one. Returns the later
/// grant.
fn check_token_grew(earlier: Grant, later: Grant) -> Outcome<Grant> {
    ensure!(
        earlier.token.lineage == later.token.lineage,
        "the lineage changed from {earlier:?} to {later:?}"
    );
    let end = earlier.token.number + u64::from(earlier.tokens);
    ensure!(
        later.token.number >= end,
        "a later grant has the token {}, the earlier block ends at {end}",
        later.token
    );
    Ok(later)
}
