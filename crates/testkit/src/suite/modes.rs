//! Exclusive, shared, permits: which holds may coexist.

use futures_util::future::{try_join, try_join_all};
use leasehold_core::{EngineError, Fault, How, Mode};

use super::{
    case::{Case, Outcome, case, ensure, needs_modes, want},
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
    case!(permits_of_another_limit_are_refused, skip = needs_modes),
    case!(permits_and_locks_do_not_mix, skip = needs_modes),
    case!(a_free_name_can_change_its_mode, skip = needs_modes),
];

/// How often the parallel tries are repeated.
const ROUNDS: usize = 20;

const fn permits(count: u32, limit: u32) -> Mode {
    Mode::Permits { count, limit }
}

async fn readers_share(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let readers = [
        fixture.claim(&name, Mode::Shared),
        fixture.claim(&name, Mode::Shared),
        fixture.claim(&name, Mode::Shared),
    ];
    one.hold(&readers[0]).await?;
    other.hold(&readers[1]).await?;
    one.hold(&readers[2]).await?;
    let view = one.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.holders.len() == 3, "three readers hold, shown are {:?}", view.holders);
    ensure!(view.mode == Some(Mode::Shared), "readers hold, shown is {:?}", view.mode);
    Ok(())
}

async fn a_reader_excludes_a_writer(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let (first, second) = (fixture.claim(&name, Mode::Shared), fixture.claim(&name, Mode::Shared));
    let first_grant = one.hold(&first).await?;
    let second_grant = other.hold(&second).await?;
    other.finds_taken(&name).await?;
    one.free(&first, &first_grant).await?;
    other.finds_taken(&name).await?;
    other.free(&second, &second_grant).await?;
    one.finds_free(&name).await.map(drop)
}

async fn a_writer_excludes_a_reader(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let writer = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&writer).await?;
    let reader = fixture.attempt(&name, Mode::Shared);
    other.blocked(&reader).await?;
    one.free(&writer, &grant).await?;
    other.hold(&fixture.attempt(&name, Mode::Shared)).await.map(drop)
}

async fn permits_add_up_to_the_limit(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let first = fixture.claim(&name, permits(1, 3));
    let first_grant = one.hold(&first).await?;
    one.hold(&fixture.claim(&name, permits(1, 3))).await?;
    other.hold(&fixture.claim(&name, permits(1, 3))).await?;
    for client in [&one, &other] {
        client.blocked(&fixture.attempt(&name, permits(1, 3))).await?;
    }
    one.free(&first, &first_grant).await?;
    other.hold(&fixture.attempt(&name, permits(1, 3))).await?;
    one.blocked(&fixture.attempt(&name, permits(1, 3))).await.map(drop)
}

async fn a_hold_of_several_permits_counts_them_all(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let two = fixture.claim(&name, permits(2, 3));
    let grant = one.hold(&two).await?;
    other.blocked(&fixture.attempt(&name, permits(2, 3))).await?;
    let last = fixture.claim(&name, permits(1, 3));
    let last_grant = other.hold(&last).await?;
    other.blocked(&fixture.attempt(&name, permits(1, 3))).await?;
    one.free(&two, &grant).await?;
    other.blocked(&fixture.attempt(&name, permits(3, 3))).await?;
    other.free(&last, &last_grant).await?;
    other.hold(&fixture.attempt(&name, permits(3, 3))).await.map(drop)
}

/// I13: a try blocks no other claim, except with what it is granted.
async fn concurrent_tries_that_fit_are_all_granted(fixture: &Fixture<'_>) -> Outcome {
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    for (suffix, mode) in [("-permits", permits(1, 3)), ("-readers", Mode::Shared)] {
        let name = fixture.name(suffix);
        for _ in 0..ROUNDS {
            let tries = clients.each_ref().map(|client| (client, fixture.attempt(&name, mode)));
            let grants = try_join_all(tries.iter().map(|(client, claim)| client.hold(claim))).await?;
            let held = tries.iter().zip(&grants);
            try_join_all(held.map(|((client, claim), grant)| client.free(claim, grant))).await?;
        }
    }
    Ok(())
}

/// I13, with two tries at once: one wants more permits than are left, the other does not.
async fn a_refused_try_does_not_block_a_smaller_one(fixture: &Fixture<'_>) -> Outcome {
    let clients = [fixture.client().await, fixture.client().await, fixture.client().await];
    let [holder, large, small] = &clients;
    let name = fixture.name("");
    holder.hold(&fixture.claim(&name, permits(2, 3))).await?;
    let refused = async {
        for _ in 0..ROUNDS {
            large.blocked(&fixture.attempt(&name, permits(2, 3))).await?;
        }
        Ok(())
    };
    let granted = async {
        for _ in 0..ROUNDS {
            let claim = fixture.attempt(&name, permits(1, 3));
            let grant = small.hold(&claim).await?;
            small.free(&claim, &grant).await?;
        }
        Ok(())
    };
    try_join(refused, granted).await.map(drop)
}

async fn permits_of_another_limit_are_refused(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, permits(1, 3));
    let grant = one.hold(&holder).await?;
    refused(fixture, &other, &name, permits(1, 4)).await?;
    refused(fixture, &one, &name, permits(1, 2)).await?;
    one.free(&holder, &grant).await?;
    other.hold(&fixture.claim(&name, permits(1, 4))).await.map(drop)
}

async fn permits_and_locks_do_not_mix(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    for (suffix, held, wanted) in [
        ("-a", permits(1, 3), Mode::Exclusive),
        ("-b", permits(1, 3), Mode::Shared),
        ("-c", Mode::Exclusive, permits(1, 3)),
        ("-d", Mode::Shared, permits(1, 1)),
    ] {
        let name = fixture.name(suffix);
        one.hold(&fixture.claim(&name, held)).await?;
        refused(fixture, &other, &name, wanted).await?;
    }
    Ok(())
}

async fn a_free_name_can_change_its_mode(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    let name = fixture.name("");
    for mode in [Mode::Exclusive, permits(1, 3), Mode::Shared, permits(2, 5), Mode::Exclusive] {
        let claim = fixture.claim(&name, mode);
        let grant = client.hold(&claim).await?;
        client.free(&claim, &grant).await?;
    }
    Ok(())
}

/// A claim of another mode or limit must be refused as misconfigured, and leave nothing.
async fn refused(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
    name: &leasehold_core::Name,
    mode: Mode,
) -> Outcome {
    for may_queue in [true, false] {
        let claim = leasehold_core::Claim { may_queue, ..fixture.claim(name, mode) };
        want!(
            client.send(&claim, How::Create).await,
            Err(EngineError { fault: Fault::Misconfigured, .. }) => (),
            "a claim of {mode} of a name in use for another kind or limit"
        );
    }
    let view = client.engine.show(name).await.map_err(|error| format!("show: {error:?}"))?;
    ensure!(view.waiters.is_empty(), "a refused claim is queued: {:?}", view.waiters);
    Ok(())
}
