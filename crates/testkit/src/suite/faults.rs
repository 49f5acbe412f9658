//! How engines behave when the system is disturbed. The harness states which disturbances it can produce.

use leasehold_core::{Mode, Notification, Renewed};

use super::{
    Disturbance,
    case::{Case, Outcome, case, ensure, expect_match},
    fixture::{Fixture, hold_of},
};

pub(super) const CASES: &[Case] =
    &[case!(tokens_grow_after_the_system_lost_its_data), case!(locks_outlive_cut_connections)];

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
