//! Runs of a schedule: the end of a process, work that fails, an outage, and the end of the schedule.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use leasehold_core::{Error, Every, Missed, Previous, Schedule, Tick};
use leasehold_testkit::decorators::Verb;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{HOUR, MINUTE, Process, Scene, TTL, at, minutes};
use crate::{
    altered::{Altered, client_of},
    cleanup::paused_runtime,
    elections::kill,
};

const SECOND: Duration = Duration::from_secs(1);

/// A process that begins each tick and never ends it.
fn run_for_ever(process: &Process, schedule: &Schedule) -> JoinHandle<Result<(), Error>> {
    let (name, runs) = (process.name, Arc::clone(&process.runs));
    tokio::spawn(schedule.run(async move |tick: &Tick| {
        runs.lock().unwrap().push((name, tick.due()));
        pending::<Result<(), Infallible>>().await
    }))
}

#[test]
fn the_tick_of_a_process_that_dies_is_run_by_one_that_waits() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All(3)] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let (dies, waits) = (scene.process("dies", 1), scene.process("waits", 0));
            let dying = run_for_ever(&dies, &dies.minutely().missed(missed));
            let told = Arc::new(Mutex::new(Vec::new()));
            let (runs, previous) = (Arc::clone(&waits.runs), Arc::clone(&told));
            let _running = tokio::spawn(waits.minutely().missed(missed).run(async move |tick: &Tick| {
                runs.lock().unwrap().push(("waits", tick.due()));
                previous.lock().unwrap().push(tick.guard().previous());
                Ok::<_, Infallible>(())
            }));
            sleep(MINUTE + SECOND).await;
            assert_eq!(scene.runs(), [("dies", at(60))]);
            kill(&dies.slow);
            dying.abort();
            sleep(TTL + SECOND * 2).await;
            assert_eq!(scene.runs(), [("dies", at(60)), ("waits", at(60))], "{missed:?}");
            assert_eq!(*told.lock().unwrap(), [Previous::Lapsed]);
            sleep(MINUTE).await;
            assert_eq!(scene.runs().last(), Some(&("waits", at(120))), "{missed:?}");
        });
    }
}

#[test]
fn the_first_tick_of_a_process_that_dies_is_run_after_its_restart() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let dies = scene.process("dies", 0);
        let hourly = |process: &Process| process.locks.schedule("report", Every::new(HOUR)).ttl(TTL);
        let dying = run_for_ever(&dies, &hourly(&dies));
        sleep(HOUR + SECOND).await;
        assert_eq!(scene.dues(), [at(3600)]);
        assert_eq!(hourly(&dies).last_tick().await.unwrap(), None, "it has begun, and no tick has run");
        kill(&dies.slow);
        dying.abort();
        sleep(MINUTE).await;
        let again = scene.process("again", 0);
        let _running = again.run(&hourly(&again), SECOND);
        sleep(SECOND * 5).await;
        assert_eq!(scene.runs(), [("dies", at(3600)), ("again", at(3600))]);
    });
}

#[test]
fn at_most_once_runs_the_tick_of_a_process_that_dies_not_again() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let (dies, waits) = (scene.process("dies", 1), scene.process("waits", 0));
        let dying = run_for_ever(&dies, &dies.minutely().at_most_once());
        let _running = waits.run(&waits.minutely().at_most_once(), SECOND);
        sleep(MINUTE + SECOND).await;
        kill(&dies.slow);
        dying.abort();
        sleep(MINUTE * 2).await;
        let expected = [("dies", at(60)), ("waits", at(120)), ("waits", at(180))];
        assert_eq!(scene.runs(), expected);
    });
}

#[test]
fn at_most_once_does_not_begin_unless_the_tick_is_recorded() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        process.slow.hold_requests(Verb::Memo);
        let _running = process.run(&process.minutely().at_most_once(), SECOND);
        sleep(MINUTE + TTL).await;
        assert!(scene.dues().is_empty());
        process.slow.open(Verb::Memo);
        sleep(MINUTE).await;
        let dues = scene.dues();
        assert!(dues == [at(120)] || dues == minutes(1, 2), "each of them one time: {dues:?}");
    });
}

#[test]
fn work_that_fails_is_tried_again_after_growing_pauses_until_the_next_tick() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All(100)] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let process = scene.process("a", 0);
            let attempts = Arc::new(Mutex::new(Vec::new()));
            let (noted, began) = (Arc::clone(&attempts), Instant::now());
            let _running = tokio::spawn(process.minutely().missed(missed).run(async move |tick: &Tick| {
                noted.lock().unwrap().push((tick.due(), began.elapsed().as_secs()));
                if tick.due() == at(60) { Err("no paper") } else { Ok(()) }
            }));
            sleep(MINUTE * 3 + SECOND).await;
            let expected = [60, 61, 63, 67, 75, 91].map(|secs| (at(60), secs));
            let attempts = attempts.lock().unwrap();
            assert_eq!(attempts[..6], expected, "{missed:?}");
            assert_eq!(attempts[6..], [(at(120), 120), (at(180), 180)], "{missed:?}");
        });
    }
}

#[test]
fn work_that_fails_is_tried_in_another_process_at_once() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let (fails, works) = (scene.process("fails", 1), scene.process("works", 0));
        let _failing = tokio::spawn(fails.minutely().run(async move |_: &Tick| {
            sleep(SECOND * 2).await;
            Err::<(), _>("no paper")
        }));
        let _running = works.run(&works.minutely(), Duration::ZERO);
        sleep(MINUTE + SECOND + Duration::from_millis(500)).await;
        assert_eq!(scene.runs(), [("works", at(60))]);
    });
}

#[test]
fn work_whose_lock_is_lost_is_cancelled_and_run_again() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        // The time limit of the work is shorter than the work at its first attempt.
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let _running = tokio::spawn(process.minutely().at_most(SECOND * 5).run(async move |_: &Tick| {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 {
                sleep(SECOND * 10).await;
            }
            Ok::<_, Infallible>(())
        }));
        sleep(MINUTE + SECOND * 4).await;
        assert_eq!(attempts.load(Ordering::Relaxed), 1);
        sleep(SECOND * 3).await;
        assert_eq!(attempts.load(Ordering::Relaxed), 2);
        assert_eq!(process.minutely().last_tick().await.unwrap().map(|last| last.due), Some(at(60)));
    });
}

#[test]
fn an_outage_delays_the_tick_and_its_end_runs_the_latest() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let running = process.run(&process.minutely(), SECOND);
        sleep(MINUTE + SECOND * 30).await;
        kill(&process.slow);
        sleep(MINUTE * 5).await;
        assert_eq!(scene.dues(), minutes(1, 1));
        Verb::ALL.into_iter().for_each(|verb| process.slow.open(verb));
        sleep(MINUTE).await;
        assert!(!running.is_finished());
        let dues = scene.dues();
        assert_eq!(dues.last(), Some(&at(7 * 60)), "{dues:?}");
        assert!(dues.len() <= 3, "not all that were missed: {dues:?}");
    });
}

#[test]
fn a_stop_ends_the_schedule_after_the_work() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let stopped = process.minutely().run_until(sleep(MINUTE + SECOND), async move |_: &Tick| {
            sleep(SECOND * 30).await;
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(())
        });
        let began = Instant::now();
        stopped.await.unwrap();
        assert_eq!((ended.load(Ordering::Relaxed), began.elapsed().as_secs()), (1, 90));
        // Between two ticks it ends at once.
        let began = Instant::now();
        let idle = process.minutely().run_until(sleep(SECOND), async |_: &Tick| Ok::<_, Infallible>(()));
        idle.await.unwrap();
        assert_eq!(began.elapsed(), SECOND);
        assert!(process.locks.list("").await.unwrap().is_empty());
    });
}

#[test]
fn the_end_of_the_locks_ends_the_schedule() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let locks = process.locks.clone();
        // As programs do it: the schedule is made inside the task.
        let running = tokio::spawn(async move {
            let schedule = locks.schedule("report", Every::new(MINUTE));
            schedule.run(async |tick: &Tick| tick.guard().confirm().await).await
        });
        sleep(SECOND).await;
        assert_eq!(process.locks.close(SECOND).await, 0);
        sleep(SECOND * 11).await;
        assert!(running.is_finished());
        assert!(running.await.unwrap().unwrap_err().is_closed());
    });
}

#[test]
fn wrong_options_and_engines_without_memos_are_refused() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        for (schedule, reason) in [
            (process.locks.schedule("x", Every::new(Duration::ZERO)), "the period 0s"),
            (process.minutely().missed(Missed::All(0)), "0 missed ticks"),
            (process.minutely().keep(Duration::ZERO), "cannot be kept"),
            (process.locks.schedule("", Every::new(MINUTE)), "name"),
        ] {
            let error = process.run(&schedule, SECOND).await.unwrap().unwrap_err();
            assert!(error.is_invalid() && error.to_string().contains(reason), "{error}");
        }
        let engine = Arc::new(Altered::new(&scene.store, |profile| profile.no_memos = Some("it is a test")));
        let without = client_of(&engine, &scene.env);
        let schedule = without.schedule("report", Every::new(MINUTE));
        let error = process.run(&schedule, SECOND).await.unwrap().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains("it is a test"), "{error}");
        assert!(schedule.last_tick().await.unwrap_err().is_misconfigured());
    });
}

#[test]
fn at_least_keeps_the_name_taken_also_after_work_that_failed() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let schedule = process.minutely().at_least(SECOND * 30);
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let _running = tokio::spawn(schedule.run(async move |_: &Tick| {
            if counted.fetch_add(1, Ordering::Relaxed) == 0 { Err("no paper") } else { Ok(()) }
        }));
        let began = Instant::now();
        let is_taken_at = async |secs| {
            sleep(Duration::from_secs(secs) - began.elapsed()).await;
            process.locks.mutex("report").try_acquire().await.is_err()
        };
        // The first attempt fails at 60 s, and the second one succeeds at 90 s.
        assert!(is_taken_at(89).await && attempts.load(Ordering::Relaxed) == 1);
        assert!(is_taken_at(91).await && attempts.load(Ordering::Relaxed) == 2);
        assert_eq!(schedule.last_tick().await.unwrap().map(|last| last.due), Some(at(60)));
        assert!(is_taken_at(119).await && is_taken_at(149).await);
        assert!(!is_taken_at(151).await && attempts.load(Ordering::Relaxed) == 3);
    });
}

#[test]
fn a_tick_that_waits_for_long_gives_way_to_the_next_one() {
    for (missed, expected) in
        [(Missed::Skip, vec![3, 4]), (Missed::Latest, vec![3, 4]), (Missed::All(9), vec![1, 2, 3, 4])]
    {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let process = scene.process("a", 0);
            let _running = process.run(&process.minutely().missed(missed), SECOND);
            sleep(SECOND).await;
            let held = process.locks.mutex("report").acquire().await.unwrap();
            sleep(MINUTE * 3 + SECOND * 30).await;
            held.release().await.unwrap();
            sleep(SECOND * 35).await;
            let expected: Vec<_> = expected.iter().map(|minute| at(minute * 60)).collect();
            assert_eq!(scene.dues(), expected, "{missed:?}");
        });
    }
}

#[test]
fn jitter_delays_the_run_and_not_the_tick() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let starts = Arc::new(Mutex::new(Vec::new()));
        let (noted, began) = (Arc::clone(&starts), Instant::now());
        let _running = tokio::spawn(process.minutely().jitter(SECOND * 20).run(async move |tick: &Tick| {
            noted.lock().unwrap().push((tick.due(), began.elapsed()));
            Ok::<_, Infallible>(())
        }));
        sleep(MINUTE * 20 + SECOND * 20).await;
        let starts = starts.lock().unwrap();
        let delays: Vec<_> =
            (1..).zip(&*starts).map(|(minute, (_, start))| *start - MINUTE * minute).collect();
        assert_eq!(starts.iter().map(|(due, _)| *due).collect::<Vec<_>>(), minutes(1, 20));
        assert!(delays.iter().all(|delay| *delay <= SECOND * 20 + Duration::from_millis(5)), "{delays:?}");
        assert!(delays.iter().any(|delay| *delay > Duration::from_millis(10)), "{delays:?}");
    });
}
