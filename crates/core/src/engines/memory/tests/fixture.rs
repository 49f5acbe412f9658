//! A store with a manual clock, and its clients.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    Answer, BoxFuture, Broken, Claim, ClaimId, Clock, Engine, EngineError, Grant, Hold, How, Inspect,
    Instant, Lineage, Mode, Name, Notification, Previous, Release, Released, Renewed, Token, View,
    driver::keeper::poll_once,
    engines::memory::{MemoryEngine, MemoryStore},
};

pub(super) const TTL: Duration = Duration::from_secs(30);
pub(super) const CLAIM_TIME: Duration = Duration::from_secs(2);

/// A clock that tests move.
#[derive(Default)]
pub(super) struct ManualClock(AtomicU64);

impl ManualClock {
    pub(super) fn advance(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// An empty store and its clock.
pub(super) fn store() -> (Arc<MemoryStore>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    clock.advance(Duration::from_secs(1));
    (MemoryStore::new(Lineage::new(7), Arc::clone(&clock) as _), clock)
}

/// One client, as another process would be.
pub(super) struct Client(pub(super) MemoryEngine);

impl Client {
    /// A new client of `store`.
    pub(super) fn of(store: &Arc<MemoryStore>) -> Self {
        Self(MemoryEngine::new(Arc::clone(store)))
    }

    pub(super) fn call(&self, claim: &Claim, how: How) -> Result<Answer, EngineError> {
        ready_answer(self.0.claim(claim, how))
    }

    /// Claims the name `n`, as claim `number`.
    pub(super) fn create(&self, number: u8) -> Answer {
        self.call(&claim(number, "n"), How::Create).unwrap()
    }

    pub(super) fn ask(&self, number: u8) -> Answer {
        self.call(&claim(number, "n"), How::Ask).unwrap()
    }

    pub(super) fn hold(&self, number: u8) -> Grant {
        held(self.create(number))
    }

    pub(super) fn wait(&self, number: u8) {
        let answer = self.create(number);
        assert!(matches!(answer, Answer::Waiting(_)), "{answer:?}");
    }

    pub(super) fn renew(&self, number: u8, token: Token) -> Renewed {
        let hold = Hold { id: id(number), name: name("n"), mode: Mode::Exclusive, token, ttl: TTL };
        ready_answer(self.0.renew(&[hold])).pop().unwrap()
    }

    pub(super) fn release(&self, release: Release) -> bool {
        match ready_answer(self.0.release(&[release])).pop().unwrap() {
            Released::Freed => true,
            Released::NotThere => false,
            Released::Unknown(error) => panic!("{error}"),
        }
    }

    pub(super) fn show(&self) -> View {
        ready_answer(self.0.show(&name("n"))).unwrap()
    }

    pub(super) fn break_hold(&self, token: u64, force: bool) -> Broken {
        ready_answer(self.0.break_hold(&name("n"), token, force)).unwrap()
    }

    /// The unread notifications; empty if there are none.
    pub(super) fn notifications(&self) -> Vec<Notification> {
        poll_once(self.0.notifications().as_mut()).unwrap_or_default()
    }

    /// The grant in the only notification; fails if there is none or another one.
    pub(super) fn granted(&self) -> (ClaimId, Grant, Option<Instant>) {
        match self.notifications().as_slice() {
            [Notification::Granted { id, grant, since, .. }] => (*id, grant.clone(), *since),
            other => panic!("{other:?}"),
        }
    }
}

/// The answer of a verb; fails unless it is ready at the first poll.
pub(super) fn ready_answer<T>(mut verb: BoxFuture<'_, T>) -> T {
    poll_once(verb.as_mut()).expect("done at the first poll")
}

pub(super) fn held(answer: Answer) -> Grant {
    match answer {
        Answer::Held(grant) => grant,
        other => panic!("not held: {other:?}"),
    }
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(super) fn id(number: u8) -> ClaimId {
    ClaimId([number; 16])
}

/// A claim whose id and owner are made from `number`.
pub(super) fn claim(number: u8, name_text: &str) -> Claim {
    Claim {
        id: id(number),
        name: name(name_text),
        mode: Mode::Exclusive,
        ttl: TTL,
        claim_time: CLAIM_TIME,
        may_queue: true,
        tokens: 1,
        owner: format!("owner {number}").into(),
        stops_on_term: false,
    }
}

/// The release of claim `number` on the name `n`.
pub(super) fn release(number: u8, token: impl Into<Option<Token>>) -> Release {
    let token = token.into();
    Release {
        id: id(number),
        name: name("n"),
        mode: Mode::Exclusive,
        token,
        ended: Previous::Clean,
        min_hold: None,
    }
}
