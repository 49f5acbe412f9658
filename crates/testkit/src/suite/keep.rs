//! Keeping a name taken after the release ("at least for").

use std::time::Duration;

use leasehold_core::{Mode, Profile, Release, Released};

use super::{
    bench::{Bench, release_of},
    case::{Case, Outcome, case, ensure, want},
};

pub(super) const CASES: &[Case] = &[
    case!(a_kept_name_is_taken_for_its_time, skip = needs_keep),
    case!(a_waiter_gets_a_kept_name_after_its_time, skip = needs_keep),
    case!(a_name_is_not_kept_without_being_held, skip = needs_keep),
];

/// For how long the cases keep a name, where the machine is quick enough.
const KEPT: Duration = Duration::from_secs(1);
/// Over the time, until a kept name must be free.
const GRACE: Duration = Duration::from_millis(250);

fn needs_keep(profile: &Profile) -> Option<&'static str> {
    (!profile.can_keep).then_some("a name cannot be kept after its release")
}

async fn a_kept_name_is_taken_for_its_time(bench: &Bench<'_>) -> Outcome {
    let kept = bench.short_time(KEPT);
    let (one, other) = (bench.client().await, bench.client().await);
    let claim = bench.claim(&bench.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let order = Release { keep: Some(kept), ..release_of(&claim, Some(&grant)) };
    want!(one.release_as(&order).await?, Released::Freed => (), "a release that keeps the name");
    let hint = other.blocked(&bench.attempt(&claim.name, Mode::Exclusive)).await?;
    ensure!(
        hint.ask_in.is_some_and(|ask_in| ask_in <= kept),
        "kept for {kept:?}, the hint is {:?}",
        hint.ask_in
    );
    one.blocked(&bench.attempt(&claim.name, Mode::Shared)).await?;
    // A release that is repeated, because its answer was lost, must not end the time.
    want!(one.release(&claim, Some(&grant)).await?, Released::NotThere | Released::Freed => (), "a repeated release");
    one.finds_taken(&claim.name).await?;
    bench.advance(kept + GRACE).await;
    let next = other.finds_free_in_time(&claim.name).await?;
    ensure!(next.token > grant.token, "the token {} follows {}", next.token, grant.token);
    Ok(())
}

async fn a_waiter_gets_a_kept_name_after_its_time(bench: &Bench<'_>) -> Outcome {
    let kept = bench.short_time(KEPT);
    let (one, other) = (bench.client().await, bench.client().await);
    let claim = bench.claim(&bench.name(""), Mode::Exclusive);
    let grant = one.hold(&claim).await?;
    let waiter = bench.claim(&claim.name, Mode::Exclusive);
    other.blocked(&waiter).await?;
    one.release_as(&Release { keep: Some(kept), ..release_of(&claim, Some(&grant)) }).await?;
    if bench.profile().fifo {
        other.waits(&waiter).await?;
    }
    bench.advance(kept + GRACE).await;
    other.granted(&waiter).await.map(drop)
}

async fn a_name_is_not_kept_without_being_held(bench: &Bench<'_>) -> Outcome {
    let kept = bench.short_time(KEPT);
    let (one, other) = (bench.client().await, bench.client().await);
    let stranger = bench.claim(&bench.name(""), Mode::Exclusive);
    let order = Release { keep: Some(kept), ..release_of(&stranger, None) };
    want!(one.release_as(&order).await?, Released::NotThere => (), "a keeping release of a claim never made");
    other.finds_free(&stranger.name).await.map(drop)
}
