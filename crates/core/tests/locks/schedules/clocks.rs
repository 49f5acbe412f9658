//! Clocks that differ, that are set, and that are wrong.

use std::time::Duration;

use leasehold_core::{Due, Every, Missed};
use tokio::time::sleep;

use super::{BEGIN, HOUR, MINUTE, Scene, at, minutes};
use crate::cleanup::paused_runtime;

const MILLISECOND: Duration = Duration::from_millis(1);

#[test]
fn clocks_that_differ_by_seconds_run_a_short_job_one_time_for_each_tick() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All(100)] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let processes =
                [("slow", -5), ("right", 0), ("fast", 5)].map(|(name, skew)| scene.process(name, skew));
            sleep(Duration::from_secs(10)).await;
            let running: Vec<_> = processes
                .iter()
                .map(|process| process.run(&process.minutely().missed(missed), MILLISECOND))
                .collect();
            sleep(MINUTE * 10).await;
            assert_eq!(scene.dues(), minutes(1, 10), "{missed:?}");
            assert!(scene.runs().iter().all(|(name, _)| *name == "fast"), "the first one runs it");
            assert!(running.iter().all(|task| !task.is_finished()));
        });
    }
}

#[test]
fn a_clock_that_is_set_back_an_hour_runs_no_tick_again() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All(100)] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let process = scene.process("a", 0);
            let _running = process.run(&process.minutely().missed(missed), MILLISECOND);
            sleep(MINUTE * 90 + Duration::from_secs(1)).await;
            assert_eq!(scene.dues(), minutes(1, 90));
            process.set_skew(-3600);
            sleep(HOUR).await;
            assert_eq!(scene.dues(), minutes(1, 90), "{missed:?}: all of them have run");
            // Also after a restart of the process.
            let again = scene.process("again", -3600);
            let _again = again.run(&again.minutely().missed(missed), MILLISECOND);
            sleep(MINUTE).await;
            assert_eq!(scene.dues(), minutes(1, 91), "{missed:?}: the next one runs one time");
        });
    }
}

#[test]
fn other_processes_go_on_after_a_clock_was_set_back() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let processes = [scene.process("back", 0), scene.process("right", 0)];
        let _running: Vec<_> =
            processes.iter().map(|process| process.run(&process.minutely(), MILLISECOND)).collect();
        sleep(MINUTE * 5 + Duration::from_secs(1)).await;
        processes[0].set_skew(-180);
        sleep(MINUTE * 5).await;
        assert_eq!(scene.dues(), minutes(1, 10));
        assert!(scene.runs()[5..].iter().all(|(name, _)| *name == "right"));
    });
}

#[test]
fn a_fast_clock_keeps_no_other_process_from_its_ticks() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All(100)] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let right = scene.process("right", 0);
            let _running = right.run(&right.minutely().missed(missed), MILLISECOND);
            sleep(MINUTE * 2).await;
            // Two hours ahead, for five minutes; then it ends.
            let fast = scene.process("fast", 2 * 3600);
            let fast_run = fast.run(&fast.minutely().missed(missed), MILLISECOND);
            sleep(MINUTE * 5).await;
            fast_run.abort();
            sleep(MINUTE * 3 + Duration::from_secs(1)).await;
            let (of_fast, of_right): (Vec<_>, Vec<_>) =
                scene.runs().into_iter().partition(|(name, _)| *name == "fast");
            let dues = |runs: Vec<(_, Due)>| runs.into_iter().map(|(_, due)| due).collect::<Vec<_>>();
            assert_eq!(dues(of_right), minutes(1, 10), "{missed:?}");
            assert!(dues(of_fast).iter().all(|due| *due >= at(20 * 60)));
            // Two hours later the ticks that ran ahead of time do not run again.
            sleep(HOUR * 2).await;
            let mut all = scene.dues();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count, "{missed:?}: no tick runs two times");
            assert_eq!(all.last(), Some(&at((2 * 60 + 10) * 60)));
        });
    }
}

#[test]
fn a_clock_that_is_set_forward_makes_ticks_late_by_ten_seconds_at_most() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let process = scene.process("a", 0);
        let daily = process.minutely();
        let _running = process.run(&daily, MILLISECOND);
        sleep(Duration::from_secs(5)).await;
        process.set_skew(3600);
        sleep(Duration::from_secs(11)).await;
        assert_eq!(scene.dues(), [at(3600)], "the latest tick that was missed");
    });
}

#[test]
fn a_fast_clock_that_is_set_back_waits_for_the_next_tick_of_the_right_time() {
    for missed in [Missed::Skip, Missed::Latest, Missed::All(100)] {
        paused_runtime().block_on(async {
            let scene = Scene::new();
            let process = scene.process("a", 3600);
            let _running = process.run(&process.minutely().missed(missed), MILLISECOND);
            sleep(Duration::from_secs(30)).await;
            process.set_skew(0);
            sleep(MINUTE * 3).await;
            assert_eq!(scene.dues(), minutes(1, 3), "{missed:?}");
        });
    }
}

#[test]
fn a_schedule_that_a_fast_clock_has_begun_is_run_by_others() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let (fast, right) = (scene.process("fast", 3600), scene.process("right", 0));
        let _fast = fast.run(&fast.minutely(), MILLISECOND);
        let _right = right.run(&right.minutely(), MILLISECOND);
        sleep(MINUTE * 3 + Duration::from_secs(1)).await;
        let mut dues = scene.dues();
        dues.sort_unstable();
        assert_eq!(dues, [minutes(1, 3), minutes(61, 63)].concat());
    });
}

#[test]
fn a_fast_clock_settles_no_tick_between_when_the_record_is_full() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let (right, fast) = (scene.process("right", 0), scene.process("fast", 2 * 3600));
        // A tick each three hours until now: as many spans as a record has.
        for hours in (0..16).rev().map(|tick| tick * 3) {
            let tick = right.locks.tick("report", Due::from_unix_secs(BEGIN - hours * 3600));
            tick.run(async |_| Ok::<_, std::convert::Infallible>(())).await.unwrap();
        }
        let hourly = |locks: &leasehold_core::Locks| locks.schedule("report", Every::new(HOUR));
        let _fast = fast.run(&hourly(&fast.locks), MILLISECOND);
        sleep(MINUTE).await;
        assert_eq!(scene.runs(), [("fast", at(2 * 3600))]);
        let _right = right.run(&hourly(&right.locks), MILLISECOND);
        sleep(HOUR).await;
        assert!(scene.runs().contains(&("right", at(3600))), "{:?}", scene.runs());
    });
}

#[test]
fn a_slow_clock_misses_no_tick_from_before_the_begin_of_the_schedule() {
    paused_runtime().block_on(async {
        let scene = Scene::new();
        let (right, slow) = (scene.process("right", 0), scene.process("slow", -600));
        let _right = right.run(&right.minutely(), MILLISECOND);
        sleep(MINUTE + Duration::from_secs(1)).await;
        let _slow = slow.run(&slow.minutely().missed(Missed::All(100)), MILLISECOND);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(scene.runs(), [("right", at(60))]);
    });
}
