//! Tests of the modes: readers and writers, permits, and conflicts of modes and limits on one name.

use crate::{PATIENCE, World, eventually, waiter_count};

#[test]
fn readers_share_and_a_writer_excludes() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let first = a.rw("x").read().blocking().acquire().unwrap();
    let second = a.rw("x").read().blocking().try_acquire().unwrap();
    let third = b.rw("x").read().blocking().try_acquire().unwrap();
    assert!(second.token() > first.token() && third.token() > second.token());
    for locks in [&a, &b] {
        assert!(locks.rw("x").write().blocking().try_acquire().unwrap_err().is_taken());
    }
    drop((first, second, third));
    let writer = b.rw("x").write().blocking().try_acquire().unwrap();
    assert!(a.rw("x").read().blocking().try_acquire().unwrap_err().is_taken());
    drop(writer);
    world.assert_no_leftovers();
}

#[test]
fn readers_that_come_after_a_waiting_writer_wait_behind_it() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    for writers in [&a, &b] {
        let reader = a.rw("x").read().blocking().acquire().unwrap();
        let request = writers.rw("x").write();
        let writer = std::thread::spawn(move || request.blocking().acquire().unwrap());
        eventually("new readers are refused", || a.rw("x").read().blocking().try_acquire().is_err());
        assert!(b.rw("x").read().blocking().try_acquire().is_err() || std::ptr::eq(writers, &a));
        drop(reader);
        drop(writer.join().unwrap());
        world.assert_no_leftovers();
    }
}

#[test]
fn permits_are_counted_across_clients() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let one = a.semaphore("x", 3).blocking().try_acquire().unwrap();
    let two = b.semaphore("x", 3).permits(2).blocking().try_acquire().unwrap();
    for locks in [&a, &b] {
        assert!(locks.semaphore("x", 3).blocking().try_acquire().unwrap_err().is_taken());
    }
    drop(two);
    let again = a.semaphore("x", 3).permits(2).blocking().try_acquire().unwrap();
    drop((one, again));
    world.assert_no_leftovers();
}

#[test]
fn two_limits_or_kinds_on_one_name_are_misconfigured() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let permit = a.semaphore("x", 3).blocking().acquire().unwrap();
    for locks in [&a, &b] {
        for request in [locks.semaphore("x", 4), locks.mutex("x"), locks.rw("x").read()] {
            let error = request.blocking().acquire().unwrap_err();
            assert!(error.is_misconfigured(), "{error:?}");
        }
    }
    drop(permit);
    assert!(b.semaphore("x", 4).blocking().try_acquire().is_ok(), "an unused name takes any limit");
}

#[test]
fn waiting_readers_are_granted_together() {
    let world = World::new();
    let locks = world.client();
    let writer = locks.rw("x").write().blocking().acquire().unwrap();
    let both_in = std::sync::Arc::new(std::sync::Barrier::new(5));
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let request = locks.rw("x").read();
            let both_in = both_in.clone();
            std::thread::spawn(move || {
                let guard = request.blocking().acquire_within(PATIENCE).unwrap();
                // This returns only if all five hold at once.
                both_in.wait();
                drop(guard);
            })
        })
        .collect();
    let other = world.client();
    assert_eq!(waiter_count(&other, "x"), 0, "while this process holds, its waiters cost the engine nothing");
    drop(writer);
    for reader in readers {
        reader.join().unwrap();
    }
    world.assert_no_leftovers();
}

#[test]
fn a_reader_behind_a_cancelled_writer_is_granted() {
    let world = World::new();
    let (a, b) = (world.client(), world.client());
    let reader = b.rw("x").read().blocking().acquire().unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let mut writer = Box::pin(a.rw("x").write().acquire());
    assert!(writer.as_mut().poll(&mut context).is_pending());
    eventually("the writer is queued", || waiter_count(&b, "x") == 1);
    let mut next = Box::pin(a.rw("x").read().acquire_within(PATIENCE));
    assert!(next.as_mut().poll(&mut context).is_pending());
    drop(writer);
    let next = pollster::block_on(next).unwrap();
    assert!(reader.check() && next.check());
    drop((reader, next));
    world.assert_no_leftovers();
}
