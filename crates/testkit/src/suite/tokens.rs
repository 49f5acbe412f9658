//! Tokens: R10. They grow for ever within a name and lineage.

use leasehold_core::{Claim, Grant, Mode};

use super::{
    bench::Bench,
    case::{Case, Outcome, case, ensure, needs_fifo, needs_lease, needs_modes},
};

pub(super) const CASES: &[Case] = &[
    case!(tokens_grow_across_clients),
    case!(tokens_grow_across_modes, skip = needs_modes),
    case!(tokens_grow_after_an_expiry, skip = needs_lease),
    case!(tokens_grow_along_the_line, skip = needs_fifo),
    case!(blocks_of_tokens_do_not_overlap),
    case!(a_grant_carries_no_more_tokens_than_asked_for),
];

async fn tokens_grow_across_clients(bench: &Bench<'_>) -> Outcome {
    let (one, other) = (bench.client().await, bench.client().await);
    let mut last = one.finds_free(&bench.name("")).await?;
    for at in 0..10 {
        let client = if at % 3 == 0 { &one } else { &other };
        last = grown(last, client.finds_free(&bench.name("")).await?)?;
    }
    Ok(())
}

async fn tokens_grow_across_modes(bench: &Bench<'_>) -> Outcome {
    let (one, other) = (bench.client().await, bench.client().await);
    let name = bench.name("");
    let permits = |count| Mode::Permits { count, limit: 3 };
    let mut last = one.finds_free(&name).await?;
    for modes in [[Mode::Shared, Mode::Shared], [permits(1), permits(2)]] {
        let claims = modes.map(|mode| bench.claim(&name, mode));
        for (claim, client) in claims.iter().zip([&one, &other]) {
            last = grown(last, client.hold(claim).await?)?;
        }
        for (claim, client) in claims.iter().zip([&one, &other]) {
            client.release(claim, None).await?;
        }
        last = grown(last, other.finds_free(&name).await?)?;
    }
    Ok(())
}

async fn tokens_grow_after_an_expiry(bench: &Bench<'_>) -> Outcome {
    let (one, other) = (bench.client().await, bench.client().await);
    let name = bench.name("");
    let lapsing = one.hold(&bench.short(&name, Mode::Exclusive)).await?;
    bench.outlive(&lapsing).await?;
    grown(lapsing, other.finds_free_in_time(&name).await?).map(drop)
}

async fn tokens_grow_along_the_line(bench: &Bench<'_>) -> Outcome {
    let (one, other) = (bench.client().await, bench.client().await);
    let name = bench.name("");
    let holder = Claim { tokens: 8, ..bench.claim(&name, Mode::Exclusive) };
    let mut last = one.hold(&holder).await?;
    let waiters = [3, 1, 5].map(|tokens| Claim { tokens, ..bench.claim(&name, Mode::Exclusive) });
    for waiter in &waiters {
        other.blocked(waiter).await?;
    }
    one.free(&holder, &last).await?;
    for waiter in &waiters {
        last = grown(last, other.granted(waiter).await?)?;
        other.free(waiter, &last).await?;
    }
    grown(last, one.finds_free(&name).await?).map(drop)
}

async fn blocks_of_tokens_do_not_overlap(bench: &Bench<'_>) -> Outcome {
    let (one, other) = (bench.client().await, bench.client().await);
    let name = bench.name("");
    let mut last = one.finds_free(&name).await?;
    for (tokens, mode) in
        [(64, Mode::Exclusive), (1, Mode::Exclusive), (1_000, Mode::Shared), (7, Mode::Exclusive)]
    {
        let claim = Claim { tokens, ..bench.claim(&name, bench.or_exclusive(mode)) };
        let grant = other.hold(&claim).await?;
        let again = other.hold(&claim).await?;
        ensure!(
            (again.token, again.tokens) == (grant.token, grant.tokens),
            "a doubled claim of a block got another block: {grant:?}, {again:?}"
        );
        other.free(&claim, &grant).await?;
        last = grown(last, grant)?;
    }
    grown(last, one.finds_free(&name).await?).map(drop)
}

async fn a_grant_carries_no_more_tokens_than_asked_for(bench: &Bench<'_>) -> Outcome {
    let client = bench.client().await;
    let claim = Claim { tokens: 16, ..bench.claim(&bench.name(""), Mode::Exclusive) };
    let grant = client.hold(&claim).await?;
    let most = if bench.profile().tokens > 1 { 16 } else { 1 };
    ensure!((1..=most).contains(&grant.tokens), "asked for 16 tokens, at most {most} expected: {grant:?}");
    client.free(&claim, &grant).await
}

/// The later grant must begin after the whole block of the earlier one; gives the later.
fn grown(earlier: Grant, later: Grant) -> Outcome<Grant> {
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
