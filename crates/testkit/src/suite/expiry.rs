//! Leases that expire.

use leasehold_core::{Claim, Mode, Previous, Released, Renewed};

use super::{
    case::{Case, Outcome, case, ensure, needs_fifo, needs_lease, needs_modes, want},
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
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    fixture.outlive(&grant).await?;
    let next = other.finds_free_in_time(&claim.name).await?;
    want!(next.previous, Previous::Lapsed | Previous::Unknown => (), "after a hold that lapsed");
    let after = other.finds_free(&claim.name).await?;
    want!(after.previous, Previous::Clean | Previous::Unknown => (), "the lapsed hold is two holds ago");
    Ok(())
}

async fn an_expired_hold_is_lost(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    fixture.outlive(&grant).await?;
    let next = fixture.claim(&claim.name, Mode::Exclusive);
    let next_grant = other.hold_in_time(&next).await?;
    let answers = one.engine.renew(&[hold_of(&claim, &grant)]).await;
    want!(&answers[..], [Renewed::Lost(_)] => (), "the renewal of a hold that lapsed and was granted on");
    want!(one.release(&claim, Some(&grant)).await?, Released::NotThere => (), "the release of a hold that lapsed");
    one.finds_taken(&claim.name).await?;
    other.free(&next, &next_grant).await
}

async fn an_expired_reader_lets_the_writer_in(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let (short, long) = (fixture.short(&name, Mode::Shared), fixture.claim(&name, Mode::Shared));
    let lapsing = one.hold(&short).await?;
    let staying = other.hold(&long).await?;
    fixture.outlive(&lapsing).await?;
    other.finds_taken(&name).await?;
    other.free(&long, &staying).await?;
    other.finds_free_in_time(&name).await.map(drop)
}

async fn an_expired_permit_comes_back(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let permits = |count| Mode::Permits { count, limit: 2 };
    let lapsing = one.hold(&fixture.short(&name, permits(1))).await?;
    other.hold(&fixture.claim(&name, permits(1))).await?;
    other.blocked(&fixture.attempt(&name, permits(1))).await?;
    fixture.outlive(&lapsing).await?;
    other.hold_in_time(&fixture.attempt(&name, permits(1))).await?;
    one.blocked(&fixture.attempt(&name, permits(1))).await.map(drop)
}

async fn a_waiter_gets_an_expired_name(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let waiter = fixture.claim(&claim.name, Mode::Exclusive);
    other.blocked(&waiter).await?;
    fixture.outlive(&grant).await?;
    let next = other.granted(&waiter).await?;
    want!(next.previous, Previous::Lapsed | Previous::Unknown => (), "after a hold that lapsed");
    other.free(&waiter, &next).await
}

async fn the_hint_gives_the_end_of_the_lease(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let claim = fixture.short(&fixture.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let ttl = want!(grant.ttl, Some(ttl) => ttl, "the grant of a lease has no ttl");
    let hint = other.blocked(&Claim { ttl, ..fixture.claim(&claim.name, Mode::Exclusive) }).await?;
    // The hint may be absent. If present, it must not be later than the expiry by more than the grace time.
    ensure!(
        hint.ask_in.is_none_or(|ask_in| ask_in <= ttl * 2),
        "a lease of {ttl:?} has the hint {:?}",
        hint.ask_in
    );
    one.free(&claim, &grant).await
}
