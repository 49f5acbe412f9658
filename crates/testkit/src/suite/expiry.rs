//! Leases that expire.

use leasehold_core::{Claim, Mode, Previous, Released, Renewed};

use super::{
    case::{Case, Outcome, case, ensure, expect_match, needs_fifo, needs_lease, needs_modes},
    fixture::{Fixture, hold_of},
};

pub(super) const CASES: &[Case] = &[
    case!(an_expired_name_is_free, skip = needs_lease),
    case!(an_expired_hold_is_lost, skip = needs_lease),
    case!(
        an_expired_reader_lets_the_writer_in,
        skip = |profile| needs_lease(profile).or(needs_modes(profile))
    ),
    case!(an_expired_permit_comes_back, skip = |profile| needs_lease(profile).or(needs_modes(profile))),
    case!(a_waiter_gets_an_expired_name, skip = needs_lease),
    case!(the_hint_gives_the_end_of_the_lease, skip = |profile| needs_lease(profile).or(needs_fifo(profile))),
];

async fn an_expired_name_is_free(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    fixture.wait_until_expired(&grant).await?;
    let next = client_b.expect_free_soon(&claim.name).await?;
    expect_match!(next.previous, Previous::Lapsed | Previous::Unknown => (), "after a hold that lapsed");
    let after = client_b.expect_free(&claim.name).await?;
    expect_match!(
        after.previous,
        Previous::Clean | Previous::Unknown => (),
        "the lapsed hold is two holds ago"
    );
    Ok(())
}

async fn an_expired_hold_is_lost(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    fixture.wait_until_expired(&grant).await?;
    let next = fixture.claim(&claim.name, Mode::Exclusive);
    let next_grant = client_b.acquire_soon(&next).await?;
    let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
    expect_match!(
        &answers[..],
        [Renewed::Lost(_)] => (),
        "the renewal of a hold that lapsed and was granted on"
    );
    expect_match!(
        client_a.release(&claim, Some(&grant)).await?,
        Released::NotThere => (),
        "the release of a hold that lapsed"
    );
    client_a.expect_taken(&claim.name).await?;
    client_b.release_hold(&next, &next_grant).await
}

async fn an_expired_reader_lets_the_writer_in(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let (short, long) = (fixture.short_lease_claim(&name, Mode::Shared), fixture.claim(&name, Mode::Shared));
    let lapsing = client_a.acquire(&short).await?;
    let staying = client_b.acquire(&long).await?;
    fixture.wait_until_expired(&lapsing).await?;
    client_b.expect_taken(&name).await?;
    client_b.release_hold(&long, &staying).await?;
    client_b.expect_free_soon(&name).await.map(drop)
}

async fn an_expired_permit_comes_back(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let permits = |count| Mode::Permits { count, limit: 2 };
    let lapsing = client_a.acquire(&fixture.short_lease_claim(&name, permits(1))).await?;
    client_b.acquire(&fixture.claim(&name, permits(1))).await?;
    client_b.claim_blocked(&fixture.try_claim(&name, permits(1))).await?;
    fixture.wait_until_expired(&lapsing).await?;
    client_b.acquire_soon(&fixture.try_claim(&name, permits(1))).await?;
    client_a.claim_blocked(&fixture.try_claim(&name, permits(1))).await.map(drop)
}

async fn a_waiter_gets_an_expired_name(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let waiter = fixture.claim(&claim.name, Mode::Exclusive);
    client_b.claim_blocked(&waiter).await?;
    fixture.wait_until_expired(&grant).await?;
    let next = client_b.ask_until_granted(&waiter).await?;
    expect_match!(next.previous, Previous::Lapsed | Previous::Unknown => (), "after a hold that lapsed");
    client_b.release_hold(&waiter, &next).await
}

async fn the_hint_gives_the_end_of_the_lease(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short_lease_claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let ttl = expect_match!(grant.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
    let hint = client_b.claim_blocked(&Claim { ttl, ..fixture.claim(&claim.name, Mode::Exclusive) }).await?;
    // An engine need not give a hint. If it gives one, the time until the next ask is at most twice the lease time.
    ensure!(
        hint.ask_in.is_none_or(|ask_in| ask_in <= ttl * 2),
        "a lease of {ttl:?} has the hint {:?}",
        hint.ask_in
    );
    client_a.release_hold(&claim, &grant).await
}
