//! How long the exit of a process waits for pending releases: a second, unless the process knows that the engine does
//! not answer. What the process knows is tested on paused time; the wait is tested in child processes that run this
//! test binary again.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use leasehold_core::{Locks, memory::MemoryEngine};
use leasehold_testkit::{
    decorators::{Fault, Slow, Verb},
    stopwatch::Stopwatch,
};
use tokio::time::timeout;

use crate::{
    World,
    cleanup::{new_client, new_store, paused_runtime},
    late::slow_client,
};

/// How long the exit waits for an engine that answers.
const ANSWERED: Duration = Duration::from_secs(1);
/// How long the exit waits for an engine that does not answer.
const UNANSWERED: Duration = Duration::from_millis(50);
/// How long the cases wait for an answer: longer than it takes until an engine counts as unresponsive, and shorter than
/// the pause before a claim is sent again.
const LIMIT: Duration = Duration::from_millis(700);
/// A pause in which the tasks that are ready run.
const MOMENT: Duration = Duration::from_millis(1);

/// Makes sure that the engine has answered, before a test delays it.
async fn reached(locks: &Locks) {
    assert_eq!(locks.exit_wait(), UNANSWERED, "the engine was not reached yet");
    locks.mutex("other").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.exit_wait(), ANSWERED);
}

#[test]
fn exit_does_not_wait_after_an_unanswered_claim() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        reached(&locks).await;
        slow.hold_requests(Verb::Claim);
        slow.hold_requests(Verb::Release);
        let error = locks.mutex("x").acquire_within(LIMIT).await.unwrap_err();
        assert!(error.is_unreachable(), "{error}");
        assert_eq!(locks.exit_wait(), UNANSWERED);
        // The engine counts as answering again when it has carried out a request.
        slow.open(Verb::Claim);
        slow.open(Verb::Release);
        reached_again(&locks).await;
    });
}

#[test]
fn exit_does_not_wait_after_a_claim_during_an_outage() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        reached(&locks).await;
        faulty.next(Verb::Claim, Fault::SessionGone);
        let error = locks.mutex("x").acquire_within(LIMIT).await.unwrap_err();
        assert!(error.is_unreachable() && error.to_string().contains("session is gone"), "{error}");
        assert_eq!(locks.exit_wait(), UNANSWERED);
        faulty.heal();
        reached_again(&locks).await;
    });
}

#[test]
fn exit_does_not_wait_after_an_unanswered_confirmation() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, slow) = slow_client(&store, &env);
        reached(&locks).await;
        let guard = locks.mutex("x").acquire().await.unwrap();
        slow.hold_requests(Verb::Renew);
        assert!(timeout(MOMENT, guard.confirm()).await.is_err());
        assert_eq!(locks.exit_wait(), ANSWERED, "too short to conclude anything");
        assert!(timeout(LIMIT, guard.confirm()).await.is_err());
        assert_eq!(locks.exit_wait(), UNANSWERED);
        slow.open(Verb::Renew);
        guard.confirm().await.unwrap();
        assert_eq!(locks.exit_wait(), ANSWERED);
    });
}

#[test]
fn exit_does_not_wait_after_a_confirmation_during_an_outage() {
    paused_runtime().block_on(async {
        let (store, env) = new_store();
        let (locks, faulty, _) = new_client(&store, &env);
        reached(&locks).await;
        let guard = locks.mutex("x").acquire().await.unwrap();
        faulty.next(Verb::Renew, Fault::RequestLost);
        assert!(guard.confirm().await.unwrap_err().is_unknown());
        assert_eq!(locks.exit_wait(), UNANSWERED);
        guard.confirm().await.unwrap();
        assert_eq!(locks.exit_wait(), ANSWERED);
    });
}

async fn reached_again(locks: &Locks) {
    locks.mutex("other").acquire().await.unwrap().release().await.unwrap();
    assert_eq!(locks.exit_wait(), ANSWERED);
}

/// The environment variable that tells the child process what to do before it ends.
const CASE: &str = "LEASEHOLD_TEST_AT_EXIT";
const AWAY: &str = "the engine is unreachable";
const SLOW: &str = "the engine is slow";
/// What the child process prints just before it exits.
const MARK: &str = "only the exit is left";

/// If a process ended before a slow engine answered its release, the lock would stay taken until the lease runs out.
#[test]
fn exit_waits_for_an_engine_that_answers() {
    let watch = Stopwatch::start();
    assert!(start(SLOW).wait().unwrap().success());
    assert!(watch.elapsed() >= ANSWERED, "{:?}", watch.elapsed());
}

#[test]
fn exit_does_not_wait_for_an_unreachable_engine() {
    let mut process = start(AWAY);
    let lines = BufReader::new(process.stdout.as_mut().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == MARK), "it ended early");
    let watch = Stopwatch::start();
    // The rest of the output of the process fits into the pipe.
    assert!(process.wait().unwrap().success());
    watch.assert_within(ANSWERED, "the exit of a process");
}

fn start(case: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "at_exit::child_main", "--nocapture", "--test-threads=1"]).env(CASE, case);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// The test that the child process runs. In a normal run, where [`CASE`] is not set, it only checks that the cases
/// differ.
#[test]
fn child_main() {
    let Ok(case) = std::env::var(CASE) else {
        assert_ne!(AWAY, SLOW, "the cases differ");
        return;
    };
    let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(World::new().store))));
    let locks = Locks::new(Arc::clone(&slow) as _);
    let guard = locks.mutex("x").blocking().acquire().unwrap();
    slow.hold_requests(Verb::Release);
    drop(guard);
    if case == AWAY {
        slow.hold_requests(Verb::Claim);
        assert!(locks.mutex("y").blocking().acquire_within(LIMIT).unwrap_err().is_unreachable());
    }
    // Not dropped, because the exit waits only for `Locks` that still exist.
    std::mem::forget(locks);
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}").unwrap();
    out.flush().unwrap();
}
