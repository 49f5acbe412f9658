//! Exclusive, shared, permits: which holds may coexist.

use futures_util::future::{try_join, try_join_all};
use leasehold_core::{EngineError, Fault, How, Mode};

use super::{
    case::{Case, Outcome, case, ensure, expect_match, needs_modes, needs_stored_claims},
    fixture::{Client, Fixture},
};

pub(super) const CASES: &[Case] = &[
    case!(readers_share, skip = needs_modes),
    case!(a_reader_excludes_a_writer, skip = needs_modes),
    case!(a_writer_excludes_a_reader, skip = needs_modes),
    case!(permits_add_up_to_the_limit, skip = needs_modes),
    case!(a_hold_of_several_permits_counts_them_all, skip = needs_modes),
    case!(concurrent_tries_that_fit_are_all_granted, skip = needs_modes),
    case!(a_refused_try_does_not_block_a_smaller_one, skip = needs_modes),
    case!(
        permits_of_another_limit_are_refused,
        skip = |profile| needs_modes(profile).or(needs_stored_claims(profile))
    ),
    case!(
        permits_and_locks_do_not_mix,
        skip = |profile| needs_modes(profile).or(needs_stored_claims(profile))
    ),
    case!(a_free_name_can_change_its_mode, skip = needs_modes),
];

/// How often the parallel tries are repeated.
const ROUNDS: usize = 20;

const fn permits(count: u32, limit: u32) -> Mode {
    Mode::Permits { count, limit }
}

async fn readers_share(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let readers = [
        fixture.claim(&name, Mode::Shared),
        fixture.claim(&name, Mode::Shared),
        fixture.claim(&name, Mode::Shared),
    ];
    client_a.acquire(&readers[0]).await?;
    client_b.acquire(&readers[1]).await?;
    client_a.acquire(&readers[2]).await?;
    let view = client_a.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.holders.len() == 3, "three readers hold, shown are {:?}", view.holders);
    ensure!(view.mode == Some(Mode::Shared), "readers hold, shown is {:?}", view.mode);
    Ok(())
}

async fn a_reader_excludes_a_writer(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let (first, second) = (fixture.claim(&name, Mode::Shared), fixture.claim(&name, Mode::Shared));
    let first_grant = client_a.acquire(&first).await?;
    let second_grant = client_b.acquire(&second).await?;
    client_b.expect_taken(&name).await?;
    client_a.release_hold(&first, &first_grant).await?;
    client_b.expect_taken(&name).await?;
    client_b.release_hold(&second, &second_grant).await?;
    client_a.expect_free(&name).await.map(drop)
}

async fn a_writer_excludes_a_reader(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let writer = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&writer).await?;
    let reader = fixture.try_claim(&name, Mode::Shared);
    client_b.claim_blocked(&reader).await?;
    client_a.release_hold(&writer, &grant).await?;
    client_b.acquire(&fixture.try_claim(&name, Mode::Shared)).await.map(drop)
}

async fn permits_add_up_to_the_limit(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let first = fixture.claim(&name, permits(1, 3));
    let first_grant = client_a.acquire(&first).await?;
    client_a.acquire(&fixture.claim(&name, permits(1, 3))).await?;
    client_b.acquire(&fixture.claim(&name, permits(1, 3))).await?;
    for client in [&client_a, &client_b] {
        client.claim_blocked(&fixture.try_claim(&name, permits(1, 3))).await?;
    }
    client_a.release_hold(&first, &first_grant).await?;
    client_b.acquire(&fixture.try_claim(&name, permits(1, 3))).await?;
    client_a.claim_blocked(&fixture.try_claim(&name, permits(1, 3))).await.map(drop)
}

async fn a_hold_of_several_permits_counts_them_all(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let two = fixture.claim(&name, permits(2, 3));
    let grant = client_a.acquire(&two).await?;
    client_b.claim_blocked(&fixture.try_claim(&name, permits(2, 3))).await?;
    let last = fixture.claim(&name, permits(1, 3));
    let last_grant = client_b.acquire(&last).await?;
    client_b.claim_blocked(&fixture.try_claim(&name, permits(1, 3))).await?;
    client_a.release_hold(&two, &grant).await?;
    client_b.claim_blocked(&fixture.try_claim(&name, permits(3, 3))).await?;
    client_b.release_hold(&last, &last_grant).await?;
    client_b.acquire(&fixture.try_claim(&name, permits(3, 3))).await.map(drop)
}

/// I13: a try must not block another claim, except by the hold that the try is granted.
async fn concurrent_tries_that_fit_are_all_granted(fixture: &Fixture<'_>) -> Outcome {
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    for (suffix, mode) in [("-permits", permits(1, 3)), ("-readers", Mode::Shared)] {
        let name = fixture.name(suffix);
        for _ in 0..ROUNDS {
            let tries = clients.each_ref().map(|client| (client, fixture.try_claim(&name, mode)));
            let grants = try_join_all(tries.iter().map(|(client, claim)| client.acquire(claim))).await?;
            let held = tries.iter().zip(&grants);
            try_join_all(held.map(|((client, claim), grant)| client.release_hold(claim, grant))).await?;
        }
    }
    Ok(())
}

/// I13, with two tries at the same time: one wants more permits than are left, and the other wants no more than are
/// left. The second one must be granted.
async fn a_refused_try_does_not_block_a_smaller_one(fixture: &Fixture<'_>) -> Outcome {
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let [holder, large, small] = &clients;
    let name = fixture.name("");
    holder.acquire(&fixture.claim(&name, permits(2, 3))).await?;
    let refused = async {
        for _ in 0..ROUNDS {
            large.claim_blocked(&fixture.try_claim(&name, permits(2, 3))).await?;
        }
        Ok(())
    };
    let granted = async {
        for _ in 0..ROUNDS {
            let claim = fixture.try_claim(&name, permits(1, 3));
            let grant = small.acquire(&claim).await?;
            small.release_hold(&claim, &grant).await?;
        }
        Ok(())
    };
    try_join(refused, granted).await.map(drop)
}

async fn permits_of_another_limit_are_refused(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, permits(1, 3));
    let grant = client_a.acquire(&holder).await?;
    expect_refused(fixture, &client_b, &name, permits(1, 4)).await?;
    expect_refused(fixture, &client_a, &name, permits(1, 2)).await?;
    client_a.release_hold(&holder, &grant).await?;
    client_b.acquire(&fixture.claim(&name, permits(1, 4))).await.map(drop)
}

async fn permits_and_locks_do_not_mix(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    for (suffix, held, wanted) in [
        ("-a", permits(1, 3), Mode::Exclusive),
        ("-b", permits(1, 3), Mode::Shared),
        ("-c", Mode::Exclusive, permits(1, 3)),
        ("-d", Mode::Shared, permits(1, 1)),
    ] {
        let name = fixture.name(suffix);
        client_a.acquire(&fixture.claim(&name, held)).await?;
        expect_refused(fixture, &client_b, &name, wanted).await?;
    }
    Ok(())
}

async fn a_free_name_can_change_its_mode(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let name = fixture.name("");
    for mode in [Mode::Exclusive, permits(1, 3), Mode::Shared, permits(2, 5), Mode::Exclusive] {
        let claim = fixture.claim(&name, mode);
        let grant = client.acquire(&claim).await?;
        client.release_hold(&claim, &grant).await?;
    }
    Ok(())
}

/// Fails the case unless a claim in this mode, which the name does not have, is refused as misconfigured and leaves
/// nothing.
async fn expect_refused(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
    name: &leasehold_core::Name,
    mode: Mode,
) -> Outcome {
    for may_queue in [true, false] {
        let claim = leasehold_core::Claim { may_queue, ..fixture.claim(name, mode) };
        expect_match!(
            client.send_claim_unchecked(&claim, How::Create).await,
            Err(EngineError { fault: Fault::Misconfigured, .. }) => (),
            "a claim of {mode} of a name in use for another kind or limit"
        );
    }
    let view = client.engine.show(name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.waiters.is_empty(), "a refused claim is queued: {:?}", view.waiters);
    Ok(())
}
