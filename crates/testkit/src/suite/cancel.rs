//! Futures of verbs that are dropped before they complete: rule R23 of `docs/rules.md`.

use std::{future::poll_fn, pin::Pin, task::Poll};

use leasehold_core::{BoxFuture, How, Mode};

use super::{
    case::{Case, Outcome, case, ensure, expect_match},
    fixture::{Fixture, release_of},
};

pub(super) const CASES: &[Case] = &[
    case!(a_claim_dropped_at_any_poll_leaves_nothing),
    case!(a_release_dropped_at_any_poll_can_be_sent_again),
];

/// The limit of polls for one verb. A request has a handful of stages.
pub(super) const MAX_POLLS: usize = 200;

async fn a_claim_dropped_at_any_poll_leaves_nothing(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    for polls in 0..MAX_POLLS {
        let claim = fixture.claim(&name, Mode::Exclusive);
        client_a.add_to_clean_up(&claim);
        let completed = poll_times(client_a.engine.claim(&claim, How::Create), polls).await;
        let released = client_a.release(&claim, None).await?;
        ensure!(
            !completed || matches!(released, leasehold_core::Released::Freed),
            "a claim was answered at poll {polls}, its release found nothing"
        );
        client_b.expect_free(&name).await?;
        if completed {
            return Ok(());
        }
    }
    Err(format!("a claim needs more than {MAX_POLLS} polls").into())
}

async fn a_release_dropped_at_any_poll_can_be_sent_again(fixture: &Fixture<'_>) -> Outcome {
    let (client_a, client_b) = (fixture.client().await, fixture.client().await);
    let name = fixture.name("");
    for polls in 0..MAX_POLLS {
        let claim = fixture.claim(&name, Mode::Exclusive);
        let grant = client_a.acquire(&claim).await?;
        let releases = [release_of(&claim, Some(&grant))];
        let completed = poll_times(client_a.engine.release(&releases), polls).await;
        expect_match!(
            client_a.release(&claim, Some(&grant)).await?,
            leasehold_core::Released::Freed | leasehold_core::Released::NotThere => (),
            "the release sent again"
        );
        client_b.expect_free(&name).await?;
        if completed {
            return Ok(());
        }
    }
    Err(format!("a release needs more than {MAX_POLLS} polls").into())
}

/// Polls a future up to `polls` times, each time after a wake-up, and then drops it. Returns whether the future
/// completed.
pub(super) async fn poll_times<T>(mut future: BoxFuture<'_, T>, polls: usize) -> bool {
    let mut polled = 0;
    poll_fn(move |context| {
        if polled == polls {
            return Poll::Ready(false);
        }
        polled += 1;
        match Pin::new(&mut future).poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polled == polls => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
