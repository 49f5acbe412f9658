//! Holds that outlast their process: one program leaves a hold, another takes it up by its handle.

use std::time::Duration;

use leasehold_core::{Breaking, Handle, Mode, Profile};

use super::{
    case::{Case, Outcome, case, ensure, needs_modes},
    fixture::Fixture,
    program::{close_all, failed},
};

pub(super) const CASES: &[Case] = &[
    case!(a_hold_is_left_and_taken_up_by_another_program, skip = no_handles),
    case!(
        a_shared_hold_is_left_and_released_by_another_program,
        skip = |profile| no_handles(profile).or(needs_modes(profile))
    ),
    case!(a_hold_that_is_left_lapses_and_is_not_taken_up, skip = no_handles),
    case!(a_broken_hold_is_not_taken_up, skip = no_handles_or_breaking),
    case!(a_release_by_handle_ends_its_own_hold_alone, skip = no_handles),
];

/// The lease time: longer than a case takes.
const TTL: Duration = Duration::from_secs(20);

fn no_handles(profile: &Profile) -> Option<&'static str> {
    profile.no_handles
}

fn no_handles_or_breaking(profile: &Profile) -> Option<&'static str> {
    let breaks = matches!(profile.breaking, Breaking::Lease | Breaking::Force);
    no_handles(profile).or((!breaks).then_some("holds cannot be broken on the server"))
}

/// The handle as another process gets it.
fn sent(handle: &Handle) -> Outcome<Handle> {
    handle.to_string().parse().map_err(failed("its text is a handle"))
}

async fn a_hold_is_left_and_taken_up_by_another_program(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("x");
    let (first, second) = (fixture.program(&name).await, fixture.program(&name).await);
    let request = |locks: &leasehold_core::Locks| locks.mutex(name.as_str()).ttl(TTL);
    let guard = request(&first).acquire().await.map_err(failed("acquire"))?;
    let (token, id) = (guard.token(), guard.id());
    let handle = guard.into_handle().map_err(failed("the guard has a handle"))?;
    close_all([first]).await?;
    let taken = request(&second).try_acquire().await;
    ensure!(taken.as_ref().is_err_and(leasehold_core::Error::is_taken), "it stays held: {taken:?}");
    let guard = second.resume(&sent(&handle)?).await.map_err(failed("the hold is taken up"))?;
    ensure!(guard.check() && (guard.token(), guard.id()) == (token, id), "it is the same hold");
    guard.confirm().await.map_err(failed("it is renewed"))?;
    let again = second.resume(&handle).await;
    ensure!(again.as_ref().is_err_and(leasehold_core::Error::is_invalid), "a guard has it: {again:?}");
    let handle = guard.into_handle().map_err(failed("it is left again"))?;
    let guard = second.resume(&handle).await.map_err(failed("it is taken up again"))?;
    guard.release().await.map_err(failed("it is released"))?;
    let later = request(&second).try_acquire().await.map_err(failed("it is free"))?;
    ensure!(later.token() > token, "its tokens grow: {} after {token}", later.token());
    let gone = second.resume(&handle).await;
    ensure!(gone.as_ref().is_err_and(leasehold_core::Error::is_lost), "it is over: {gone:?}");
    ensure!(later.check(), "the later hold is not touched");
    later.release().await.map_err(failed("the later hold is released"))?;
    close_all([second]).await
}

async fn a_shared_hold_is_left_and_released_by_another_program(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("x");
    let (first, second) = (fixture.program(&name).await, fixture.program(&name).await);
    let readers = [first.rw(name.as_str()), second.rw(name.as_str())];
    let left = readers[0].read().ttl(TTL).acquire().await.map_err(failed("the first reader"))?;
    let other = readers[1].read().ttl(TTL).acquire().await.map_err(failed("the second reader"))?;
    let handle = left.into_handle().map_err(failed("the guard has a handle"))?;
    ensure!(handle.mode() == Mode::Shared, "its mode: {:?}", handle.mode());
    second.extend_handle(&sent(&handle)?).await.map_err(failed("the hold is extended"))?;
    second.release_handle(&handle).await.map_err(failed("it is released"))?;
    ensure!(other.check(), "the other reader holds");
    other.release().await.map_err(failed("the other reader is released"))?;
    let writer = readers[0].write().try_acquire().await.map_err(failed("it is free"))?;
    writer.release().await.map_err(failed("the writer is released"))?;
    close_all([first, second]).await
}

async fn a_hold_that_is_left_lapses_and_is_not_taken_up(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("x");
    let (first, second) = (fixture.program(&name).await, fixture.program(&name).await);
    let ttl = fixture.short_time(Duration::from_secs(1));
    let guard = first.mutex(name.as_str()).ttl(ttl).acquire().await.map_err(failed("acquire"))?;
    let handle = guard.into_handle().map_err(failed("the guard has a handle"))?;
    fixture.advance(ttl * 2).await;
    let waiting = second.mutex(name.as_str()).ttl(TTL).acquire();
    let later = fixture.step("the next grant", waiting).await?.map_err(failed("it is free"))?;
    let gone = first.resume(&handle).await;
    ensure!(gone.as_ref().is_err_and(leasehold_core::Error::is_lost), "it is over: {gone:?}");
    later.release().await.map_err(failed("the later hold is released"))?;
    close_all([first, second]).await
}

async fn a_broken_hold_is_not_taken_up(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("x");
    let (first, second) = (fixture.program(&name).await, fixture.program(&name).await);
    let guard = first.mutex(name.as_str()).ttl(TTL).acquire().await.map_err(failed("acquire"))?;
    let handle = guard.into_handle().map_err(failed("the guard has a handle"))?;
    let broken = second.break_hold(name.as_str(), handle.token().number, true).await;
    ensure!(matches!(broken, Ok(leasehold_core::Broken::Done)), "it is broken: {broken:?}");
    for gone in [first.resume(&handle).await.map(drop), second.release_handle(&handle).await] {
        ensure!(gone.as_ref().is_err_and(leasehold_core::Error::is_lost), "it is over: {gone:?}");
    }
    close_all([first, second]).await
}

async fn a_release_by_handle_ends_its_own_hold_alone(fixture: &Fixture<'_>) -> Outcome {
    let name = fixture.name("x");
    let (first, second) = (fixture.program(&name).await, fixture.program(&name).await);
    let guard = first.mutex(name.as_str()).ttl(TTL).acquire().await.map_err(failed("acquire"))?;
    let handle = guard.handle();
    // The hold of the handle ends, and another program gets the name.
    guard.release().await.map_err(failed("release"))?;
    let other = second.mutex(name.as_str()).ttl(TTL).acquire().await.map_err(failed("the other program"))?;
    for gone in [first.extend_handle(&handle).await.map(drop), first.release_handle(&handle).await] {
        ensure!(gone.as_ref().is_err_and(leasehold_core::Error::is_lost), "it is over: {gone:?}");
    }
    other.confirm().await.map_err(failed("the other hold is there"))?;
    other.release().await.map_err(failed("the other hold is released"))?;
    close_all([first, second]).await
}
