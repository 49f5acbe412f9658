//! Notifications that arrive during a request, with stopped time: no later poll can help.

use std::{sync::Arc, time::Duration};

use leasehold_core::{BoxFuture, Engine, Keeper, Locks, Runtime, memory::MemoryEngine};
use leasehold_testkit::decorators::{Slow, Verb};
use tokio::{runtime::Handle, task::yield_now};

use crate::World;

/// Runs tasks, and never ends a sleep.
struct Timeless(Handle);

impl Runtime for Timeless {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.0.spawn(task);
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

/// Lets all ready tasks run: each step of a hand-over takes one or two rounds.
async fn settle() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[test]
fn a_notification_that_overtakes_an_answer_is_used() {
    let world = World::new();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let slow = Arc::new(Slow::new(Arc::new(MemoryEngine::new(Arc::clone(&world.store)))));
        let keeper = Keeper::with(Arc::new(Timeless(Handle::current())));
        let locks = Locks::builder(Arc::clone(&slow) as Arc<dyn Engine>).keeper(keeper).build();
        let guard = world.client().mutex("x").acquire().await.unwrap();
        slow.hold_replies(Verb::Claim);
        let waiter = tokio::spawn(locks.mutex("x").acquire());
        slow.replies_held(Verb::Claim, 1).await;
        // The answer is "waiting". Then the lock becomes free, the waiter is granted, and the notification arrives
        // before the answer.
        drop(guard);
        settle().await;
        slow.open(Verb::Claim);
        settle().await;
        assert!(waiter.is_finished(), "I7: it waits for the poll");
        assert!(waiter.await.unwrap().unwrap().check());
    });
}
