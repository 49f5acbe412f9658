//! How engines behave when the system is disturbed. The harness states which disturbances it can produce.

use std::{pin::pin, time::Duration};

use leasehold_core::{Answer, How, Mode, Name, Notification, Released, Renewed, View};

use super::{
    Disturbance,
    case::{Case, Outcome, case, ensure, expect_match},
    fixture::{Fixture, hold_of, release_of},
};

pub(super) const CASES: &[Case] = &[
    case!(tokens_grow_after_the_system_lost_its_data),
    case!(locks_outlive_cut_connections),
    case!(a_lost_answer_does_not_count_as_a_no),
];

/// How often, and with which pause, a case looks whether a request whose answer is held has been applied. A request
/// that needs an answer to a part of it is not applied.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

async fn tokens_grow_after_the_system_lost_its_data(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    fixture.disturb(Disturbance::Forget).await?;
    let answers = client_a.engine.renew(&[hold_of(&claim, &grant)]).await;
    expect_match!(&answers[..], [Renewed::Lost(_)] => (), "the renewal of a hold that the system forgot");
    let next = client_b.expect_free(&claim.name).await?;
    let grown = next.token.lineage != grant.token.lineage || next.token > grant.token;
    ensure!(grown, "after the system forgot, the token {} follows {}", next.token, grant.token);
    Ok(())
}

async fn locks_outlive_cut_connections(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    let grant = client_a.acquire(&claim).await?;
    let waiter = fixture.claim(&claim.name, Mode::Exclusive);
    client_b.claim_blocked(&waiter).await?;
    fixture.disturb(Disturbance::Cut).await?;
    if fixture.profile().push {
        let reported = async {
            while !client_b
                .engine
                .notifications()
                .await
                .iter()
                .any(|notification| matches!(notification, Notification::AskAll))
            {}
        };
        let limit = fixture.patience();
        let late = |_| format!("no AskAll after a cut connection in {limit:?}");
        tokio::time::timeout(limit, reported).await.map_err(late)?;
    }
    client_a.ask_until_connected(&claim).await?;
    client_b.ask_until_connected(&waiter).await?;
    let again = client_a.ask_until_granted(&claim).await?;
    ensure!(
        again.token == grant.token,
        "a cut connection changed the token {} to {}",
        grant.token,
        again.token
    );
    client_a.release_hold(&claim, &again).await?;
    client_b.ask_until_granted(&waiter).await.map(drop)
}

/// R12, for a claim and for its release: the request is applied, its answer is lost, and the connection breaks.
async fn a_lost_answer_does_not_count_as_a_no(fixture: &Fixture<'_>) -> Outcome {
    let client = fixture.client().await;
    // The client has its connections.
    let first = fixture.claim(&fixture.name("-first"), Mode::Exclusive);
    let grant = client.acquire(&first).await?;
    client.release_hold(&first, &grant).await?;

    let claim = fixture.claim(&fixture.name(""), Mode::Exclusive);
    client.add_to_clean_up(&claim);
    let request = client.engine.claim(&claim, How::Create);
    let is_held = |view: &View| !view.holders.is_empty();
    let (answer, was_applied) = without_answer(fixture, &claim.name, request, is_held).await?;
    match answer {
        Ok(Answer::Held(_)) => {}
        Err(error) if error.fault.may_be_applied() || !was_applied => {}
        other => return Err(format!("the claim was applied ({was_applied}), and answered {other:?}").into()),
    }

    // Further requests may find out that their connection was cut, too.
    let mut grant = None;
    for _ in 0..LOOKS {
        if let Ok(Answer::Held(held)) = client.engine.claim(&claim, How::Create).await {
            grant = Some(held);
            break;
        }
        fixture.advance(BETWEEN_LOOKS).await;
    }
    let Some(grant) = grant else {
        return Err("a repeated claim does not hold the free name".to_owned().into());
    };
    let releases = [release_of(&claim, Some(&grant))];
    let request = client.engine.release(&releases);
    let is_free = |view: &View| view.holders.is_empty();
    let (answers, was_applied) = without_answer(fixture, &claim.name, request, is_free).await?;
    match &answers[..] {
        [Released::Freed] => {}
        // The release was sent again.
        [Released::NotThere] if was_applied => {}
        [Released::Unknown(error)] if error.fault.may_be_applied() || !was_applied => {}
        _ => return Err(format!("the release was applied ({was_applied}), and answered {answers:?}").into()),
    }
    for _ in 0..LOOKS {
        let answers = client.engine.release(&releases).await;
        if matches!(answers[..], [Released::Freed | Released::NotThere]) {
            return fixture.client().await.expect_free(&claim.name).await.map(drop);
        }
        fixture.advance(BETWEEN_LOOKS).await;
    }
    Err("a repeated release has no answer".to_owned().into())
}

/// Sends a request of a client and holds its answer until another client sees that the request `is_applied`, or has
/// looked for long enough. Then the connection is cut. Returns the outcome, and whether the request was applied before
/// the cut.
async fn without_answer<T>(
    fixture: &Fixture<'_>,
    name: &Name,
    request: impl Future<Output = T>,
    is_applied: impl Fn(&View) -> bool,
) -> Outcome<(T, bool)> {
    fixture.disturb(Disturbance::HoldAnswers).await?;
    let other = fixture.client().await;
    let looks = async {
        for _ in 0..LOOKS {
            if other.engine.show(name).await.is_ok_and(|view| is_applied(&view)) {
                return true;
            }
            fixture.advance(BETWEEN_LOOKS).await;
        }
        false
    };
    let mut request = pin!(request);
    let was_applied = tokio::select! {
        biased;
        // The engine got its answer over another connection.
        answer = request.as_mut() => return Ok((answer, true)),
        was_applied = looks => was_applied,
    };
    fixture.disturb(Disturbance::Cut).await?;
    Ok((request.await, was_applied))
}
