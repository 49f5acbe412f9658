//! The test kit: on paused tokio time, on several runtimes of one thread, and without a runtime.
#![cfg(feature = "test")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::{
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use leasehold::{
    Connect, ErrorKind, Event, Every, Locks, Loss, Observe, Previous, Tick, Verb, WhenUnreachable,
    test::{Fault, Kit},
};
use tokio::time::{Instant, timeout};

const TTL: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

#[test]
fn paused_time_does_not_jump_past_an_acquire_and_renews_holds() {
    paused().block_on(async {
        let kit = Kit::new();
        let locks = kit.process("a");
        let began = Instant::now();
        // With a keeper on a thread of its own, this timeout would fire at once.
        let guard = timeout(SECOND, locks.mutex("x").ttl(TTL).acquire()).await.unwrap().unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO);
        kit.advance(TTL * 10).await;
        assert!(guard.check(), "it was renewed");
        assert_eq!(kit.elapsed(), TTL * 10);
        tokio::time::sleep(TTL * 10).await;
        assert!(guard.check() && kit.elapsed() == TTL * 20, "any sleep lets time pass");
        guard.release().await.unwrap();
        kit.assert_clean().await;
    });
}

/// Results and the values of leaders outlive their holds on purpose.
#[test]
fn a_kit_with_results_and_elections_is_clean() {
    paused().block_on(async {
        let kit = Kit::new();
        let locks = kit.process("a");
        locks.once("order").run(async |_| Ok::<_, ()>("paid")).await.unwrap();
        locks.election("lead").value("here").run(async |_| ()).await.unwrap();
        kit.assert_clean().await;
    });
}

#[test]
fn a_schedule_runs_on_the_time_of_the_kit_which_begins_at_midnight() {
    paused().block_on(async {
        let kit = Kit::new();
        let hourly = kit.process("a").schedule("report", Every::new(SECOND * 3600));
        let mut dues = Vec::new();
        let run = hourly.run_until(kit.advance(SECOND * 3600 * 3 + SECOND), async |tick: &Tick| {
            dues.push(tick.due().as_unix_secs() - 1_767_225_600);
            Ok::<_, std::convert::Infallible>(())
        });
        run.await.unwrap();
        assert_eq!(dues, [3600, 7200, 10_800]);
        kit.assert_clean().await;
    });
}

#[test]
fn processes_compete_and_a_killed_one_holds_until_its_lease_ends() {
    paused().block_on(async {
        let kit = Kit::new();
        let (a, b) = (kit.process("a"), kit.process("b"));
        let guard = a.mutex("x").ttl(TTL).acquire().await.unwrap();
        assert!(b.mutex("x").try_acquire().await.unwrap_err().is_taken());
        assert_eq!(b.show("x").await.unwrap().holders[0].owner, "a");
        kit.kill("a");
        let began = kit.elapsed();
        let next = b.mutex("x").acquire().await.unwrap();
        let waited = kit.elapsed() - began;
        assert!(waited > TTL * 9 / 10 && waited < TTL * 11 / 10, "{waited:?}");
        assert_eq!(next.previous(), Previous::Lapsed);
        assert!(!guard.check());
        drop((guard, next));
        // A process of this name that is made now is a new one.
        let again = kit.process("a").mutex("x").acquire().await.unwrap();
        again.release().await.unwrap();
        kit.assert_clean().await;
    });
}

/// Each process draws ids of its own: a process with the ids of another one would be taken for it.
#[test]
fn a_process_after_a_kill_gets_no_hold_of_another_process() {
    paused().block_on(async {
        for (living, killed, name) in
            [(None, "a", "of-a"), (Some("b"), "a", "of-b"), (Some("b"), "b", "of-b")]
        {
            let kit = Kit::new();
            let mut holds = Vec::new();
            for process in ["a"].into_iter().chain(living) {
                let request = kit.process(process).mutex(format!("of-{process}")).ttl(TTL);
                holds.push(request.acquire().await.unwrap());
            }
            kit.kill(killed);
            let again = kit.process(killed).mutex(name).ttl(TTL);
            let refused = again.try_acquire().await;
            assert!(refused.is_err_and(|error| error.is_taken()), "{name} after the end of {killed}");
            let began = kit.elapsed();
            if name.ends_with(killed) {
                let next = again.acquire().await.unwrap();
                assert!(kit.elapsed() - began > TTL * 9 / 10 && next.previous() == Previous::Lapsed);
            }
        }
    });
}

#[test]
fn a_short_cut_is_survived_and_a_long_one_loses_the_hold() {
    paused().block_on(async {
        let kit = Kit::new();
        let locks = kit.process("a");
        let guard = locks.mutex("x").ttl(Duration::from_secs(6)).acquire().await.unwrap();
        kit.cut_for("a", Duration::from_secs(3));
        assert!(guard.confirm().await.is_err());
        kit.advance(Duration::from_secs(4)).await;
        assert!(guard.check());
        guard.confirm().await.unwrap();
        let lines = kit.history();
        for part in ["a: disconnected", "renewal failed", "a: connected again"] {
            assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:#?}");
        }
        kit.cut("a");
        assert_eq!(guard.lost().await, Loss::Lapsed);
        kit.mend("a");
        assert!(guard.release().await.unwrap_err().is_lost());
        kit.assert_clean().await;
    });
}

#[test]
fn lost_replies_and_requests_are_unknown_outcomes() {
    paused().block_on(async {
        let kit = Kit::new();
        let locks = kit.process("a");
        // A request without its reply is asked again, and granted once.
        kit.fail_next("a", Verb::Claim, Fault::ReplyLost);
        let guard = locks.mutex("x").acquire().await.unwrap();
        kit.fail_next("a", Verb::Claim, Fault::RequestLost);
        assert!(locks.mutex("y").try_acquire().await.unwrap_err().is_unknown());
        kit.fail_next("a", Verb::Renew, Fault::RequestLost);
        assert!(guard.confirm().await.unwrap_err().is_unknown());
        kit.fail_next("a", Verb::Claim, Fault::Refused);
        assert_eq!(locks.mutex("z").acquire().await.unwrap_err().kind(), ErrorKind::Refused);
        // The release is sent again until it is answered.
        kit.fail_next("a", Verb::Release, Fault::ReplyLost);
        guard.release().await.unwrap();
        kit.assert_clean().await;
    });
}

#[test]
fn a_hold_can_be_lost_or_broken_at_once() {
    paused().block_on(async {
        let kit = Kit::new();
        let locks = kit.process("a");
        let guard = locks.mutex("x").acquire().await.unwrap();
        let work = guard.run(std::future::pending::<()>());
        let (outcome, count) = tokio::join!(work, async { kit.lose("x", Loss::Gone) });
        assert_eq!((outcome.unwrap_err().kind(), count), (ErrorKind::Lost(Loss::Gone), 1));
        let next = locks.mutex("x").acquire().await.unwrap();
        assert_eq!(next.previous(), Previous::Lapsed);
        assert_eq!(kit.break_hold("x"), 1);
        assert_eq!(next.lost().await, Loss::Broken);
        drop((guard, next));
        kit.assert_clean().await;
    });
}

#[test]
fn a_foreign_holder_excludes_until_it_leaves_or_its_time_ends() {
    paused().block_on(async {
        let kit = Kit::new();
        let locks = kit.process("a");
        let foreign = kit.foreign("x", TTL).unwrap();
        assert!(kit.foreign("x", TTL).is_none());
        assert!(locks.mutex("x").acquire_within(SECOND).await.unwrap_err().is_timed_out());
        drop(foreign);
        locks.mutex("x").acquire().await.unwrap().release().await.unwrap();
        let _foreign = kit.foreign("x", TTL).unwrap();
        let began = kit.elapsed();
        let guard = locks.mutex("x").acquire().await.unwrap();
        assert!(kit.elapsed() - began >= TTL);
        guard.release().await.unwrap();
        kit.assert_clean().await;
    });
}

#[test]
fn a_suspended_process_does_not_trust_its_hold() {
    paused().block_on(async {
        let kit = Kit::new();
        let guard = kit.process("a").mutex("x").ttl(TTL).acquire().await.unwrap();
        kit.suspend(TTL * 2);
        assert!(!guard.check());
        assert_eq!(guard.lost().await, Loss::Lapsed);
    });
}

#[test]
fn what_is_left_fails_the_test() {
    let clean = |kit: Kit| {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| kit.assert_clean_blocking())).is_ok()
    };
    let kit = Kit::new();
    let guard = kit.process("a").mutex("x").blocking().acquire().unwrap();
    assert!(!clean(kit.clone()));
    drop(guard);
    assert!(clean(kit.clone()));
    kit.fail_next("a", Verb::Renew, Fault::RequestLost);
    assert!(!clean(kit), "a fault that did not happen");
}

#[test]
fn options_apply_and_those_of_urls_are_refused() {
    paused().block_on(async {
        let kit = Kit::new();
        let options = Connect::default().owner("me").when_unreachable(WhenUnreachable::Fail);
        let locks = kit.process_with("a", options);
        locks.ping().await.unwrap();
        kit.cut("a");
        assert!(locks.mutex("x").acquire().await.unwrap_err().is_unreachable());
        kit.mend("a");
        // The process asks five times a second whether the store answers again.
        kit.advance(SECOND).await;
        let _guard = locks.mutex("x").acquire().await.unwrap();
        assert_eq!(locks.show("x").await.unwrap().holders[0].owner, "me");
    });
    let with_password = || Kit::new().process_with("a", Connect::default().password("p"));
    assert!(std::panic::catch_unwind(with_password).is_err());
}

#[test]
fn without_a_runtime_blocking_calls_let_time_pass() {
    let kit = Kit::new();
    let (a, b) = (kit.process("a"), kit.process("b"));
    let guard = a.mutex("x").ttl(TTL).blocking().acquire().unwrap();
    assert!(b.mutex("x").blocking().try_acquire().unwrap_err().is_taken());
    let began = kit.elapsed();
    let error = b.mutex("x").blocking().acquire_within(SECOND * 3).unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert_eq!(kit.elapsed() - began, SECOND * 3);
    kit.advance_blocking(TTL * 5);
    assert!(guard.check(), "it was renewed");
    kit.cut("a");
    kit.advance_blocking(TTL);
    assert!(!guard.check());
    kit.mend("a");
    let next = b.mutex("x").blocking().acquire().unwrap();
    next.release_blocking().unwrap();
    drop(guard);
    kit.assert_clean_blocking();
}

#[test]
fn without_a_runtime_futures_run_on_the_kit() {
    let kit = Kit::new();
    let (a, b) = (kit.process("a"), kit.process("b"));
    kit.block_on(async {
        let guard = a.mutex("x").acquire().await.unwrap();
        let mut waiting = Box::pin(b.mutex("x").acquire());
        let release = async {
            kit.advance(SECOND * 5).await;
            guard.release().await.unwrap();
        };
        let (next, ()) = tokio::join!(&mut waiting, release);
        assert_eq!(kit.elapsed(), SECOND * 5);
        next.unwrap().release().await.unwrap();
        kit.assert_clean().await;
    });
}

/// On a thread of its own a callback would run at another moment in each run of the test.
#[test]
fn loss_callbacks_run_on_the_thread_and_the_time_of_the_kit() {
    type Calls = Arc<Mutex<Vec<(std::thread::ThreadId, Duration, Loss)>>>;
    let note = |kit: &Kit, calls: &Calls| {
        let (kit, calls) = (kit.clone(), Arc::clone(calls));
        move |loss| calls.lock().unwrap().push((std::thread::current().id(), kit.elapsed(), loss))
    };
    let expected = vec![(std::thread::current().id(), SECOND, Loss::Gone)];

    let (kit, calls) = (Kit::new(), Calls::default());
    let guard = kit.process("a").mutex("x").blocking().acquire().unwrap();
    guard.on_lost(note(&kit, &calls)).unwrap();
    kit.advance_blocking(SECOND);
    kit.lose("x", Loss::Gone);
    kit.advance_blocking(SECOND);
    assert_eq!(*calls.lock().unwrap(), expected);

    paused().block_on(async {
        let (kit, calls) = (Kit::new(), Calls::default());
        let guard = kit.process("a").mutex("x").acquire().await.unwrap();
        guard.on_lost(|_| panic!("on purpose")).unwrap();
        guard.on_lost(note(&kit, &calls)).unwrap();
        kit.advance(SECOND).await;
        kit.lose("x", Loss::Gone);
        kit.advance(SECOND).await;
        assert_eq!(*calls.lock().unwrap(), expected);
    });
}

/// Makes calls in its events that would wait for the task that calls it; stores their outcomes.
#[derive(Default)]
struct BlocksInEvents {
    locks: OnceLock<Locks>,
    kit: OnceLock<Kit>,
    outcomes: Mutex<Vec<String>>,
}

impl Observe for BlocksInEvents {
    fn event(&self, event: &Event<'_>) {
        let (Event::Renewed { .. }, Some(locks), Some(kit)) = (event, self.locks.get(), self.kit.get())
        else {
            return;
        };
        let error = locks.mutex("y").blocking().acquire().unwrap_err();
        let advance = std::panic::AssertUnwindSafe(|| kit.advance_blocking(SECOND));
        let panic = std::panic::catch_unwind(advance).unwrap_err();
        let panic = panic.downcast_ref::<&str>().unwrap();
        self.outcomes.lock().unwrap().extend([error.to_string(), (*panic).to_owned()]);
    }
}

#[test]
fn a_blocking_call_in_an_observer_returns_an_error_and_does_not_hang() {
    let (kit, observer) = (Kit::new(), Arc::new(BlocksInEvents::default()));
    let locks = kit.process_with("a", Connect::default().observe(Arc::clone(&observer) as _));
    assert!(observer.locks.set(locks.clone()).is_ok() && observer.kit.set(kit.clone()).is_ok());
    let guard = locks.mutex("x").ttl(TTL).blocking().acquire().unwrap();
    kit.advance_blocking(TTL);
    assert!(guard.check());
    let outcomes = observer.outcomes.lock().unwrap();
    assert!(outcomes.len() >= 2, "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| outcome.contains("would wait for itself")), "{outcomes:?}");
    drop(outcomes);
    // Outside of tasks, blocking calls work as before.
    locks.mutex("y").blocking().acquire().unwrap().release_blocking().unwrap();
    guard.release_blocking().unwrap();
}

#[test]
fn a_wait_that_nothing_can_end_panics() {
    let kit = Kit::new();
    let never = || kit.block_on(std::future::pending::<()>());
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(never));
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("this wait never ends"), "{message}");
}

/// Each process has a runtime of its own on one thread, and a turn in each millisecond, as simulations of networks do.
#[test]
fn processes_on_several_runtimes_share_one_time() {
    let kit = Kit::seeded(3);
    let (one, two) = (paused(), paused());
    let a = one.block_on(async { kit.process("a") });
    let b = two.block_on(async { kit.process("b") });
    let turn = || {
        one.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        two.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    };
    let guard = one.block_on(async { a.mutex("x").ttl(SECOND).acquire().await.unwrap() });
    let waiting = two.spawn(b.mutex("x").acquire());
    (0..5000).for_each(|_| turn());
    assert!(guard.check() && !waiting.is_finished(), "it was renewed on its runtime");
    assert_eq!(kit.elapsed(), Duration::from_secs(5));
    drop(guard);
    (0..100).for_each(|_| turn());
    assert!(waiting.is_finished());
    let next = two.block_on(waiting).unwrap().unwrap();
    two.block_on(async { next.release().await }).unwrap();
}

/// A run with waits, faults and losses; its history.
fn history(seed: u64) -> Vec<String> {
    paused().block_on(async {
        let kit = Kit::seeded(seed);
        let mut tasks = Vec::new();
        for process in ["a", "b", "c"] {
            let locks = kit.process(process);
            for name in ["x", "y"] {
                let (kit, request) = (kit.clone(), locks.mutex(name).ttl(SECOND * 2));
                tasks.push(tokio::spawn(async move {
                    for round in 0..20 {
                        if round % 4 == 0 {
                            kit.fail_next(process, Verb::Claim, Fault::RequestLost);
                        }
                        let Ok(guard) = request.acquire_within(SECOND * 3).await else { continue };
                        kit.advance(Duration::from_millis(70)).await;
                        if round % 7 == 3 {
                            kit.lose(name, Loss::Gone);
                        }
                        if round % 5 == 0 {
                            kit.fail_next(process, Verb::Release, Fault::ReplyLost);
                        }
                        drop(guard);
                    }
                }));
            }
        }
        kit.advance(SECOND).await;
        kit.cut_for("b", SECOND * 3);
        for task in tasks {
            task.await.unwrap();
        }
        kit.advance(SECOND * 10).await;
        kit.history()
    })
}

#[test]
fn the_same_seed_has_the_same_history() {
    let first = history(7);
    assert!(first.len() > 300, "{}", first.len());
    assert!(first.iter().any(|line| line.contains("lost: ")), "{first:#?}");
    assert_eq!(first, history(7));
    assert_ne!(first, history(8), "the seed decides the pauses");
}

#[test]
fn an_observer_of_the_options_gets_the_events_too() {
    struct Count(std::sync::atomic::AtomicUsize);
    impl leasehold::Observe for Count {
        fn event(&self, _: &leasehold::Event<'_>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let count = Arc::new(Count(Default::default()));
    let kit = Kit::new();
    let locks = kit.process_with("a", Connect::default().observe(Arc::clone(&count) as _));
    locks.mutex("x").blocking().acquire().unwrap().release_blocking().unwrap();
    assert!(count.0.load(std::sync::atomic::Ordering::Relaxed) > 3 && kit.history().len() >= 3);
}
