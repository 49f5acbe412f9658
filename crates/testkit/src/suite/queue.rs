//! The queue: order, fairness, hand-over (rule R8 of `docs/rules.md`).

use std::time::Instant;

use futures_util::future::try_join_all;
use leasehold_core::{Answer, Claim, How, Mode, Profile, Released};

use super::{
    case::{Case, Outcome, Stop, case, ensure, expect_match, needs_fifo, needs_lease, needs_modes},
    fixture::{Client, Contended, Fixture},
};

pub(super) const CASES: &[Case] = &[
    case!(a_waiter_is_granted_after_the_release),
    case!(waiters_are_served_in_order, skip = needs_fifo),
    case!(newcomers_do_not_overtake_the_queue, skip = needs_fifo),
    case!(a_waiting_writer_is_not_overtaken_by_readers, skip = needs_fifo_and_modes),
    case!(readers_at_the_head_are_granted_together, skip = needs_fifo_and_modes),
    case!(a_small_permit_claim_does_not_overtake_a_large_one, skip = needs_fifo_and_modes),
    case!(a_cancelled_waiter_leaves_the_queue, skip = needs_fifo),
    case!(a_cancelled_waiter_hands_over_its_grant, skip = needs_fifo),
    case!(
        a_dead_waiter_does_not_block_the_queue,
        skip = |profile| needs_fifo(profile).or(needs_lease(profile))
    ),
    case!(a_thousand_claims_wait_on_one_name, skip = needs_fifo),
];

fn needs_fifo_and_modes(profile: &Profile) -> Option<&'static str> {
    needs_fifo(profile).or(needs_modes(profile))
}

/// How many waiters ask in parallel.
const BATCH: usize = 50;

async fn a_waiter_is_granted_after_the_release(fixture: &Fixture<'_>) -> Outcome {
    let Contended { client_a, client_b, holder, grant, waiter } = fixture.contended().await?;
    client_a.release_hold(&holder, &grant).await?;
    let next = client_b.ask_until_granted(&waiter).await?;
    client_a.expect_taken(&holder.name).await?;
    client_b.release_hold(&waiter, &next).await
}

async fn waiters_are_served_in_order(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let mut grant = client_a.acquire(&holder).await?;
    let waiters: Vec<Claim> = (0..4).map(|_| fixture.claim(&name, Mode::Exclusive)).collect();
    for (index, waiter) in waiters.iter().enumerate() {
        let client = if index % 2 == 0 { &client_b } else { &client_a };
        let hint = client.claim_blocked(waiter).await?;
        ensure!(
            hint.ahead.is_none_or(|ahead| ahead as usize == index),
            "waiter {index} got the position {:?}",
            hint.ahead
        );
    }
    let (mut last_holder, mut last_client) = (&holder, &client_a);
    for (index, waiter) in waiters.iter().enumerate() {
        for (later, client) in
            waiters[index..].iter().zip([&client_b, &client_a].into_iter().cycle().skip(index % 2))
        {
            client.ask_still_queued(later).await?;
        }
        last_client.release_hold(last_holder, &grant).await?;
        let client = if index % 2 == 0 { &client_b } else { &client_a };
        grant = client.ask_until_granted(waiter).await?;
        (last_holder, last_client) = (waiter, client);
    }
    last_client.release_hold(last_holder, &grant).await
}

async fn newcomers_do_not_overtake_the_queue(fixture: &Fixture<'_>) -> Outcome {
    let Contended { client_a, client_b, holder, grant, waiter } = fixture.contended().await?;
    client_a.release_hold(&holder, &grant).await?;
    client_a.expect_taken(&holder.name).await?;
    client_a.claim_blocked(&fixture.claim(&holder.name, Mode::Exclusive)).await?;
    client_b.ask_until_granted(&waiter).await.map(drop)
}

async fn a_waiting_writer_is_not_overtaken_by_readers(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let reader = fixture.claim(&name, Mode::Shared);
    let grant = client_a.acquire(&reader).await?;
    let writer = fixture.claim(&name, Mode::Exclusive);
    client_b.claim_blocked(&writer).await?;
    client_a.claim_blocked(&fixture.try_claim(&name, Mode::Shared)).await?;
    let late = fixture.claim(&name, Mode::Shared);
    client_a.claim_blocked(&late).await?;
    client_a.release_hold(&reader, &grant).await?;
    let writer_grant = client_b.ask_until_granted(&writer).await?;
    client_a.ask_still_queued(&late).await?;
    client_b.release_hold(&writer, &writer_grant).await?;
    client_a.ask_until_granted(&late).await.map(drop)
}

async fn readers_at_the_head_are_granted_together(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let writer = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&writer).await?;
    let (first, second) = (fixture.claim(&name, Mode::Shared), fixture.claim(&name, Mode::Shared));
    let (next, third) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Shared));
    client_a.claim_blocked(&first).await?;
    client_b.claim_blocked(&second).await?;
    client_b.claim_blocked(&next).await?;
    client_a.claim_blocked(&third).await?;
    client_a.release_hold(&writer, &grant).await?;
    let first_grant = client_a.ask_until_granted(&first).await?;
    let second_grant = client_b.ask_until_granted(&second).await?;
    client_a.ask_still_queued(&third).await?;
    client_a.release_hold(&first, &first_grant).await?;
    client_b.ask_still_queued(&next).await?;
    client_b.release_hold(&second, &second_grant).await?;
    client_b.ask_until_granted(&next).await.map(drop)
}

async fn a_small_permit_claim_does_not_overtake_a_large_one(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let permits = |count| Mode::Permits { count, limit: 3 };
    let holder = fixture.claim(&name, permits(2));
    let grant = client_a.acquire(&holder).await?;
    let (large, small) = (fixture.claim(&name, permits(3)), fixture.claim(&name, permits(1)));
    client_b.claim_blocked(&large).await?;
    client_a.claim_blocked(&small).await?;
    client_a.release_hold(&holder, &grant).await?;
    let large_grant = client_b.ask_until_granted(&large).await?;
    client_a.ask_still_queued(&small).await?;
    client_b.release_hold(&large, &large_grant).await?;
    client_a.ask_until_granted(&small).await.map(drop)
}

async fn a_cancelled_waiter_leaves_the_queue(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&holder).await?;
    let (leaving, staying) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Exclusive));
    client_a.claim_blocked(&leaving).await?;
    client_b.claim_blocked(&staying).await?;
    expect_match!(
        client_a.release(&leaving, None).await?,
        Released::Freed => (),
        "a waiter that leaves the queue"
    );
    expect_match!(
        client_a.send_claim(&leaving, How::Ask).await?,
        Answer::Gone => (),
        "an ask of a waiter that left the queue"
    );
    client_a.release_hold(&holder, &grant).await?;
    client_b.ask_until_granted(&staying).await.map(drop)
}

async fn a_cancelled_waiter_hands_over_its_grant(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&holder).await?;
    let (leaving, staying) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Exclusive));
    client_a.claim_blocked(&leaving).await?;
    client_b.claim_blocked(&staying).await?;
    // When the waiter gives up, its grant or its wake-up is in flight, so the waiter does not know whether it has been
    // granted.
    client_a.release_hold(&holder, &grant).await?;
    expect_match!(
        client_a.release(&leaving, None).await?,
        Released::Freed => (),
        "a waiter that was granted and gives up"
    );
    client_b.ask_until_granted(&staying).await?;
    client_a.expect_taken(&name).await
}

async fn a_dead_waiter_does_not_block_the_queue(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, dead, client_b) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&holder).await?;
    dead.claim_blocked(&fixture.short_lease_claim(&name, Mode::Exclusive)).await?;
    let waiter = fixture.claim(&name, Mode::Exclusive);
    client_b.claim_blocked(&waiter).await?;
    client_a.release_hold(&holder, &grant).await?;
    // The dead waiter was granted the name, and its claim time ends without a confirmation.
    let silent = fixture.short_lease_claim(&name, Mode::Exclusive);
    fixture.advance(silent.claim_time * 2).await;
    client_b.ask_until_granted(&waiter).await.map(drop)
}

async fn a_thousand_claims_wait_on_one_name(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let long_claim = || {
        let claim = fixture.claim(&name, Mode::Exclusive);
        let ttl = fixture.short_time(claim.ttl);
        Claim { ttl, claim_time: ttl, ..claim }
    };
    let holder = long_claim();
    let mut grant = client_a.acquire(&holder).await?;
    let waiters: Vec<Claim> = (0..fixture.max_waiters()).map(|_| long_claim()).collect();
    let waiters: Vec<_> = waiters.iter().zip([&client_a, &client_b].into_iter().cycle()).collect();
    let mut last_contact = Instant::now();
    for (index, (waiter, client)) in waiters.iter().enumerate() {
        client.claim_blocked(waiter).await.map_err(|why| Stop::Fail(format!("waiter {index}: {why:?}")))?;
        keep_alive((&holder, &client_a), &waiters[..index], &mut last_contact).await?;
    }
    let view = client_a.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    let in_order = fixture.is_queue(&view.waiters, waiters.iter().map(|(waiter, _)| *waiter));
    ensure!(in_order, "{} of {} waiters are shown, or not in order", view.waiters.len(), waiters.len());
    let mut last_holder = (&holder, &client_a);
    for (index, &(waiter, client)) in waiters.iter().enumerate() {
        last_holder.1.release_hold(last_holder.0, &grant).await?;
        grant = client
            .ask_until_granted(waiter)
            .await
            .map_err(|why| Stop::Fail(format!("waiter {index}: {why:?}")))?;
        last_holder = (waiter, client);
        keep_alive(last_holder, &waiters[index + 1..], &mut last_contact).await?;
    }
    Ok(())
}

/// If much of the lease time has passed, as on a slow machine, lets the holder and the waiters ask again before their
/// leases end. Otherwise does nothing.
async fn keep_alive(
    (holder, client): (&Claim, &Client<'_>),
    waiters: &[(&Claim, &Client<'_>)],
    last_contact: &mut Instant,
) -> Outcome {
    if last_contact.elapsed() < holder.ttl * 2 / 3 {
        return Ok(());
    }
    client.ask_until_granted(holder).await?;
    for batch in waiters.chunks(BATCH) {
        try_join_all(batch.iter().map(|(waiter, client)| client.ask_still_queued(waiter))).await?;
    }
    *last_contact = Instant::now();
    Ok(())
}
