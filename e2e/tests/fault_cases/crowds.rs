//! Many claims at once.

use std::{
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use leasehold_core::Error;
use leasehold_testkit::stopwatch::Stopwatch;

use crate::rig::{PATIENCE, Rig, acquire, millis, rng, until};

/// The number of script calls on the server.
fn scripts(rig: &Rig) -> u64 {
    let line =
        rig.server.command(&["INFO", "commandstats"]).into_iter().find(|line| line.contains("evalsha:"));
    let calls = line.and_then(|line| line.split_once("calls=")?.1.split(',').next()?.parse().ok());
    calls.unwrap_or(0)
}

#[test]
fn f33_subscriber_is_killed_during_the_release() {
    let (rig, mut rng) = (Rig::new(), rng());
    let (locks, other) = (rig.locks(), rig.locks());
    for _ in 0..10 {
        let guard = acquire(&locks, "a", Duration::from_secs(30));
        let request = other.mutex("a").blocking();
        let waiting = spawn(move || request.acquire_within(PATIENCE));
        sleep(Duration::from_micros(rng.below(3000)));
        let port = rig.server.port();
        let killing = spawn(move || {
            for kind in ["pubsub", "normal"] {
                let _ = leasehold_testkit::server::redis_command(port, &["CLIENT", "KILL", "TYPE", kind]);
            }
        });
        sleep(Duration::from_micros(rng.below(6000)));
        guard.release_blocking().unwrap();
        let watch = Stopwatch::start();
        waiting.join().unwrap().unwrap().release_blocking().unwrap();
        watch.assert_within(Duration::from_secs(3), "granted at the next poll at the latest");
        killing.join().unwrap();
    }
}

#[test]
fn f68_a_thousand_wait_and_one_is_woken() {
    let rig = Rig::new();
    let locks = rig.locks();
    let guard = acquire(&locks, "a", Duration::from_secs(30));
    // Each client has its own queue entry, like a process.
    let others: Vec<_> = (0..25).map(|_| rig.locks()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let request = |at: usize| others[at % 25].mutex("a").ttl(Duration::from_secs(30));
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    for at in 0..1000 {
        let (request, granted) = (request(at), granted.clone());
        runtime.spawn(async move { granted.send(request.acquire().await) });
    }
    until("they wait", || rig.waiters("a") == 25);
    let before = scripts(&rig);
    let begin = Instant::now();
    guard.release_blocking().unwrap();
    let first = grants.blocking_recv().unwrap().unwrap();
    sleep(millis(200));
    let calls = scripts(&rig) - before;
    let asked = 25 * (begin.elapsed().as_millis() as u64 / 1000 + 1);
    assert!(calls <= 3 + asked, "{calls} scripts for one hand-over");
    assert!(grants.try_recv().is_err() && first.check(), "only one was granted");
    drop(runtime);
}

#[test]
fn f72_names_do_not_affect_each_other() {
    let (rig, mut rng) = (Rig::new(), rng());
    let (locks, other) = (rig.locks(), rig.locks());
    let name = |at: u64| format!("n{at}");
    let mut guards: Vec<_> =
        (0..200).map(|at| (at, acquire(&locks, &name(at), Duration::from_secs(30)))).collect();
    while !guards.is_empty() {
        let (at, guard) = guards.swap_remove(rng.below(guards.len() as u64) as usize);
        guard.release_blocking().unwrap();
        let tries = |at| other.mutex(name(at)).blocking().try_acquire();
        tries(at).unwrap().release_blocking().unwrap();
        if let Some((still, _)) = guards.first() {
            assert!(tries(*still).as_ref().is_err_and(Error::is_taken));
        }
    }
}
