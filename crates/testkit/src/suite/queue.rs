//! The queue: order, fairness, hand-over. R8.

use std::time::Instant;

use futures_util::future::try_join_all;
use leasehold_core::{Answer, Claim, How, Mode, Released};

use super::{
    case::{Case, Outcome, Stop, case, ensure, needs_fifo, needs_lease, want},
    fixture::{Client, Contended, Fixture},
};

pub(super) const CASES: &[Case] = &[
    case!(a_waiter_is_granted_after_the_release),
    case!(waiters_are_served_in_order, skip = needs_fifo),
    case!(newcomers_do_not_overtake_the_queue, skip = needs_fifo),
    case!(a_waiting_writer_is_not_overtaken_by_readers, skip = needs_fifo),
    case!(readers_at_the_head_are_granted_together, skip = needs_fifo),
    case!(a_small_permit_claim_does_not_overtake_a_large_one, skip = needs_fifo),
    case!(a_cancelled_waiter_leaves_the_queue, skip = needs_fifo),
    case!(a_cancelled_waiter_hands_over_its_grant, skip = needs_fifo),
    case!(
        a_dead_waiter_does_not_block_the_queue,
        skip = |profile| needs_fifo(profile).or(needs_lease(profile))
    ),
    case!(a_thousand_claims_wait_on_one_name, skip = needs_fifo),
];

/// How many waiters ask in parallel.
const BATCH: usize = 50;

async fn a_waiter_is_granted_after_the_release(fixture: &Fixture<'_>) -> Outcome {
    let Contended { one, other, holder, grant, waiter } = fixture.contended().await?;
    one.free(&holder, &grant).await?;
    let next = other.granted(&waiter).await?;
    one.finds_taken(&holder.name).await?;
    other.free(&waiter, &next).await
}

async fn waiters_are_served_in_order(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let mut grant = one.hold(&holder).await?;
    let waiters: Vec<Claim> = (0..4).map(|_| fixture.claim(&name, Mode::Exclusive)).collect();
    for (at, waiter) in waiters.iter().enumerate() {
        let client = if at % 2 == 0 { &other } else { &one };
        let hint = client.blocked(waiter).await?;
        ensure!(
            hint.ahead.is_none_or(|ahead| ahead as usize == at),
            "waiter {at} got the position {:?}",
            hint.ahead
        );
    }
    let (mut last, mut last_client) = (&holder, &one);
    for (at, waiter) in waiters.iter().enumerate() {
        for (later, client) in waiters[at..].iter().zip([&other, &one].into_iter().cycle().skip(at % 2)) {
            client.waits(later).await?;
        }
        last_client.free(last, &grant).await?;
        let client = if at % 2 == 0 { &other } else { &one };
        grant = client.granted(waiter).await?;
        (last, last_client) = (waiter, client);
    }
    last_client.free(last, &grant).await
}

async fn newcomers_do_not_overtake_the_queue(fixture: &Fixture<'_>) -> Outcome {
    let Contended { one, other, holder, grant, waiter } = fixture.contended().await?;
    one.free(&holder, &grant).await?;
    one.finds_taken(&holder.name).await?;
    one.blocked(&fixture.claim(&holder.name, Mode::Exclusive)).await?;
    other.granted(&waiter).await.map(drop)
}

async fn a_waiting_writer_is_not_overtaken_by_readers(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let reader = fixture.claim(&name, Mode::Shared);
    let grant = one.hold(&reader).await?;
    let writer = fixture.claim(&name, Mode::Exclusive);
    other.blocked(&writer).await?;
    one.blocked(&fixture.attempt(&name, Mode::Shared)).await?;
    let late = fixture.claim(&name, Mode::Shared);
    one.blocked(&late).await?;
    one.free(&reader, &grant).await?;
    let written = other.granted(&writer).await?;
    one.waits(&late).await?;
    other.free(&writer, &written).await?;
    one.granted(&late).await.map(drop)
}

async fn readers_at_the_head_are_granted_together(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let writer = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&writer).await?;
    let (first, second) = (fixture.claim(&name, Mode::Shared), fixture.claim(&name, Mode::Shared));
    let (next, third) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Shared));
    one.blocked(&first).await?;
    other.blocked(&second).await?;
    other.blocked(&next).await?;
    one.blocked(&third).await?;
    one.free(&writer, &grant).await?;
    let first_grant = one.granted(&first).await?;
    let second_grant = other.granted(&second).await?;
    one.waits(&third).await?;
    one.free(&first, &first_grant).await?;
    other.waits(&next).await?;
    other.free(&second, &second_grant).await?;
    other.granted(&next).await.map(drop)
}

async fn a_small_permit_claim_does_not_overtake_a_large_one(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let permits = |count| Mode::Permits { count, limit: 3 };
    let holder = fixture.claim(&name, permits(2));
    let grant = one.hold(&holder).await?;
    let (large, small) = (fixture.claim(&name, permits(3)), fixture.claim(&name, permits(1)));
    other.blocked(&large).await?;
    one.blocked(&small).await?;
    one.free(&holder, &grant).await?;
    let all = other.granted(&large).await?;
    one.waits(&small).await?;
    other.free(&large, &all).await?;
    one.granted(&small).await.map(drop)
}

async fn a_cancelled_waiter_leaves_the_queue(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&holder).await?;
    let (leaving, staying) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Exclusive));
    one.blocked(&leaving).await?;
    other.blocked(&staying).await?;
    want!(one.release(&leaving, None).await?, Released::Freed => (), "a waiter that leaves the queue");
    want!(one.ask(&leaving, How::Ask).await?, Answer::Gone => (), "an ask of a waiter that left the queue");
    one.free(&holder, &grant).await?;
    other.granted(&staying).await.map(drop)
}

async fn a_cancelled_waiter_hands_over_its_grant(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&holder).await?;
    let (leaving, staying) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Exclusive));
    one.blocked(&leaving).await?;
    other.blocked(&staying).await?;
    // The grant, or the wake-up, is in flight to the first waiter when it gives up, so the waiter cannot know.
    one.free(&holder, &grant).await?;
    want!(one.release(&leaving, None).await?, Released::Freed => (), "a waiter that was granted and gives up");
    other.granted(&staying).await?;
    one.finds_taken(&name).await
}

async fn a_dead_waiter_does_not_block_the_queue(fixture: &Fixture<'_>) -> Outcome {
    let (one, dead, other) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = one.hold(&holder).await?;
    dead.blocked(&fixture.short(&name, Mode::Exclusive)).await?;
    let waiter = fixture.claim(&name, Mode::Exclusive);
    other.blocked(&waiter).await?;
    one.free(&holder, &grant).await?;
    // The dead waiter was granted, and its claim time ends without a confirmation.
    let silent = fixture.short(&name, Mode::Exclusive);
    fixture.advance(silent.claim_time * 2).await;
    other.granted(&waiter).await.map(drop)
}

async fn a_thousand_claims_wait_on_one_name(fixture: &Fixture<'_>) -> Outcome {
    let (one, other) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let patient = || {
        let claim = fixture.claim(&name, Mode::Exclusive);
        let ttl = fixture.short_time(claim.ttl);
        Claim { ttl, claim_time: ttl, ..claim }
    };
    let holder = patient();
    let mut grant = one.hold(&holder).await?;
    let waiters: Vec<Claim> = (0..fixture.max_waiters()).map(|_| patient()).collect();
    let waiters: Vec<_> = waiters.iter().zip([&one, &other].into_iter().cycle()).collect();
    let mut last_contact = Instant::now();
    for (at, (waiter, client)) in waiters.iter().enumerate() {
        client.blocked(waiter).await.map_err(|why| Stop::Fail(format!("waiter {at}: {why:?}")))?;
        keep_alive((&holder, &one), &waiters[..at], &mut last_contact).await?;
    }
    let view = one.engine.show(&name).await.map_err(|error| format!("show: {error:?}"))?;
    let in_order =
        view.waiters.iter().map(|waiter| waiter.id.as_str()).eq(waiters.iter().map(|w| w.0.id.to_string()));
    ensure!(in_order, "{} of {} waiters are shown, or not in order", view.waiters.len(), waiters.len());
    let mut last = (&holder, &one);
    for (at, &(waiter, client)) in waiters.iter().enumerate() {
        last.1.free(last.0, &grant).await?;
        grant = client.granted(waiter).await.map_err(|why| Stop::Fail(format!("waiter {at}: {why:?}")))?;
        last = (waiter, client);
        keep_alive(last, &waiters[at + 1..], &mut last_contact).await?;
    }
    Ok(())
}

/// On a slow machine, lets the holder and the waiters ask again before their leases end.
async fn keep_alive(
    (holder, client): (&Claim, &Client<'_>),
    waiters: &[(&Claim, &Client<'_>)],
    last_contact: &mut Instant,
) -> Outcome {
    if last_contact.elapsed() < holder.ttl * 2 / 3 {
        return Ok(());
    }
    client.granted(holder).await?;
    for some in waiters.chunks(BATCH) {
        try_join_all(some.iter().map(|(waiter, client)| client.waits(waiter))).await?;
    }
    *last_contact = Instant::now();
    Ok(())
}
