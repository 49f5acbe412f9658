//! Notifications are hints: they wake a waiter, and the waiter asks for the truth (rule R7 of `docs/rules.md`).

use std::time::Duration;

use leasehold_core::{Claim, ClaimId, Mode, Notification};

use super::{
    case::{Case, Outcome, Stop, case, ensure, needs_fifo},
    fixture::{Client, Contended, Fixture},
};

pub(super) const CASES: &[Case] = &[
    case!(a_notification_wakes_the_waiter, skip = needs_push),
    case!(
        the_next_waiter_is_woken_when_the_first_gives_up,
        skip = |profile| needs_push(profile).or(needs_fifo(profile))
    ),
    case!(a_dropped_notifications_future_loses_nothing, skip = needs_push),
    case!(a_notification_reaches_only_the_client_of_its_claim, skip = needs_push),
    case!(the_poll_finds_the_grant, skip = |profile| profile.push.then_some("notifications are pushed")),
];

fn needs_push(profile: &leasehold_core::Profile) -> Option<&'static str> {
    (!profile.push).then_some("notifications are not pushed")
}

async fn a_notification_wakes_the_waiter(fixture: &Fixture<'_>) -> Outcome {
    let Contended { client_a, client_b, holder, grant, waiter } = fixture.contended().await?;
    client_a.release_hold(&holder, &grant).await?;
    let pushed = wait_for_wake_up(fixture, &client_b, &waiter).await?;
    let next = client_b.ask_until_granted(&waiter).await?;
    if let Some(pushed) = pushed {
        ensure!(pushed == next.token, "the token {pushed} was pushed, asking returned {}", next.token);
    }
    client_b.release_hold(&waiter, &next).await
}

async fn the_next_waiter_is_woken_when_the_first_gives_up(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, first, second) = (fixture.client().await, fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    let holder = fixture.claim(&name, Mode::Exclusive);
    let grant = client_a.acquire(&holder).await?;
    let (leaving, staying) = (fixture.claim(&name, Mode::Exclusive), fixture.claim(&name, Mode::Exclusive));
    first.claim_blocked(&leaving).await?;
    second.claim_blocked(&staying).await?;
    client_a.release_hold(&holder, &grant).await?;
    wait_for_wake_up(fixture, &first, &leaving).await?;
    first.release(&leaving, None).await?;
    wait_for_wake_up(fixture, &second, &staying).await?;
    second.ask_until_granted(&staying).await.map(drop)
}

async fn a_dropped_notifications_future_loses_nothing(fixture: &Fixture<'_>) -> Outcome {
    let Contended { client_a, client_b, holder, grant, waiter } = fixture.contended().await?;
    let early =
        tokio::time::timeout(Duration::ZERO, client_b.engine.notifications()).await.unwrap_or_default();
    ensure!(
        !early.iter().any(|notification| matches!(notification, Notification::Granted { .. })),
        "granted before it was free: {early:?}"
    );
    client_a.release_hold(&holder, &grant).await?;
    wait_for_wake_up(fixture, &client_b, &waiter).await?;
    client_b.ask_until_granted(&waiter).await.map(drop)
}

async fn a_notification_reaches_only_the_client_of_its_claim(fixture: &Fixture<'_>) -> Outcome {
    let third = fixture.client().await;
    let Contended { client_a, client_b, holder, grant, waiter } = fixture.contended().await?;
    client_a.release_hold(&holder, &grant).await?;
    wait_for_wake_up(fixture, &client_b, &waiter).await?;
    let foreign =
        tokio::time::timeout(Duration::ZERO, third.engine.notifications()).await.unwrap_or_default();
    ensure!(
        !foreign.iter().any(|notification| concerns(notification, waiter.id)),
        "notifications of another client's claim: {foreign:?}"
    );
    client_b.ask_until_granted(&waiter).await.map(drop)
}

async fn the_poll_finds_the_grant(fixture: &Fixture<'_>) -> Outcome {
    let Contended { client_a, client_b, holder, grant, waiter } = fixture.contended().await?;
    client_a.release_hold(&holder, &grant).await?;
    fixture.advance(*fixture.profile().poll.end()).await;
    client_b.ask_until_granted(&waiter).await.map(drop)
}

/// Reads notifications until one tells this claim to ask. If this one is a pushed grant, returns its token; otherwise
/// `None`.
pub(super) async fn wait_for_wake_up(
    fixture: &Fixture<'_>,
    client: &Client<'_>,
    claim: &Claim,
) -> Outcome<Option<leasehold_core::Token>> {
    let wake_up = async {
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
    let limit = fixture.patience();
    let late = |_| Stop::Fail(format!("no notification of {} for its waiter in {limit:?}", claim.name));
    tokio::time::timeout(limit, wake_up).await.map_err(late)
}

fn concerns(notification: &Notification, claim: ClaimId) -> bool {
    match notification {
        Notification::Granted { id, .. }
        | Notification::Recheck { id, .. }
        | Notification::Lost { id, .. } => *id == claim,
        _ => false,
    }
}
