//! Every public future is dropped at its 1st, 2nd, ... nth poll: nothing may remain (I6, I11).
//!
//! The calls of the engine wait, so that the futures have several polls.

use std::{cell::RefCell, sync::Arc, time::Duration};

use leasehold_core::{Error, Guard, Locks, Request, memory::MemoryEngine};
use leasehold_testkit::{decorators::Faulty, dropper::drop_at_every_poll};

use crate::World;

impl World {
    /// A client that reaches the store through the keeper, as a client of a server does.
    pub(crate) fn remote_client(&self) -> (Locks, Arc<Faulty>) {
        let faulty = Arc::new(Faulty::new(Arc::new(MemoryEngine::new(Arc::clone(&self.store)))));
        (Locks::builder(Arc::clone(&faulty) as _).build(), faulty)
    }
}

/// Drops the future that `start` returns at every poll. If `contended`, another client holds the name before and
/// releases it some time later.
fn drop_everywhere<F>(start: impl Fn(&Request) -> F, contended: bool)
where
    F: Future<Output = Result<Guard, Error>>,
{
    for remote in [false, true] {
        let world = World::new();
        let (other, _) = world.remote_client();
        let locks = if remote { world.remote_client().0 } else { world.client() };
        let request = locks.mutex("x");
        let holder = RefCell::new(None);
        drop_at_every_poll(
            || {
                if contended {
                    *holder.borrow_mut() = Some(other.mutex("x").blocking().acquire().unwrap());
                }
                start(&request)
            },
            || drop(holder.borrow_mut().take()),
            |_| {
                drop(holder.borrow_mut().take());
                world.assert_no_leftovers();
            },
        );
    }
}

#[test]
fn acquire() {
    drop_everywhere(Request::acquire, false);
    drop_everywhere(Request::acquire, true);
}

#[test]
fn acquire_within() {
    drop_everywhere(|request| request.acquire_within(crate::PATIENCE), false);
    drop_everywhere(|request| request.acquire_within(crate::PATIENCE), true);
}

#[test]
fn tries() {
    drop_everywhere(Request::try_acquire, false);
    drop_everywhere(|request| request.clone().attempts(100).acquire(), true);
}

#[test]
fn release_and_confirm_and_run() {
    let world = World::new();
    let (locks, _) = world.remote_client();
    let hold = || locks.mutex("x").blocking().acquire().unwrap();
    drop_at_every_poll(|| hold().release(), || (), |_| world.assert_no_leftovers());
    drop_at_every_poll(
        || {
            let guard = hold();
            async move { guard.confirm().await }
        },
        || (),
        |_| world.assert_no_leftovers(),
    );
    drop_at_every_poll(
        || {
            let guard = hold();
            async move { guard.run(std::future::ready(())).await }
        },
        || (),
        |_| world.assert_no_leftovers(),
    );
}

#[test]
fn inspect_and_close() {
    let world = World::new();
    let (locks, _) = world.remote_client();
    drop_at_every_poll(|| locks.list(""), || (), |_| world.assert_no_leftovers());
    drop_at_every_poll(|| locks.show("x"), || (), |_| world.assert_no_leftovers());
    drop_at_every_poll(|| locks.break_hold("x", 1, false), || (), |_| world.assert_no_leftovers());
    drop_at_every_poll(
        || {
            let (locks, _) = world.remote_client();
            async move { locks.close(Duration::from_secs(1)).await }
        },
        || (),
        |_| world.assert_no_leftovers(),
    );
}
