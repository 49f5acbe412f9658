//! Ticks that nobody ran when they were due.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{Every, MemoKind, Missed, NewMemo, Tick};
use leasehold_testkit::decorators::Verb;
use tokio::time::sleep;

use super::{HOUR, MINUTE, Process, Scene, at, minutes};
use crate::{cleanup::paused_runtime, elections::kill};

const SECOND: Duration = Duration::from_secs(1);

/// Leaves the record that the tick of this minute has run.
async fn has_run(process: &Process, minute: u64) {
    let due = at(minute * 60);
    process.locks.tick("report", due).run(async |_| Ok::<_, std::convert::Infallible>(())).await.unwrap();
}

#[test]
fn ten_thousand_missed_ticks_run_none_one_or_as_many_as_allowed() {
    for (missed, expected) in [
        (Missed::Skip, vec![]),
        (Missed::Latest, minutes(10_000, 10_000)),
        (Missed::All(3), minutes(9_998, 10_000)),
    ] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let process = scene.process("a", 0);
            has_run(&process, 0).await;
            // As long after it, by the clock of the process.
            process.set_skew(10_000 * 60 + 1);
            let _running = process.run(&process.minutely().missed(missed), SECOND);
            sleep(SECOND * 30).await;
            assert_eq!(scene.dues(), expected, "{missed:?}");
            sleep(MINUTE).await;
            assert_eq!(scene.dues().last(), Some(&at(10_001 * 60)), "{missed:?}: then it goes on");
        });
    }
}

#[test]
fn ticks_that_are_due_during_a_run_are_missed() {
    for (missed, expected) in [
        // The runs take 150 s. Nobody waits for the ticks at 2 and 3 minutes when they become due.
        (Missed::Skip, vec![1, 4, 7]),
        (Missed::Latest, vec![1, 3, 6, 8]),
        (Missed::All(100), vec![1, 2, 3, 4]),
    ] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let process = scene.process("a", 0);
            let _running = process.run(&process.minutely().missed(missed), SECOND * 150);
            sleep(MINUTE * 9 + SECOND).await;
            let expected: Vec<_> = expected.iter().map(|minute| at(minute * 60)).collect();
            assert_eq!(scene.dues(), expected, "{missed:?}");
        });
    }
}

#[test]
fn ticks_that_are_too_late_are_not_run() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        has_run(&process, 0).await;
        sleep(HOUR * 30).await;
        let daily = process.locks.schedule("report", Every::new(HOUR * 24)).max_late(HOUR * 5);
        let running = process.run(&daily, SECOND);
        sleep(SECOND * 30).await;
        assert!(scene.dues().is_empty() && !running.is_finished());
        let less = process.locks.schedule("report", Every::new(HOUR * 24)).max_late(HOUR * 7);
        let _running = process.run(&less, SECOND);
        sleep(SECOND * 30).await;
        assert_eq!(scene.dues(), [at(24 * 3600)]);
    });
}

#[test]
fn a_suspended_process_runs_the_latest_tick_or_none() {
    for (missed, mut expected) in [(Missed::Skip, vec![]), (Missed::Latest, vec![at(3600)])] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let process = scene.process("a", 0);
            let hourly = process.locks.schedule("report", Every::new(HOUR)).missed(missed);
            let _running = process.run(&hourly, SECOND);
            sleep(SECOND).await;
            // As if the machine had slept for an hour and a half.
            process.set_skew(5400);
            sleep(MINUTE).await;
            assert_eq!(scene.dues(), expected, "{missed:?}");
            sleep(MINUTE * 30).await;
            expected.push(at(7200));
            assert_eq!(scene.dues(), expected, "{missed:?}: then it goes on");
        });
    }
}

#[test]
fn the_tick_at_the_end_of_a_pause_is_not_missed() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&attempts);
        let each_second = process.locks.schedule("report", Every::new(SECOND)).missed(Missed::Skip);
        let _running = tokio::spawn(each_second.run(async move |tick: &Tick| {
            noted.lock().unwrap().push(tick.due());
            if tick.due() == at(2) { Err("no paper") } else { Ok(()) }
        }));
        sleep(Duration::from_millis(5_500)).await;
        assert_eq!(*attempts.lock().unwrap(), [1, 2, 3, 4, 5].map(at));
    });
    for away in [20, 40, 55] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let process = scene.process("a", 0);
            let _running = process.run(&process.minutely().missed(Missed::Skip), SECOND);
            sleep(SECOND * 59).await;
            kill(&process.slow);
            sleep(SECOND * away).await;
            Verb::ALL.into_iter().for_each(|verb| process.slow.open(verb));
            sleep(MINUTE * 3 - SECOND * (59 + away - 1)).await;
            let dues = scene.dues();
            assert!(dues.ends_with(&minutes(2, 3)), "after an outage of {away} s: {dues:?}");
        });
    }
}

#[test]
fn a_tick_whose_work_always_fails_gives_way_to_the_next_one() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        has_run(&process, 0).await;
        process.set_skew(10 * 60 + 1);
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&attempts);
        let schedule = process.minutely().missed(Missed::All(100));
        let _running = tokio::spawn(schedule.run(async move |tick: &Tick| {
            noted.lock().unwrap().push(tick.due());
            // Two ticks in a row fail.
            if tick.due() <= at(120) { Err("no paper") } else { Ok(()) }
        }));
        let count =
            |minute: u64| attempts.lock().unwrap().iter().filter(|due| **due == at(minute * 60)).count();
        sleep(SECOND * 58).await;
        let all = attempts.lock().unwrap().len();
        assert!(count(1) > 3 && count(1) == all, "until the next tick is due: {attempts:?}");
        sleep(MINUTE).await;
        assert!(count(2) > 0, "{attempts:?}");
        sleep(MINUTE).await;
        let mut attempts = attempts.lock().unwrap().clone();
        assert!(attempts.is_sorted(), "none of them comes back: {attempts:?}");
        attempts.dedup();
        assert_eq!(attempts, minutes(1, 12));
    });
}

#[test]
fn an_outage_when_a_schedule_begins_delays_its_first_tick() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        sleep(SECOND * 30).await;
        kill(&process.slow);
        let _running = process.run(&process.minutely(), SECOND);
        sleep(SECOND * 40).await;
        Verb::ALL.into_iter().for_each(|verb| process.slow.open(verb));
        sleep(SECOND * 52).await;
        assert_eq!(scene.dues(), minutes(1, 2));
    });
}

#[test]
fn the_schedule_begins_anew_when_its_record_has_ended() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let first = process.minutely().keep(HOUR);
        let running = process.run(&first, SECOND);
        sleep(MINUTE + SECOND * 2).await;
        running.abort();
        sleep(HOUR * 2).await;
        assert_eq!(first.last_tick().await.unwrap(), None);
        let _running = process.run(&process.minutely().missed(Missed::All(100)), SECOND);
        sleep(MINUTE).await;
        assert_eq!(scene.dues(), [at(60), at(122 * 60)]);
    });
}

#[test]
fn a_memo_that_is_no_record_ends_the_schedule() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        for (kind, bytes, reason) in [
            (MemoKind::SCHEDULE, "2 of a later version", "is no record of ticks"),
            (MemoKind::ELECTION, "leader", "kind election"),
        ] {
            let name = kind.as_str().to_owned();
            let guard = process.locks.mutex(&name).acquire().await.unwrap();
            guard.release_with_memo(NewMemo::new(kind, bytes, HOUR).unwrap()).await.unwrap();
            let schedule = process.locks.schedule(&name, Every::new(MINUTE));
            let error = process.run(&schedule, SECOND).await.unwrap().unwrap_err();
            assert!(error.is_misconfigured() && error.to_string().contains(reason), "{error}");
        }
        assert!(scene.dues().is_empty());
    });
}
