//! Ticks of schedules: rule R32 of `docs/rules.md`.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    time::SystemTime,
};

use leasehold_core::{
    Due, Every, Guard, Locks, MemoKind, Name, NewMemo, Schedule, Tick, TickError, TickRequest, Ticked,
};

use tokio::sync::oneshot;

use super::{
    case::{Case, Outcome, Stop, case, ensure, expect_match},
    fixture::Fixture,
    program::{close_all, failed, needs_memos, needs_memos_and_breaking},
};

pub(super) const CASES: &[Case] = &[
    case!(a_tick_runs_one_time_and_later_ticks_run, skip = needs_memos),
    case!(processes_that_reach_a_tick_together_run_it_one_time, skip = needs_memos),
    case!(a_tick_that_failed_runs_again_unless_at_most_once, skip = needs_memos),
    case!(the_tick_of_a_broken_run_is_taken_over, skip = needs_memos_and_breaking),
    case!(a_schedule_runs_the_tick_that_was_missed, skip = needs_memos),
];

/// A tick of the past.
fn tick(locks: &Locks, name: &Name, secs: u64) -> TickRequest {
    locks.tick(name.as_str(), Due::from_unix_secs(secs))
}

/// Fails the case with an error of a tick.
fn tick_failed<E: std::fmt::Debug>(error: TickError<E>) -> Stop {
    Stop::Fail(format!("tick: {error:?}"))
}

async fn succeed(_: &Tick) -> Result<(), Infallible> {
    Ok(())
}

async fn a_tick_runs_one_time_and_later_ticks_run(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let mut token = None;
    for (secs, expected) in
        [(600, Ticked::Ran), (600, Ticked::Done), (599, Ticked::Done), (1200, Ticked::Ran)]
    {
        for (locks, expected) in [(&locks, expected), (&other, Ticked::Done)] {
            let ticked = tick(locks, &name, secs).run(async |tick| {
                token = Some(tick.token());
                succeed(tick).await
            });
            let ticked = fixture.step("a tick", ticked).await?.map_err(tick_failed)?;
            ensure!(ticked == expected, "the tick {secs}: {ticked:?}, expected {expected:?}");
        }
    }
    let last = daily(&other, &name).last_tick().await.map_err(failed("last tick"))?;
    let last = expect_match!(last, Some(last) => last, "two ticks have run");
    ensure!(
        last.due == Due::from_unix_secs(1200) && Some(last.token) == token,
        "{last:?} is not that of the last run"
    );
    close_all([locks, other]).await
}

fn daily(locks: &Locks, name: &Name) -> Schedule {
    locks.schedule(name.as_str(), Every::new(std::time::Duration::from_secs(86_400)))
}

async fn processes_that_reach_a_tick_together_run_it_one_time(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let runs = Cell::new(0);
    let attempt = |locks: &Locks| {
        tick(locks, &name, 600).run(async |_| {
            runs.set(runs.get() + 1);
            // The others have begun to wait, or read the record later.
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(())
        })
    };
    let attempts = [&locks, &other, &locks, &other].map(attempt);
    let all = futures_util::future::join_all(attempts);
    let mut ran = 0;
    for ticked in fixture.step("four processes end the tick", all).await? {
        ran += usize::from(ticked.map_err(tick_failed)? == Ticked::Ran);
    }
    ensure!((runs.get(), ran) == (1, 1), "{} runs, {ran} of them told so", runs.get());
    close_all([locks, other]).await
}

async fn a_tick_that_failed_runs_again_unless_at_most_once(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    let fail = async |_: &Tick| Err("no paper");
    expect_match!(tick(&locks, &name, 600).run(fail).await, Err(TickError::Work("no paper")) => (), "a failed tick");
    let again = fixture.step("again", tick(&other, &name, 600).run(succeed)).await?;
    expect_match!(again, Ok(Ticked::Ran) => (), "a tick that failed");
    let once = tick(&locks, &name, 1200).at_most_once().run(fail).await;
    expect_match!(once, Err(TickError::Work("no paper")) => (), "a failed tick at most once");
    let again = fixture.step("again", tick(&other, &name, 1200).run(succeed)).await?;
    expect_match!(again, Ok(Ticked::Done) => (), "a tick that ran at most once");
    close_all([locks, other]).await
}

async fn the_tick_of_a_broken_run_is_taken_over(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    // A task of its own: the loss cancels the broken run together with all that its work awaits.
    let (tell_token, token) = oneshot::channel();
    let (tell_end, end) = oneshot::channel();
    let (next_locks, next_name) = (other.clone(), name.clone());
    let next = tokio::spawn(async move {
        let token = token.await.unwrap_or_default();
        // The caller finds out what became of it by the record.
        let _ = next_locks.break_hold(next_name.as_str(), token, true).await;
        let ran = tick(&next_locks, &next_name, 600).run(async |_| Ok::<_, Infallible>(())).await;
        let _ = tell_end.send(());
        ran.is_ok_and(|ran| ran == Ticked::Ran)
    });
    let broken = tick(&locks, &name, 600).run(async |tick| {
        let _ = tell_token.send(tick.token().number);
        let _ = end.await;
        Ok::<_, Infallible>(())
    });
    let broken = fixture.step("a broken run", broken).await?;
    let next = fixture.step("the next run", next).await?;
    ensure!(next.is_ok_and(|ran| ran), "the tick of a broken run was not run again");
    expect_match!(
        &broken,
        Err(TickError::Unconfirmed(error) | TickError::Cancelled(error)) if error.is_lost() => (),
        "a run whose lock was broken"
    );
    let again = fixture.step("again", tick(&locks, &name, 600).run(succeed)).await?;
    expect_match!(again, Ok(Ticked::Done) => (), "the tick has run");
    close_all([locks, other]).await
}

async fn a_schedule_runs_the_tick_that_was_missed(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("");
    let (locks, other) = (fixture.program(&name).await, fixture.program(&name).await);
    // A record of yesterday, so that a tick of a day is due.
    let now = Due::from(SystemTime::now());
    let yesterday = Due::from_unix_secs(now.as_unix_secs() - 86_400);
    let ran = fixture.step("yesterday", other.tick(name.as_str(), yesterday).run(succeed)).await?;
    expect_match!(ran, Ok(Ticked::Ran) => (), "the tick of yesterday");
    let dues = RefCell::new(Vec::new());
    let (stop, stopped) = oneshot::channel::<()>();
    let stop = Cell::new(Some(stop));
    let stopped = async move { drop(stopped.await) };
    let run = daily(&locks, &name).run_until(stopped, async |tick: &Tick| {
        dues.borrow_mut().push(tick.due());
        drop(stop.take());
        Ok::<_, Infallible>(())
    });
    fixture.step("a schedule runs its missed tick", run).await?.map_err(failed("schedule"))?;
    let dues = dues.into_inner();
    let midnight = dues.first().map(|due| due.as_unix_secs() % 86_400);
    ensure!(dues.len() == 1 && midnight == Some(0) && dues[0] > yesterday, "the ticks {dues:?}");
    // A name with another memo is refused.
    let guard: Guard = locks.mutex(name.as_str()).acquire().await.map_err(failed("acquire"))?;
    let foreign = NewMemo::new(MemoKind::ONCE, "receipt", std::time::Duration::from_secs(60));
    let written = guard.write_memo(foreign.map_err(failed("memo"))?).await;
    expect_match!(written, Err(error) if error.is_misconfigured() => (), "a memo over the record of ticks");
    guard.release().await.map_err(failed("release"))?;
    close_all([locks, other]).await
}
