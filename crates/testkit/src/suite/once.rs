//! Work that is done one time: rule R30 of `docs/rules.md`.

use std::{cell::Cell, convert::Infallible};

use leasehold_core::{Locks, MAX_MEMO_BYTES, Name, OnceError, Previous, Ran};

use tokio::sync::oneshot;

use super::{
    case::{Case, Outcome, Stop, case, ensure, expect_match},
    fixture::Fixture,
    program::{close_all, failed, needs_memos, needs_memos_and_breaking},
};

pub(super) const CASES: &[Case] = &[
    case!(a_repeat_receives_the_stored_result, skip = needs_memos),
    case!(duplicates_at_the_same_time_run_one_time, skip = needs_memos),
    case!(work_that_fails_stores_nothing, skip = needs_memos),
    case!(the_result_of_a_broken_run_is_not_stored, skip = needs_memos_and_breaking),
];

/// Fails the case with an error of a run.
fn run_failed<E: std::fmt::Debug>(error: OnceError<E>) -> Stop {
    Stop::Fail(format!("run: {error:?}"))
}

async fn a_repeat_receives_the_stored_result(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    // The largest result, all bytes.
    let result: Vec<u8> = (0..MAX_MEMO_BYTES).map(|index| (index * 7 + index / 256) as u8).collect();
    let digest = [9; 32];
    let fresh = locks.once(name.as_str()).digest(digest).run(async |_| Ok::<_, Infallible>(result.clone()));
    expect_match!(fresh.await, Ok(Ran::Fresh(bytes)) if bytes == result => (), "the first run");
    let never = async |_: &leasehold_core::Guard| Err::<Vec<u8>, _>("a repeat ran");
    let replayed = other.once(name.as_str()).digest(digest).run(never).await;
    expect_match!(replayed, Ok(Ran::Replayed(bytes)) if bytes == result => (), "a repeat");
    let other_payload = other.once(name.as_str()).digest([8; 32]).run(never).await;
    expect_match!(
        other_payload,
        Err(OnceError::NotBegun(error)) if error.is_mismatch() => (),
        "a repeat with another payload"
    );
    close_all([locks, other]).await
}

async fn duplicates_at_the_same_time_run_one_time(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let runs = Cell::new(0);
    let duplicate = |locks: &Locks| {
        locks.once(name.as_str()).run(async |guard| {
            runs.set(runs.get() + 1);
            // The others have begun to wait, or read the result later.
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(guard.token().number.to_string())
        })
    };
    let duplicates = [&locks, &other, &locks, &other, &locks, &other].map(duplicate);
    let all = futures_util::future::join_all(duplicates);
    let results = fixture.step("six duplicates have a result", all).await?;
    let mut fresh = 0;
    let mut bytes = Vec::new();
    for result in results {
        let ran = result.map_err(run_failed)?;
        fresh += usize::from(!ran.is_replayed());
        bytes.push(ran.into_bytes());
    }
    ensure!((runs.get(), fresh) == (1, 1), "{} runs, {fresh} fresh results", runs.get());
    ensure!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "one result for all, not {bytes:?}");
    close_all([locks, other]).await
}

async fn work_that_fails_stores_nothing(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let failing = locks.once(name.as_str()).run(async |_| Err::<&str, _>("no money")).await;
    expect_match!(failing, Err(OnceError::Work("no money")) => (), "work that fails");
    expect_match!(other.once(name.as_str()).stored().await, Ok(None) => (), "after work that failed");
    let next = other.once(name.as_str()).run(async |guard| Ok::<_, Infallible>(previous_of(guard)));
    let next = fixture.step("the next run", next).await?.map_err(run_failed)?;
    ensure!(
        next == Ran::Fresh(b"clean".to_vec()),
        "the next run: {:?}",
        String::from_utf8_lossy(next.bytes())
    );
    close_all([locks, other]).await
}

/// What a run is told of the one before it: an engine that does not know says so.
fn previous_of(guard: &leasehold_core::Guard) -> &'static str {
    match guard.previous() {
        Previous::Clean | Previous::Unknown => "clean",
        _ => "not clean",
    }
}

async fn the_result_of_a_broken_run_is_not_stored(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    // A task of its own: the loss cancels the broken run together with all that its work awaits.
    let (tell_token, token) = oneshot::channel();
    let (tell_end, end) = oneshot::channel();
    let (next_locks, next_name) = (other.clone(), name.clone());
    let next = tokio::spawn(async move {
        run_after_break(&next_locks, &next_name, token.await.unwrap_or_default()).await;
        let _ = tell_end.send(());
    });
    let broken = locks.once(name.as_str()).run(async |guard| {
        let _ = tell_token.send(guard.token().number);
        let _ = end.await;
        Ok::<_, Infallible>("broken")
    });
    let broken = fixture.step("a broken run", broken).await?;
    let ended = fixture.step("the next run", next).await?;
    ensure!(ended.is_ok(), "the next run panicked");
    expect_match!(
        &broken,
        Err(OnceError::NotStored { error, .. } | OnceError::Cancelled(error)) if error.is_lost() => (),
        "a run whose lock was broken"
    );
    let stored = other.once(name.as_str()).stored().await.map_err(failed("read"))?;
    expect_match!(stored, Some(bytes) if bytes == b"next" => (), "the result of the next run");
    close_all([locks, other]).await
}

/// Breaks the hold of a run, and does the work in its place.
async fn run_after_break(other: &Locks, name: &Name, token: u64) {
    // The caller finds out what became of it by the stored result.
    let _ = other.break_hold(name.as_str(), token, true).await;
    let _ = other.once(name.as_str()).run(async |_| Ok::<_, Infallible>("next")).await;
}
