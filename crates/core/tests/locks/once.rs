//! Work that is done one time: its result is stored with the release, and repeats receive it. On paused time.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    future::pending,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use leasehold_core::{
    Env, Guard, Locks, MAX_MEMO_BYTES, MemoKind, Modes, NewMemo, Once, OnceError, OnceTurn, Previous, Ran,
    memory::MemoryStore,
};
use leasehold_testkit::{
    decorators::{Fault, Verb},
    dropper::{drop_at_every_poll, poll_once},
};
use tokio::{
    task::LocalSet,
    time::{sleep, timeout},
};

use crate::{
    World,
    altered::{Altered, client_of},
    cleanup::{new_client, new_store, paused_runtime},
    elections::{kill, slow_client},
};

const TTL: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

/// Work that returns this text.
fn answer(text: &'static str) -> impl AsyncFnOnce(&Guard) -> Result<&'static str, Infallible> {
    async move |_| Ok(text)
}

/// The error of the lock of a run that did not begin.
fn not_begun<E: std::fmt::Debug>(result: Result<Ran, OnceError<E>>) -> leasehold_core::Error {
    match result {
        Err(OnceError::NotBegun(error)) => error,
        other => panic!("it did not begin: {other:?}"),
    }
}

#[test]
fn a_repeat_receives_the_stored_result_by_one_request_until_its_time_has_passed() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((locks, ..), (other, _, counting)) = (new_client(&store, &env), new_client(&store, &env));
        let ran = locks.once("k").keep(HOUR).run(answer("first")).await.unwrap();
        assert_eq!(ran, Ran::Fresh(b"first".to_vec()));
        let began = Cell::new(false);
        let repeat =
            other.once("k").run(async |_| Ok::<_, Infallible>(if began.replace(true) { "a" } else { "b" }));
        assert_eq!(repeat.await.unwrap(), Ran::Replayed(b"first".to_vec()));
        assert!(!began.get());
        let calls =
            [Verb::Claim, Verb::Release, Verb::Memo, Verb::Inspect].map(|verb| counting.count(verb).calls);
        assert_eq!(calls, [0, 0, 0, 1], "one read, and nothing else");
        assert_eq!(other.once("k").stored().await.unwrap(), Some(b"first".to_vec()));
        sleep(HOUR - Duration::from_secs(1)).await;
        assert!(other.once("k").run(answer("second")).await.unwrap().is_replayed());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(other.once("k").stored().await.unwrap(), None);
        assert_eq!(other.once("k").run(answer("second")).await.unwrap(), Ran::Fresh(b"second".to_vec()));
    });
}

/// Runs `count` duplicates over these clients at the same time. Returns how many did the work; all get its result.
async fn run_duplicates(clients: &[Locks], count: usize) -> usize {
    let runs = Rc::new(Cell::new(0));
    let tasks = LocalSet::new();
    let duplicates: Vec<_> = (0..count)
        .map(|number| {
            let (once, runs) = (clients[number % clients.len()].once("k").ttl(TTL), Rc::clone(&runs));
            tasks.spawn_local(async move {
                once.run(async |guard| {
                    runs.set(runs.get() + 1);
                    // Longer than the lease, so the work depends on renewals.
                    sleep(TTL * 2).await;
                    Ok::<_, Infallible>(guard.token().number.to_string())
                })
                .await
                .unwrap()
            })
        })
        .collect();
    tasks
        .run_until(async {
            let (mut results, mut fresh) = (std::collections::BTreeSet::new(), 0);
            for duplicate in duplicates {
                let ran = duplicate.await.unwrap();
                fresh += usize::from(!ran.is_replayed());
                results.insert(ran.into_bytes());
            }
            assert_eq!((results.len(), fresh), (1, 1), "one result for all");
        })
        .await;
    runs.get()
}

#[test]
fn a_thousand_duplicates_run_one_time_and_wake_together() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let clients: Vec<_> = (0..10).map(|_| new_client(&store, &env)).collect();
        let locks: Vec<_> = clients.iter().map(|(locks, ..)| locks.clone()).collect();
        assert_eq!(run_duplicates(&locks, 1000).await, 1);
        for (_, _, counting) in &clients {
            // One claim of the first try, and one for all readers of the process; asks of a waiting claim are few.
            let claims = counting.count(Verb::Claim).calls;
            assert!(claims <= 120, "{claims} claims of 100 duplicates");
            let reads = counting.count(Verb::Inspect).calls;
            assert!(reads <= 202, "{reads} reads of 100 duplicates");
        }
        assert!(locks[0].list("").await.unwrap().is_empty());
    });
}

#[test]
fn repeats_that_wait_for_a_run_are_granted_together() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let runner = new_client(&store, &env).0.mutex("k").acquire().await.unwrap();
        let waiters: Vec<_> = (0..3).map(|_| slow_client(&store, &env)).collect();
        let tasks = LocalSet::new();
        let run = |locks: &Locks| tasks.spawn_local(locks.once("k").ttl(TTL).run(answer("repeat")));
        let runs: Vec<_> = waiters.iter().map(|(locks, _)| run(locks)).collect();
        let woken = async {
            sleep(Duration::from_secs(1)).await;
            waiters.iter().for_each(|(_, slow)| slow.hold_requests(Verb::Inspect));
            runner.release_with_memo(NewMemo::new(MemoKind::ONCE, "result", HOUR).unwrap()).await.unwrap();
            for (_, slow) in &waiters {
                let held = timeout(Duration::from_secs(1), slow.requests_held(Verb::Inspect, 1)).await;
                assert!(held.is_ok(), "all of them look for the result before the first one has it");
            }
            waiters.iter().for_each(|(_, slow)| slow.open(Verb::Inspect));
            for run in runs {
                assert_eq!(run.await.unwrap().unwrap(), Ran::Replayed(b"result".to_vec()));
            }
        };
        tasks.run_until(woken).await;
    });
}

#[test]
fn without_shared_locks_duplicates_wait_one_after_another() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let engines: Vec<_> = (0..3)
            .map(|_| Arc::new(Altered::new(&store, |profile| profile.modes = Modes::Exclusive)))
            .collect();
        let clients: Vec<_> = engines.iter().map(|engine| client_of(engine, &env)).collect();
        assert_eq!(run_duplicates(&clients, 30).await, 1);
    });
}

/// A run that begins and then never ends, on a client that is killed then.
async fn killed_run(store: &Arc<MemoryStore>, env: &Env) {
    let (locks, slow) = slow_client(store, env);
    let mut run =
        Box::pin(locks.once("k").ttl(TTL).run(async |_| pending::<Result<&str, Infallible>>().await));
    assert!(timeout(Duration::from_millis(10), run.as_mut()).await.is_err());
    assert_eq!(locks.show("k").await.unwrap().holders.len(), 1);
    kill(&slow);
    drop(run);
}

#[test]
fn a_crashed_run_is_taken_over_and_the_next_one_is_told() {
    for modes in [Modes::All, Modes::Exclusive] {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            killed_run(&store, &env).await;
            let engines: Vec<_> =
                (0..3).map(|_| Arc::new(Altered::new(&store, |profile| profile.modes = modes))).collect();
            let tasks = LocalSet::new();
            let told = Rc::new(RefCell::new(Vec::new()));
            let waiters: Vec<_> = engines
                .iter()
                .flat_map(|engine| {
                    let locks = client_of(engine, &env);
                    [locks.clone(), locks]
                })
                .map(|locks| {
                    let told = Rc::clone(&told);
                    let once = locks.once("k").ttl(TTL);
                    tasks.spawn_local(async move {
                        let work = async |guard: &Guard| {
                            told.borrow_mut().push(guard.previous());
                            Ok::<_, Infallible>("second")
                        };
                        once.run(work).await.unwrap()
                    })
                })
                .collect();
            tasks
                .run_until(async {
                    for waiter in waiters {
                        assert_eq!(waiter.await.unwrap().bytes(), b"second");
                    }
                })
                .await;
            assert_eq!(*told.borrow(), [Previous::Lapsed], "one run, {modes:?}");
        });
    }
}

#[test]
fn work_that_fails_stores_nothing_and_the_next_run_is_told_how_it_ended() {
    let world = World::new();
    let locks = world.client();
    let failed = pollster::block_on(locks.once("k").run(async |_| Err::<&str, _>("no money")));
    assert_eq!(failed.unwrap_err().into_work_error(), Some("no money"));
    let seen = |run: &dyn Fn() -> Option<Previous>| run();
    let previous = |expected: &str| {
        let told = Cell::new(None);
        let failed = locks.once("k").run_blocking(|guard| {
            told.set(Some(guard.previous()));
            Err::<&str, _>(expected.to_owned())
        });
        assert_eq!(failed.unwrap_err().into_work_error().as_deref(), Some(expected));
        told.get()
    };
    assert_eq!(seen(&|| previous("no money again")), Some(Previous::Clean));
    let panicking = world.client();
    let panicked = std::thread::spawn(move || {
        panicking.once("k").run_blocking(|_| -> Result<&str, Infallible> { panic!("on purpose") })
    });
    assert!(panicked.join().is_err());
    assert_eq!(seen(&|| previous("after a panic")), Some(Previous::Abandoned));
    assert_eq!(pollster::block_on(locks.once("k").stored()).unwrap(), None);
    world.assert_no_leftovers();
}

#[test]
fn another_payload_is_told_apart() {
    let world = World::new();
    let locks = world.client();
    let run = |digest: Option<u8>| {
        let once = locks.once("k");
        let once = match digest {
            Some(byte) => once.digest([byte; 32]),
            None => once,
        };
        once.run_blocking(|_| Ok::<_, Infallible>("paid"))
    };
    assert!(matches!(run(Some(1)), Ok(Ran::Fresh(_))));
    assert!(matches!(run(Some(1)), Ok(Ran::Replayed(_))));
    let error = not_begun(run(Some(2)));
    assert!(error.is_mismatch() && error.to_string().contains("another payload"), "{error}");
    assert!(matches!(run(None), Ok(Ran::Replayed(_))), "nothing is compared without a digest");
    let other = locks.once("without").run_blocking(|_| Ok::<_, Infallible>("x"));
    assert!(matches!(other, Ok(Ran::Fresh(_))));
    let with = locks.once("without").digest([1; 32]).run_blocking(|_| Ok::<_, Infallible>("y"));
    assert!(matches!(with, Ok(Ran::Replayed(_))));
}

#[test]
fn the_result_of_a_run_whose_lock_was_lost_is_not_stored() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let zombie = locks.once("k").run_blocking(|guard| {
        other.break_hold_blocking("k", guard.token().number, true).unwrap();
        let next = other.once("k").run_blocking(|_| Ok::<_, Infallible>("next"));
        assert!(matches!(next, Ok(Ran::Fresh(_))));
        Ok::<_, Infallible>("zombie")
    });
    let Err(OnceError::NotStored { bytes, error }) = zombie else { panic!("it was lost: {zombie:?}") };
    assert!(bytes == b"zombie" && error.is_lost(), "{error}");
    assert_eq!(pollster::block_on(locks.once("k").stored()).unwrap(), Some(b"next".to_vec()));
    // Async work is cancelled instead.
    let cancelled = pollster::block_on(locks.once("m").run(async |guard| {
        other.break_hold("m", guard.token().number, true).await.unwrap();
        guard.confirm().await.unwrap_err();
        pending::<Result<&str, Infallible>>().await
    }));
    assert!(matches!(cancelled, Err(OnceError::Cancelled(error)) if error.is_lost()));
    assert_eq!(pollster::block_on(locks.once("m").stored()).unwrap(), None);
    world.assert_no_leftovers();
}

#[test]
fn a_record_without_an_answer_is_read_back() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        for (key, fault) in [("a", Fault::RequestLost), ("b", Fault::ReplyLost)] {
            faulty.next(Verb::Memo, fault);
            let ran = locks.once(key).run(answer("paid")).await.unwrap();
            assert_eq!(ran, Ran::Fresh(b"paid".to_vec()));
            assert!(locks.once(key).run(answer("again")).await.unwrap().is_replayed());
        }
        let (cut_off, slow) = slow_client(&store, &env);
        slow.hold_requests(Verb::Memo);
        let unknown = cut_off.once("c").ttl(TTL).run(answer("paid")).await;
        let Err(OnceError::NotStored { bytes, error }) = unknown else {
            panic!("it is unknown: {unknown:?}")
        };
        assert!(bytes == b"paid" && error.is_unknown(), "{error}");
        let next = locks.once("c").run(answer("again")).await.unwrap();
        assert_eq!(next, Ran::Fresh(b"again".to_vec()));
    });
}

#[test]
fn a_result_has_at_most_64_kib() {
    let world = World::new();
    let locks = world.client();
    for len in [0, MAX_MEMO_BYTES] {
        let key = format!("key {len}");
        let run = || locks.once(&key).run_blocking(|_| Ok::<_, Infallible>(vec![7; len]));
        assert_eq!(run().unwrap(), Ran::Fresh(vec![7; len]));
        assert_eq!(run().unwrap(), Ran::Replayed(vec![7; len]));
    }
    let long =
        pollster::block_on(locks.once("k").run(async |_| Ok::<_, Infallible>(vec![7; MAX_MEMO_BYTES + 1])));
    let Err(OnceError::NotStored { bytes, error }) = long else { panic!("it is too long") };
    assert!(bytes.len() == MAX_MEMO_BYTES + 1 && error.is_invalid(), "{error}");
    assert_eq!(pollster::block_on(locks.once("k").stored()).unwrap(), None);
    world.assert_no_leftovers();
}

#[test]
fn what_cannot_run_is_refused_before_anything_runs() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let engine = Arc::new(Altered::new(&store, |profile| profile.no_memos = Some("it is a test")));
        let without = client_of(&engine, &env);
        let (locks, _, counting) = new_client(&store, &env);
        let never = async |_: &Guard| -> Result<&str, Infallible> { panic!("it must not run") };
        assert!(not_begun(without.once("k").run(never).await).is_misconfigured());
        assert!(without.once("k").stored().await.unwrap_err().is_misconfigured());
        assert!(not_begun(locks.once("").run(never).await).is_invalid());
        assert!(not_begun(locks.once("k").keep(Duration::ZERO).run(never).await).is_invalid());
        assert!(locks.list("").await.unwrap().is_empty());
        assert_eq!(counting.count(Verb::Claim).calls, 0);
        let guard = locks.mutex("k").acquire().await.unwrap();
        assert!(not_begun(locks.once("k").try_run(never).await).is_taken());
        let within = locks.once("k").run_within(Duration::from_secs(5), never).await;
        assert!(not_begun(within).is_timed_out());
        guard.write_memo(NewMemo::new(MemoKind::ELECTION, "leader", HOUR).unwrap()).await.unwrap();
        drop(guard);
        let error = not_begun(locks.once("k").run(never).await);
        assert!(error.is_misconfigured() && error.to_string().contains("kind election"), "{error}");
    });
}

/// A limit of a second, at each request of a run that is no wait: the first look, the try, the look under the lock, and
/// the look behind another run (I12). The hold that was acquired only to look tells nothing to the next one (R30).
#[test]
fn a_limited_run_ends_in_time_at_each_request_without_an_answer() {
    const LIMIT: Duration = Duration::from_secs(1);
    const DUE: Duration = Duration::from_millis(1100);
    for silent in ["the first look", "the try", "the look under the lock", "the look behind another run"] {
        paused_runtime().block_on(async {
            let (store, env) = new_store();
            let ((holder, ..), (locks, slow)) = (new_client(&store, &env), slow_client(&store, &env));
            let never = async |_: &Guard| -> Result<&str, Infallible> { panic!("it must not run") };
            let guard = holder.mutex("k").acquire().await.unwrap();
            let crash = || {
                let crashed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _held = guard;
                    panic!("the work crashes");
                }));
                assert!(crashed.is_err());
            };
            let mut run = std::pin::pin!(async {
                timeout(DUE, locks.once("k").run_within(LIMIT, never)).await.expect("it ends in time")
            });
            let ran = match silent {
                "the look behind another run" => {
                    assert!(timeout(LIMIT / 10, run.as_mut()).await.is_err(), "it waits");
                    slow.hold_requests(Verb::Inspect);
                    crash();
                    run.await
                }
                "the look under the lock" => {
                    crash();
                    slow.hold_replies(Verb::Claim);
                    assert!(timeout(LIMIT / 10, run.as_mut()).await.is_err(), "it has looked, and tries");
                    slow.hold_requests(Verb::Inspect);
                    slow.open(Verb::Claim);
                    run.await
                }
                _ => {
                    crash();
                    slow.hold_requests(if silent == "the try" { Verb::Claim } else { Verb::Inspect });
                    run.await
                }
            };
            let error = not_begun(ran);
            // A try may have been applied.
            assert!(error.is_unreachable() || error.is_unknown(), "{silent}: {error}");
            slow.open(Verb::Claim);
            slow.open(Verb::Inspect);
            let told = holder.once("k").run(async |guard| {
                assert_eq!(guard.previous(), Previous::Abandoned, "{silent}");
                Ok::<_, Infallible>("done")
            });
            assert_eq!(told.await.unwrap(), Ran::Fresh(b"done".to_vec()), "{silent}");
        });
    }
}

/// The time of a slow first look is a part of the limit: the end of the wait is reported as such, not as an engine that
/// does not answer.
#[test]
fn a_wait_after_a_slow_look_ends_as_a_wait() {
    const LIMIT: Duration = Duration::from_secs(1);
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let ((holder, ..), (locks, slow)) = (new_client(&store, &env), slow_client(&store, &env));
        let _guard = holder.mutex("k").acquire().await.unwrap();
        let never = async |_: &Guard| -> Result<&str, Infallible> { panic!("it must not run") };
        slow.hold_requests(Verb::Inspect);
        let mut run = std::pin::pin!(locks.once("k").run_within(LIMIT, never));
        assert!(timeout(LIMIT / 2, run.as_mut()).await.is_err(), "it looks");
        slow.open(Verb::Inspect);
        let error = not_begun(run.await);
        assert!(error.is_timed_out(), "{error}");
    });
}

#[test]
fn a_run_that_is_dropped_at_any_poll_stores_all_or_nothing() {
    let world = World::new();
    let (locks, other) = (world.client(), world.client());
    let runs = Cell::new(0);
    let run = || {
        runs.set(runs.get() + 1);
        locks.once(format!("key {}", runs.get())).run(async |_| {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>("paid")
        })
    };
    drop_at_every_poll(run, || (), |_| world.assert_no_leftovers());
    let last = pollster::block_on(other.once(format!("key {}", runs.get())).stored()).unwrap();
    assert_eq!(last, Some(b"paid".to_vec()), "the last one was not dropped");
    // The same behind a run that goes on.
    let holder = other.mutex("k").blocking().acquire().unwrap();
    let waiting = || locks.once("k").run_within(Duration::from_millis(5), answer("x"));
    drop_at_every_poll(waiting, || (), |_| assert!(holder.check()));
    holder.release_blocking().unwrap();
    world.assert_no_leftovers();
    assert!(poll_once(std::pin::pin!(other.once("k").stored())).unwrap().unwrap().is_none());
}

#[test]
fn a_run_in_single_steps_stores_its_result_gives_up_or_is_abandoned() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, ..) = new_client(&store, &env);
        let begin = async || match locks.once("k").begin(None).await.unwrap() {
            OnceTurn::Run(guard) => guard,
            other => panic!("nothing is stored: {other:?}"),
        };
        drop(begin().await);
        let guard = begin().await;
        assert_eq!(guard.previous(), Previous::Abandoned, "it was dropped while it worked");
        assert!(locks.once("k").begin(Some(Duration::ZERO)).await.unwrap_err().is_taken());
        assert!(locks.once("k").begin(Some(Duration::from_secs(1))).await.unwrap_err().is_timed_out());
        Once::give_up(guard).await.unwrap();
        let guard = begin().await;
        assert_eq!(guard.previous(), Previous::Clean, "its failure was reported");
        locks.once("k").store(guard, b"result".to_vec()).await.unwrap();
        let OnceTurn::Stored(result) = locks.once("k").begin(None).await.unwrap() else {
            panic!("it is stored")
        };
        assert_eq!(result, b"result");
    });
}
