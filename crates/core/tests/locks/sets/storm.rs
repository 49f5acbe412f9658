//! Many tasks and clients that want the same names in every order (F74).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use leasehold_core::{All, Locks};
use leasehold_testkit::stopwatch::Stopwatch;

use super::OneByOne;
use crate::{PATIENCE, World};

/// The orders in which the tasks name the names.
const ORDERS: [[usize; 2]; 6] = [[0, 1], [1, 0], [1, 2], [2, 1], [0, 2], [2, 0]];
const NAMES: [&str; 3] = ["a", "b", "c"];
/// The two permits of the name that all tasks use besides.
const PERMITS: u32 = 2;

/// Every task takes two names and a permit, in its order; no name has two holders at one time.
fn storm(clients: &[Locks], rounds: usize) {
    let holders: Arc<[AtomicU32; 4]> = Arc::default();
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        for (number, order) in ORDERS.iter().enumerate() {
            let (locks, holders) = (&clients[number % clients.len()], &holders);
            scope.spawn(move || {
                let add = |all: All, name: usize| all.mutex(NAMES[name]);
                for round in 0..rounds {
                    let all = order.iter().fold(locks.all(), |all, &name| add(all, name));
                    let all = if round % 2 == 0 { all.permits("p", 1, PERMITS) } else { all };
                    let guards = all.blocking().acquire_within(PATIENCE).unwrap();
                    for &name in order {
                        assert_eq!(holders[name].fetch_add(1, Ordering::SeqCst), 0, "{}", NAMES[name]);
                    }
                    if round % 2 == 0 {
                        assert!(holders[3].fetch_add(1, Ordering::SeqCst) < PERMITS);
                        holders[3].fetch_sub(1, Ordering::SeqCst);
                    }
                    assert!(guards.check());
                    for &name in order {
                        holders[name].fetch_sub(1, Ordering::SeqCst);
                    }
                    drop(guards);
                }
            });
        }
    });
    println!("{} sets in {:?}", rounds * ORDERS.len(), watch.elapsed());
}

#[test]
fn sets_in_any_order_never_deadlock_in_one_process() {
    let world = World::new();
    storm(&[world.client()], 200);
    world.assert_no_leftovers();
}

#[test]
fn sets_in_any_order_never_deadlock_across_clients() {
    let world = World::new();
    let clients: Vec<Locks> = (0..3).map(|_| world.client()).collect();
    storm(&clients, 100);
    let remote: Vec<Locks> = (0..3).map(|_| world.remote_client().0).collect();
    storm(&remote, 100);
    let one_by_one: Vec<Locks> = (0..3)
        .map(|_| {
            let engine = leasehold_core::memory::MemoryEngine::new(Arc::clone(&world.store));
            Locks::new(OneByOne::new(Arc::new(leasehold_testkit::decorators::Faulty::new(Arc::new(engine)))))
        })
        .collect();
    storm(&one_by_one, 100);
    // Both ways of claiming, against each other.
    storm(&[clients[0].clone(), remote[1].clone(), one_by_one[2].clone()], 100);
    world.assert_no_leftovers();
}

#[cfg(all(feature = "file", target_os = "linux"))]
#[test]
fn sets_in_any_order_never_deadlock_on_files() {
    let directory = tempfile::tempdir().unwrap();
    let engine = || {
        leasehold_core::file::FileEngine::open(
            Some(directory.path().join("locks")),
            leasehold_core::Env::system(),
        )
    };
    let clients: Vec<Locks> = (0..3).map(|_| Locks::new(Arc::new(engine().unwrap()))).collect();
    storm(&clients, 50);
}
