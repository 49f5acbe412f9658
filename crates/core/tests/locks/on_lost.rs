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
    let (says, said) = channel();
    guard.on_lost(move |loss| says.send(loss).unwrap()).unwrap();
    said
}

fn assert_once(said: &Receiver<Loss>, expected: Loss) {
    assert_eq!(said.recv_timeout(PATIENCE), Ok(expected));
    assert!(said.recv_timeout(PATIENCE).is_err(), "called twice");
}

#[test]
fn a_loss_calls_each_callback_once_with_its_reason() {
    let world = World::new();
    let locks = world.client();
    let guard = fixed(&locks, "x", TTL);
    let said = [listen(&guard), listen(&guard)];
    said.iter().for_each(|said| assert_once(said, Loss::Lapsed));
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
    let said = [listen(&released), listen(&dropped)];
    released.release_blocking().unwrap();
    drop(dropped);
    // Not only not called yet: no callback is left that could be called later.
    for said in said {
        assert!(said.recv_timeout(PATIENCE).is_err(), "called after all");
    }
}

#[test]
fn a_callback_that_blocks_or_panics_delays_no_renewal() {
    let world = World::new();
    let locks = world.client();
    let (first, second) = (fixed(&locks, "x", TTL), fixed(&locks, "y", TTL));
    let kept = locks.mutex("z").ttl(TTL).blocking().acquire().unwrap();
    let (begun, begins): (Sender<()>, _) = channel();
    let (open, gate): (Sender<()>, Receiver<()>) = channel();
    first
        .on_lost(move |_| {
            begun.send(()).unwrap();
            gate.recv_timeout(LONG).unwrap();
            panic!("in code of the user");
        })
        .unwrap();
    begins.recv_timeout(PATIENCE).unwrap();
    let said = listen(&second);
    assert_eq!(pollster::block_on(second.lost()), Loss::Lapsed, "who awaits it is told at once");
    let left = kept.remaining();
    eventually("it is renewed meanwhile", || kept.remaining() > left || !kept.check());
    fixed(&locks, "a", LONG).release_blocking().unwrap();
    assert!(said.try_recv().is_err(), "it waits for the other call");
    open.send(()).unwrap();
    assert_once(&said, Loss::Lapsed);
}
