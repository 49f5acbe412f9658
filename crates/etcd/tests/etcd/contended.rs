//! One name under contention: several tasks in each of two clients.

use std::{
    thread::scope,
    time::{Duration, Instant},
};

use futures_util::future::try_join_all;
use leasehold_core::{Guard, Locks};
use leasehold_testkit::server::etcd_metric;

use crate::rig::{Rig, acquire};

/// How often each task acquires the name.
const SECTIONS: usize = 40;

/// A figure of the server's metrics, which must be there.
fn metric(port: u16, name: &str) -> f64 {
    etcd_metric(port, name).unwrap().unwrap_or_else(|| panic!("the metrics have no {name}"))
}

/// How many watches are behind the newest revision.
fn watches_behind(port: u16) -> f64 {
    metric(port, "etcd_debugging_mvcc_slow_watcher_total ")
}

/// How many requests to make or cancel a watch the server has received.
fn watch_requests(port: u16) -> f64 {
    metric(port, "grpc_server_msg_received_total{grpc_method=\"Watch\"")
}

/// A waiter uses the watch that the last waiter of its process had on the same key.
#[test]
fn processes_that_take_turns_make_no_watch_for_each_turn() {
    let rig = Rig::new();
    let clients = [rig.locks(), rig.locks()];
    let take_turns = || {
        scope(|scope| {
            for locks in &clients {
                scope.spawn(|| (0..SECTIONS).for_each(|_| acquire(locks, "a").release_blocking().unwrap()));
            }
        });
    };
    take_turns();
    let before = watch_requests(rig.server.port());
    take_turns();
    let made = watch_requests(rig.server.port()) - before;
    assert!(made <= SECTIONS as f64 / 4.0, "{made} watch requests in {} sections", 2 * SECTIONS);
}

/// The server reports to a waiter every change that concerns the waiter, so the waiter asks for nothing.
#[test]
fn waiters_send_no_requests_while_nothing_changes() {
    const WAITERS: usize = 20;
    let rig = Rig::new();
    let (holder, waiter) = (rig.locks(), rig.locks());
    let names: Vec<String> = (0..WAITERS).map(|number| format!("name-{number}")).collect();
    let held: Vec<Guard> = names.iter().map(|name| acquire(&holder, name)).collect();
    scope(|scope| {
        let waiters: Vec<_> = names.iter().map(|name| scope.spawn(|| drop(acquire(&waiter, name)))).collect();
        let watches = || metric(rig.server.port(), "etcd_debugging_mvcc_watcher_total ");
        // Each holder watches its own key, each waiter two keys, and each client the epoch of its lease.
        rig.until("all watch", || watches() as usize >= 3 * WAITERS + 2);
        let transactions = || metric(rig.server.port(), "grpc_server_msg_received_total{grpc_method=\"Txn\"");
        let (before, begin) = (transactions(), Instant::now());
        std::thread::sleep(Duration::from_secs(4));
        // A waiter asks once in half a minute.
        let a_second = (transactions() - before) / begin.elapsed().as_secs_f64();
        assert!(a_second < WAITERS as f64 / 8.0, "{a_second} transactions a second");
        drop(held);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// I7: a watch that is behind gets its events only ten times a second, so a waiter with such a watch is granted late.
#[test]
fn no_claim_waits_on_a_watch_that_is_behind() {
    let mut rig = Rig::new();
    // Each section is a claim at the server.
    rig.config = rig.config.clone().hand_over(false);
    let clients = [rig.locks(), rig.locks()];
    scope(|scope| {
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let locks = clients[task % 2].clone();
                scope.spawn(move || {
                    (0..SECTIONS).for_each(|_| acquire(&locks, "a").release_blocking().unwrap())
                })
            })
            .collect();
        let (mut looks, mut looks_behind) = (0, 0);
        while tasks.iter().any(|task| !task.is_finished()) {
            looks += 1;
            looks_behind += usize::from(watches_behind(rig.server.port()) > 0.0);
        }
        // A watch that starts during a write may be behind for a moment.
        assert!(looks_behind * 4 <= looks, "{looks_behind} of {looks} looks found watches that are behind");
    });
}

/// I13: a try for permits creates its key only if no key was added since its read. A try is not refused because other
/// claims are granted at the same time.
#[test]
fn concurrent_tries_take_all_permits() {
    const CLIENTS: u32 = 3;
    const TRIES_PER_CLIENT: u32 = 16;
    let rig = Rig::new();
    let clients = [(); CLIENTS as usize].map(|()| rig.locks());
    rig.run(async {
        for locks in &clients {
            connect(locks).await.release().await.unwrap();
        }
        let semaphores = clients.iter().map(|locks| locks.semaphore("p", CLIENTS * TRIES_PER_CLIENT));
        let tries = semaphores
            .flat_map(|permits| (0..TRIES_PER_CLIENT).map(move |_| permits.clone().permits(1).try_acquire()));
        let guards = try_join_all(tries).await.unwrap();
        try_join_all(guards.into_iter().map(Guard::release)).await.unwrap();
    });
}

/// Connects the client, by an acquire.
async fn connect(locks: &Locks) -> Guard {
    locks.mutex("connected").try_acquire().await.unwrap()
}
