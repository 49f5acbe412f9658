//! Deadlocks while one of several engines is away.

use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

use leasehold::{Actor, Error, Guard, Locks, Owner};
use leasehold_ops::Reached;
use leasehold_serve::EngineSource;

use crate::site::{Site, locks};

/// Two tasks, each of which holds one name and waits for the other.
struct Deadlock {
    holds: [Guard; 2],
    waits: [JoinHandle<Result<Guard, Error>>; 2],
}

impl Deadlock {
    /// The tasks are in two processes, each with its own locks.
    fn of(processes: [&Locks; 2]) -> Self {
        let actors = [Actor::random(), Actor::random()];
        let request = |name: &str, task: usize| {
            processes[task]
                .mutex(name)
                .owner(Owner::of_task(&format!("task {task}"), actors[task]))
                .blocking()
        };
        let holds = [request("one", 0).acquire().unwrap(), request("two", 1).acquire().unwrap()];
        let waits = [("two", 0), ("one", 1)].map(|(name, task)| {
            let waiting = request(name, task);
            thread::spawn(move || waiting.acquire())
        });
        Self { holds, waits }
    }

    /// Ends the wait of the second task, and then that of the first.
    fn end(self) {
        let ([first, second], [waits_for_two, waits_for_one]) = (self.holds, self.waits);
        drop(first);
        drop(waits_for_one.join().unwrap());
        drop(second);
        drop(waits_for_two.join().unwrap());
    }
}

/// A page of two engines.
fn site_beside(other: &Locks) -> Site {
    let locks = other.clone();
    Site::start(|settings, _| {
        settings.engines.push(EngineSource {
            label: "other".to_owned(),
            locks,
            breaker: None,
            reached: Reached::AsHere,
        });
    })
}

#[test]
fn a_deadlock_is_found_while_another_engine_is_away() {
    let [other, ..] = locks();
    let site = site_beside(&other);
    other.close_blocking(Duration::ZERO);
    site.until_shown("/", &[], "not known of other, which is away");
    let deadlock = Deadlock::of([&site.locks, &site.others[0]]);
    let page = site.until_shown("/waits", &[], "deadlock: ");
    let text = "1 deadlock and no long wait; not known of other, which is away, seen at ";
    assert!(page.contains(text), "{page}");
    assert!(site.get("/metrics", &[]).body.contains("\nleasehold_deadlocks 1\n"));
    deadlock.end();
    site.until_shown("/", &[], ">No deadlock and no long wait; not known of other, which is away<");
}

/// The last rows of the engine show the cycle for ever.
#[test]
fn a_deadlock_of_before_an_outage_is_not_current() {
    let [other, first, second] = locks();
    let site = site_beside(&other);
    let deadlock = Deadlock::of([&first, &second]);
    site.until_shown("/metrics", &[], "\nleasehold_deadlocks 1\n");
    other.close_blocking(Duration::ZERO);
    site.until_shown("/", &[], ">No deadlock and no long wait; not known of other, which is away<");
    let metrics = site.get("/metrics", &[]).body;
    assert!(metrics.contains("\nleasehold_deadlocks 0\n"), "{metrics}");
    assert!(!site.get("/waits", &[]).body.contains("deadlock: "));
    deadlock.end();
}
