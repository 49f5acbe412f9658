//! Callbacks for lost holds: called once, with the reason, and on a thread where they may block.

use std::{
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use leasehold_core::{Guard, Locks, Loss};

use crate::{PATIENCE, World, eventually};

const TTL: Duration = Duration::from_millis(150);
/// Long enough not to lapse during a test.
const LONG: Duration = Duration::from_secs(600);

fn fixed(locks: &Locks, name: &str, ttl: Duration) -> Guard {
    locks.mutex(name).ttl(ttl).renew(false).blocking().acquire().unwrap()
}

/// Receives the reason when the hold is lost. The channel closes when no callback is left.
fn listen(guard: &Guard) -> Receiver<Loss> {
    let (sender, losses) = channel();
    guard.on_lost(move |loss| sender.send(loss).unwrap()).unwrap();
    losses
}

fn assert_once(losses: &Receiver<Loss>, expected: Loss) {
    assert_eq!(losses.recv_timeout(PATIENCE), Ok(expected));
    assert!(losses.recv_timeout(PATIENCE).is_err(), "called twice");
}

#[test]
fn a_loss_calls_each_callback_once_with_its_reason() {
    let world = World::new();
    let locks = world.client();
    let guard = fixed(&locks, "x", TTL);
    let losses = [listen(&guard), listen(&guard)];
    losses.iter().for_each(|losses| assert_once(losses, Loss::Lapsed));
    assert!(!guard.check());
    assert_once(&listen(&guard), Loss::Lapsed);
    drop(guard);
    let guard = locks.mutex("y").max_hold(TTL).blocking().acquire().unwrap();
    assert_once(&listen(&guard), Loss::MaxHold);
}

#[test]
fn a_released_hold_calls_no_callback() {
    let world = World::new();
    let locks = world.client();
    let (released, dropped) = (fixed(&locks, "x", LONG), fixed(&locks, "y", LONG));
    let losses = [listen(&released), listen(&dropped)];
    released.release_blocking().unwrap();
    drop(dropped);
    // The callbacks were not called, and none is left that could be called later.
    for losses in losses {
        assert!(losses.recv_timeout(PATIENCE).is_err(), "called after all");
    }
}

#[test]
fn a_callback_that_blocks_or_panics_delays_no_renewal() {
    let world = World::new();
    let locks = world.client();
    let (first, second) = (fixed(&locks, "x", TTL), fixed(&locks, "y", TTL));
    let renewed = locks.mutex("z").ttl(TTL).blocking().acquire().unwrap();
    let (entered, entry): (Sender<()>, _) = channel();
    let (open, gate): (Sender<()>, Receiver<()>) = channel();
    first
        .on_lost(move |_| {
            entered.send(()).unwrap();
            gate.recv_timeout(LONG).unwrap();
            panic!("in code of the user");
        })
        .unwrap();
    entry.recv_timeout(PATIENCE).unwrap();
    let losses = listen(&second);
    assert_eq!(pollster::block_on(second.lost()), Loss::Lapsed, "the future resolves at once");
    let left = renewed.remaining();
    eventually("it is renewed meanwhile", || renewed.remaining() > left || !renewed.check());
    fixed(&locks, "a", LONG).release_blocking().unwrap();
    assert!(losses.try_recv().is_err(), "it waits for the other callback");
    open.send(()).unwrap();
    assert_once(&losses, Loss::Lapsed);
}
