//! The memory that a hold of the memory engine takes. Alone in its file, because it measures the whole process.
#![cfg(all(feature = "memory", target_os = "linux"))]
#![expect(clippy::unwrap_used, reason = "a test")]

use std::{
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use leasehold_core::{
    Answer, BoxFuture, Claim, ClaimId, Clock, Engine, How, Instant, Lineage, Mode, Name, Previous, Release,
    memory::{MemoryEngine, MemoryStore},
};

const HOLDS: u64 = 100_000;

/// The bytes that a hold may take in the store and the lock state together, including its name.
const LIMIT: u64 = 400;

struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(1_000_000_000)
    }
}

#[test]
fn a_hold_costs_less_than_400_bytes_and_a_released_one_nothing() {
    let store = MemoryStore::new(Lineage::new(1), Arc::new(StoppedClock));
    let engine = MemoryEngine::new(Arc::clone(&store));
    let owner: Arc<str> = "user@host:1234".into();
    let before = resident();
    for number in 0..HOLDS {
        let answer = now(engine.claim(&claim(number, &owner), How::Create));
        assert!(matches!(answer, Ok(Answer::Held(_))));
    }
    let each = (resident() - before) / HOLDS;
    println!("{each} bytes for each of {HOLDS} holds");
    assert!(each > 100, "{each} bytes a hold cannot be: the measure is broken");
    assert!(each < LIMIT, "{each} bytes a hold");

    for number in 0..HOLDS {
        let Claim { id, name, mode, .. } = claim(number, &owner);
        let release = Release { id, name, mode, token: None, ended: Previous::Clean, min_hold: None };
        now(engine.release(&[release]));
    }
    assert!(store.leftovers().iter().all(|left| left.ends_with("dead claims")), "{:?}", store.leftovers());
}

fn claim(number: u64, owner: &Arc<str>) -> Claim {
    Claim {
        id: ClaimId((u128::from(number) + 1).to_be_bytes()),
        name: Name::new(&format!("account/{number:08}")).unwrap(),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(30),
        claim_time: Duration::from_secs(2),
        may_queue: true,
        tokens: 65,
        owner: Arc::clone(owner),
        stops_on_term: false,
    }
}

fn now<T>(mut verb: BoxFuture<'_, T>) -> T {
    match verb.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the memory engine answers at once"),
    }
}

/// The resident memory of this process as the kernel counts it, with the overhead of allocator and tables.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
