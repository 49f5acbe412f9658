//! Latches: rule R33 of `docs/rules.md`.

use std::time::Duration;

use leasehold_core::Latch;

use super::{
    case::{Case, Outcome, Stop, case, ensure, expect_match},
    fixture::Fixture,
    program::{close_all, failed, needs_memos},
};

pub(super) const CASES: &[Case] = &[
    case!(all_who_wait_wake_when_the_last_party_has_counted_down, skip = needs_memos),
    case!(parties_that_count_down_together_are_all_counted, skip = needs_memos),
    case!(another_count_is_refused_and_an_open_latch_stays_open, skip = needs_memos),
];

async fn all_who_wait_wake_when_the_last_party_has_counted_down(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let (latch, elsewhere) = (locks.latch(name.as_str(), 3), other.latch(name.as_str(), 3));
    let waiting: Vec<_> = [&latch, &elsewhere, &elsewhere].map(|latch| tokio::spawn(latch.wait())).into();
    for (party, missing) in [("a", 2), ("b", 1), ("b", 1), ("a", 1)] {
        let arrivals = latch.count_down(party).await.map_err(failed("count down"))?;
        ensure!(arrivals.missing() == missing, "after {party}: {arrivals:?}");
    }
    let mut late = elsewhere.wait_within(Duration::from_millis(1)).await;
    for seconds in [1, 5, 25] {
        // On a busy machine an answer takes longer than the limit.
        if matches!(&late, Err(error) if error.is_unreachable()) {
            late = elsewhere.wait_within(Duration::from_secs(seconds)).await;
        }
    }
    expect_match!(late, Err(error) if error.is_timed_out() => (), "one party is missing");
    ensure!(waiting.iter().all(|task| !task.is_finished()), "a wait ended although one party is missing");
    elsewhere.count_down("c").await.map_err(failed("count down"))?;
    for task in waiting {
        let woken = fixture.step("who waits is woken", task).await?;
        let woken = woken.map_err(|error| Stop::Fail(format!("a wait: {error}")))?;
        expect_match!(woken, Ok(arrivals) if arrivals.parties().eq(["a", "b", "c"]) => (), "a wait");
    }
    close_all([locks, other]).await
}

async fn parties_that_count_down_together_are_all_counted(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let parties = ["a", "b", "c", "d", "e", "f"];
    let count_down = |(number, party): (usize, &'static str)| {
        let latch: Latch = [&locks, &other][number % 2].latch(name.as_str(), 6);
        async move { latch.count_down(party).await }
    };
    let all = futures_util::future::join_all(parties.into_iter().enumerate().map(count_down));
    for arrivals in fixture.step("six parties count down", all).await? {
        arrivals.map_err(failed("count down"))?;
    }
    let arrivals = locks.latch(name.as_str(), 6).arrivals().await.map_err(failed("read"))?;
    ensure!(arrivals.is_open() && arrivals.parties().eq(parties), "{arrivals:?}");
    close_all([locks, other]).await
}

async fn another_count_is_refused_and_an_open_latch_stays_open(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let latch = locks.latch(name.as_str(), 1);
    latch.count_down("a").await.map_err(failed("count down"))?;
    let fourth = other.latch(name.as_str(), 1).count_down("b").await.map_err(failed("count down"))?;
    ensure!(fourth.is_open() && fourth.parties().eq(["a"]), "a party at an open latch: {fourth:?}");
    let wrong = other.latch(name.as_str(), 2);
    for refused in [wrong.count_down("b").await, wrong.wait().await] {
        expect_match!(refused, Err(error) if error.is_misconfigured() => (), "another count");
    }
    let open = fixture.step("an open latch", latch.wait()).await?;
    expect_match!(open, Ok(arrivals) if arrivals.is_open() => (), "an open latch");
    close_all([locks, other]).await
}
