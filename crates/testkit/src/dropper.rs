//! Drops a future at its 1st, 2nd, ... nth poll, to find what a cancelled future leaves behind.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

/// The limit of polls. A public future has some dozens of stages, so a future that takes a thousand polls has a bug.
const MAX_POLLS: usize = 1_000;
/// The largest number of calls of `drive` between two wake-ups of a future. With the pauses, these calls take ten
/// seconds. After them the future counts as hung.
const MAX_DRIVES: usize = 10_000;
/// The pause after a call of `drive`, in which other threads can wake the future.
const PAUSE: Duration = Duration::from_millis(1);

/// For n = 0, 1, 2, ...: makes a future, polls it n times, drops it, and calls `after_each(n)`, until the future
/// completes within n polls. Returns the number of polls that it took to complete.
///
/// The future is polled only after it was woken. Until then `drive` is called repeatedly, so that whatever the future
/// waits for progresses. `drive` must not block. A future that needs the context of a runtime must be made inside this
/// context.
///
/// # Panics
/// If the future is never woken, or takes more than a thousand polls.
pub fn drop_at_every_poll<F: Future>(
    mut make_future: impl FnMut() -> F,
    mut drive: impl FnMut(),
    mut after_each: impl FnMut(usize),
) -> usize {
    for polls in 0..=MAX_POLLS {
        let completed = poll_times(make_future(), polls, &mut drive);
        after_each(polls);
        if completed {
            return polls;
        }
    }
    panic!("the future did not complete within {MAX_POLLS} polls");
}

/// Polls a future once. `None`: it is not ready at its first poll.
pub fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

/// Polls a future up to `polls` times, each time after a wake-up. Returns whether the future completed.
fn poll_times<F: Future>(future: F, polls: usize, drive: &mut impl FnMut()) -> bool {
    let mut future = pin!(future);
    let thread_waker = Arc::new(ThreadWaker { woken: AtomicBool::new(true), thread: thread::current() });
    let waker = Waker::from(Arc::clone(&thread_waker));
    for _ in 0..polls {
        thread_waker.wait(drive);
        if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            return true;
        }
    }
    false
}

/// Wakes a thread, and records that the future was woken.
struct ThreadWaker {
    woken: AtomicBool,
    thread: Thread,
}

impl ThreadWaker {
    /// Waits for a wake-up, and calls `drive` until one comes.
    fn wait(&self, drive: &mut impl FnMut()) {
        for _ in 0..MAX_DRIVES {
            if self.woken.swap(false, Ordering::AcqRel) {
                return;
            }
            drive();
            if !self.woken.load(Ordering::Acquire) {
                thread::park_timeout(PAUSE);
            }
        }
        panic!("a pending future was not woken: its wake-up was lost, or nothing drives it");
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::poll_fn};

    use super::*;

    /// A future that is ready at its poll number `ready_at` and wakes itself at every earlier poll.
    fn staged(ready_at: usize, polled: &Cell<usize>) -> impl Future<Output = ()> + '_ {
        let mut polls = 0;
        poll_fn(move |context| {
            polls += 1;
            polled.set(polled.get() + 1);
            if polls == ready_at {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
    }

    #[test]
    fn a_future_is_dropped_at_every_poll() {
        let polled = Cell::new(0);
        let mut seen = Vec::new();
        let polls = drop_at_every_poll(|| staged(3, &polled), || {}, |n| seen.push((n, polled.take())));
        assert_eq!(polls, 3);
        assert_eq!(seen, [(0, 0), (1, 1), (2, 2), (3, 3)]);
    }

    #[test]
    fn a_future_is_polled_only_when_woken_and_driven_meanwhile() {
        let waker: Cell<Option<Waker>> = Cell::new(None);
        let (drives, polled) = (Cell::new(0), Cell::new(0));
        let make = || {
            drives.set(0);
            poll_fn(|context| {
                polled.set(polled.get() + 1);
                if drives.get() >= 5 {
                    return Poll::Ready(());
                }
                waker.set(Some(context.waker().clone()));
                Poll::Pending
            })
        };
        let drive = || {
            drives.set(drives.get() + 1);
            if drives.get() == 5 {
                waker.take().unwrap().wake();
            }
        };
        assert_eq!(drop_at_every_poll(make, drive, |_| ()), 2);
        assert_eq!(polled.get(), 3, "once for n = 1, twice for n = 2");
    }

    #[test]
    fn a_wake_up_from_another_thread_counts() {
        let make = || async {
            let (send, receive) = tokio::sync::oneshot::channel();
            let sender = thread::spawn(move || send.send(()));
            receive.await.unwrap();
            sender.join().unwrap().unwrap();
        };
        let polls = drop_at_every_poll(make, || {}, |_| ());
        assert!((1..=2).contains(&polls), "{polls} polls");
    }

    #[test]
    fn poll_once_distinguishes_ready_and_pending() {
        assert_eq!(poll_once(async { 7 }), Some(7));
        assert_eq!(poll_once(std::future::pending::<()>()), None);
    }
}
