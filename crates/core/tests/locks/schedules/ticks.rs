//! Single ticks, without a schedule.

use std::{cell::Cell, convert::Infallible, time::Duration};

use leasehold_core::{
    Due, Locks, MemoKind, NewMemo, Previous, Tick, TickError, TickRequest, Ticked, Timetable,
};
use leasehold_testkit::dropper::drop_at_every_poll;

use super::{HOUR, MINUTE, Scene, at};
use crate::{World, cleanup::paused_runtime};

/// A tick of the past.
fn past(locks: &Locks, secs: u64) -> TickRequest {
    locks.tick("report", Due::from_unix_secs(secs))
}

fn ok(_: &Tick) -> Result<(), Infallible> {
    Ok(())
}

#[test]
fn a_tick_runs_if_it_is_later_than_every_tick_that_has_run() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    for (secs, expected) in [
        (1000, Ticked::Ran),
        (1000, Ticked::Done),
        (999, Ticked::Done),
        (1001, Ticked::Ran),
        (0, Ticked::Done),
        (5000, Ticked::Ran),
    ] {
        for (locks, expected) in [(&locks, expected), (&other, Ticked::Done)] {
            assert_eq!(past(locks, secs).run_blocking(ok).unwrap(), expected, "{secs}");
        }
    }
    world.assert_no_leftovers();
}

#[test]
fn a_tick_far_ahead_of_the_clock_is_refused() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let tick = |secs| process.locks.tick("report", at(secs)).run(async |_| Ok::<_, Infallible>(()));
        let Err(TickError::NotBegun(error)) = tick(61).await else { panic!("it is a minute ahead") };
        assert!(error.is_invalid() && error.to_string().contains("1m"), "{error}");
        assert_eq!(tick(60).await.unwrap(), Ticked::Ran);
    });
}

#[test]
fn work_that_fails_is_not_recorded_unless_it_runs_at_most_once() {
    let world = World::new();
    let locks = world.client();
    let fail = |_: &Tick| Err("no paper");
    assert_eq!(past(&locks, 1).run_blocking(fail).unwrap_err().into_work_error(), Some("no paper"));
    assert_eq!(past(&locks, 1).run_blocking(ok).unwrap(), Ticked::Ran);
    let once = past(&locks, 2).at_most_once();
    assert_eq!(once.run_blocking(fail).unwrap_err().into_work_error(), Some("no paper"));
    assert_eq!(once.run_blocking(ok).unwrap(), Ticked::Done);
    // The next run is told of a panic.
    let panicking = world.client();
    let panicked = std::thread::spawn(move || {
        past(&panicking, 3).run_blocking(|_| -> Result<(), Infallible> { panic!("on purpose") })
    });
    assert!(panicked.join().is_err());
    let told = Cell::new(None);
    let next = past(&locks, 3).run_blocking(|tick| {
        told.set(Some((tick.guard().previous(), tick.due().as_unix_secs())));
        Ok::<_, Infallible>(())
    });
    assert_eq!((next.unwrap(), told.get()), (Ticked::Ran, Some((Previous::Abandoned, 3))));
    world.assert_no_leftovers();
}

#[test]
fn a_tick_whose_lock_was_lost_is_not_recorded() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let zombie = past(&locks, 1).run_blocking(|tick| {
        other.break_hold_blocking("report", tick.token().number, true).unwrap();
        Ok::<_, Infallible>(())
    });
    assert!(matches!(zombie, Err(TickError::Unconfirmed(error)) if error.is_lost()));
    assert_eq!(past(&other, 1).run_blocking(ok).unwrap(), Ticked::Ran);
    let cancelled = pollster::block_on(past(&locks, 2).run(async |tick| {
        other.break_hold("report", tick.token().number, true).await.unwrap();
        tick.guard().confirm().await.unwrap_err();
        std::future::pending::<Result<(), Infallible>>().await
    }));
    assert!(matches!(cancelled, Err(TickError::Cancelled(error)) if error.is_lost()));
    assert_eq!(past(&other, 2).run_blocking(ok).unwrap(), Ticked::Ran);
    world.assert_no_leftovers();
}

#[test]
fn a_tick_that_runs_elsewhere_is_waited_for_or_not() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let (process, other) = (scene.process("a", 0), scene.process("b", 0));
        let held = other.locks.mutex("report").acquire().await.unwrap();
        let tick = process.locks.tick("report", at(0));
        let never = async |_: &Tick| -> Result<(), Infallible> { panic!("it must not run") };
        let not_begun = |result| match result {
            Err(TickError::<Infallible>::NotBegun(error)) => error,
            other => panic!("it did not begin: {other:?}"),
        };
        assert!(not_begun(tick.try_run(never).await).is_taken());
        assert!(not_begun(tick.run_within(MINUTE, never).await).is_timed_out());
        held.write_memo(NewMemo::new(MemoKind::ONCE, "receipt", HOUR).unwrap()).await.unwrap();
        drop(held);
        assert!(not_begun(tick.run(never).await).is_misconfigured());
    });
}

#[test]
fn a_tick_that_is_dropped_at_any_poll_is_recorded_or_not() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    for at_most_once in [false, true] {
        let runs = Cell::new(0);
        let run = || {
            runs.set(runs.get() + 1);
            let tick = locks.tick(format!("tick {} {at_most_once}", runs.get()), Due::from_unix_secs(1));
            let tick = if at_most_once { tick.at_most_once() } else { tick };
            tick.run(async |_| {
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(())
            })
        };
        drop_at_every_poll(run, || (), |_| world.assert_no_leftovers());
        let last = other.tick(format!("tick {} {at_most_once}", runs.get()), Due::from_unix_secs(1));
        assert_eq!(last.run_blocking(ok).unwrap(), Ticked::Done, "the last one was not dropped");
    }
    let holder = other.mutex("report").blocking().acquire().unwrap();
    let waiting = || past(&locks, 1).run_within(Duration::from_millis(5), async |_| Ok::<_, Infallible>(()));
    drop_at_every_poll(waiting, || (), |_| assert!(holder.check()));
    holder.release_blocking().unwrap();
    world.assert_no_leftovers();
    assert_eq!(past(&locks, 1).run_blocking(ok).unwrap(), Ticked::Ran);
}

/// A timetable with one tick, in the past.
struct Single;

impl Timetable for Single {
    fn next_after(&self, after: Due) -> Option<Due> {
        Some(Due::from_unix_secs(1000)).filter(|due| *due > after)
    }

    fn last_until(&self, at: Due) -> Option<Due> {
        Some(Due::from_unix_secs(1000)).filter(|due| *due <= at)
    }
}

#[test]
fn a_blocking_schedule_runs_what_was_missed_and_ends_with_its_timetable() {
    let world = World::new();
    let locks = world.client();
    let mut dues = Vec::new();
    let mut run = || {
        let run = locks.schedule("report", Single).run_blocking(|tick| {
            dues.push(tick.due());
            Ok::<_, Infallible>(())
        });
        run.unwrap();
        dues.clone()
    };
    assert!(run().is_empty(), "it begins now");
    assert_eq!(past(&locks, 1).run_blocking(ok).unwrap(), Ticked::Ran);
    assert_eq!(run(), [Due::from_unix_secs(1000)]);
    assert_eq!(run().len(), 1, "it has run");
    world.assert_no_leftovers();
}
