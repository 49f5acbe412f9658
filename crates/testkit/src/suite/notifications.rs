//! News: a hint that wakes the waiter; the truth is asked. R7.

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Mode, Notification};

use super::{
    bench::{Bench, Client, Contended},
    case::{Case, Outcome, Stop, case, ensure, needs_fifo},
};

pub(super) const CASES: &[Case] = &[
    case!(notifications_wakes_the_waiter, skip = needs_push),
    case!(
        notifications_wakes_the_next_waiter_when_the_first_gives_up,
        skip = |profile| needs_push(profile).or(needs_fifo(profile))
    ),
    case!(a_dropped_notifications_future_loses_nothing, skip = needs_push),
    case!(notifications_come_to_the_claims_own_client, skip = needs_push),
    case!(the_poll_finds_the_grant, skip = |profile| profile.push.then_some("news are pushed")),
];

fn needs_push(profile: &leasehold_core::Profile) -> Option<&'static str> {
    (!profile.push).then_some("news are not pushed")
}

async fn notifications_wakes_the_waiter(bench: &Bench<'_>) -> Outcome {
    let Contended { one, other, holder, grant, waiter } = bench.contended().await?;
    one.free(&holder, &grant).await?;
    let pushed = woken(bench, &other, &waiter).await?;
    let next = other.granted(&waiter).await?;
    if let Some(pushed) = pushed {
        ensure!(pushed == next.token, "the token {pushed} was pushed, asking told {}", next.token);
    }
    other.free(&waiter, &next).await
}

async fn notifications_wakes_the_next_waiter_when_the_first_gives_up(bench: &Bench<'_>) -> Outcome {
    let (one, first, second) = (bench.client().await, bench.client().await, bench.client().await);
    let name = bench.name("");
    let holder = bench.claim(&name, Mode::Exclusive);
    let grant = one.hold(&holder).await?;
    let (leaving, staying) = (bench.claim(&name, Mode::Exclusive), bench.claim(&name, Mode::Exclusive));
    first.blocked(&leaving).await?;
    second.blocked(&staying).await?;
    one.free(&holder, &grant).await?;
    woken(bench, &first, &leaving).await?;
    first.release(&leaving, None).await?;
    woken(bench, &second, &staying).await?;
    second.granted(&staying).await.map(drop)
}

async fn a_dropped_notifications_future_loses_nothing(bench: &Bench<'_>) -> Outcome {
    let Contended { one, other, holder, grant, waiter } = bench.contended().await?;
    let early = tokio::time::timeout(Duration::ZERO, other.engine.notifications()).await.unwrap_or_default();
    ensure!(
        !early.iter().any(|notification| matches!(notification, Notification::Granted { .. })),
        "granted before it was free: {early:?}"
    );
    one.free(&holder, &grant).await?;
    woken(bench, &other, &waiter).await?;
    other.granted(&waiter).await.map(drop)
}

async fn notifications_come_to_the_claims_own_client(bench: &Bench<'_>) -> Outcome {
    let third = bench.client().await;
    let Contended { one, other, holder, grant, waiter } = bench.contended().await?;
    one.free(&holder, &grant).await?;
    woken(bench, &other, &waiter).await?;
    let strange =
        tokio::time::timeout(Duration::ZERO, third.engine.notifications()).await.unwrap_or_default();
    ensure!(
        !strange.iter().any(|notification| concerns(notification, waiter.id)),
        "news of another client's claim: {strange:?}"
    );
    other.granted(&waiter).await.map(drop)
}

async fn the_poll_finds_the_grant(bench: &Bench<'_>) -> Outcome {
    let Contended { one, other, holder, grant, waiter } = bench.contended().await?;
    one.free(&holder, &grant).await?;
    bench.advance(*bench.profile().poll.end()).await;
    other.granted(&waiter).await.map(drop)
}

/// Reads news until one tells this claim to ask; gives the pushed token, if one was pushed.
pub(super) async fn woken(
    bench: &Bench<'_>,
    client: &Client<'_>,
    claim: &Claim,
) -> Outcome<Option<leasehold_core::Token>> {
    let reading = async {
        loop {
            for notification in client.engine.notifications().await {
                match notification {
                    Notification::Granted { id, grant, .. } if id == claim.id => return Some(grant.token),
                    Notification::Recheck { id, .. } if id == claim.id => return None,
                    Notification::AskAll => return None,
                    _ => {}
                }
            }
        }
    };
    let limit = bench.patience();
    let late = |_| Stop::Fail(format!("no news of {} for its waiter in {limit:?}", claim.name));
    tokio::time::timeout(limit, reading).await.map_err(late)
}

fn concerns(notification: &Notification, claim: ClaimId) -> bool {
    match notification {
        Notification::Granted { id, .. }
        | Notification::Recheck { id, .. }
        | Notification::Lost { id, .. } => *id == claim,
        _ => false,
    }
}
