//! Several clients send random claims, renewals, releases, breaks and views, and the Redis engine gives the same
//! answers as the memory engine, which is the oracle. No lease ends here; the conformance suite covers the expiry of
//! leases.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use leasehold_core::{
    Answer, Claim, ClaimId, Engine, Grant, Hold, How, Lineage, Mode, Name, Previous, Release, Released,
    Renewed, View,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_redis::RedisEngine;
use leasehold_testkit::oracle::{SetReply, Sets, StoppedClock, takes_sets};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::rig::Rig;

const CLIENTS: usize = 3;
const NAMES: usize = 2;
/// The number of claims in one run: there are few, so that many requests are about the same claim.
const CLAIMS: usize = 12;
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

#[derive(Clone, Debug)]
enum Step {
    Claim {
        number: usize,
        asks: bool,
    },
    Renew {
        number: usize,
        wrong: bool,
    },
    Release {
        number: usize,
        with_token: bool,
        wrong: bool,
        abandoned: bool,
        min_hold: bool,
    },
    Break {
        number: usize,
        force: bool,
    },
    Look,
    /// New claims of all names in one step.
    Set {
        modes: Vec<Mode>,
        tokens: u32,
    },
    /// Releases one of the holds of such claims.
    ReleaseOfSet {
        number: usize,
    },
}

#[derive(Clone, Debug)]
struct Kind {
    name: usize,
    mode: Mode,
    may_queue: bool,
    tokens: u32,
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        4 => Just(Mode::Exclusive),
        4 => Just(Mode::Shared),
        2 => (1_u32..=3).prop_map(|count| Mode::Permits { count, limit: 3 }),
        1 => Just(Mode::Permits { count: 1, limit: 2 }),
    ]
}

fn kind() -> impl Strategy<Value = Kind> {
    (0..NAMES, mode(), any::<bool>(), 1_u32..5).prop_map(|(name, mode, may_queue, tokens)| Kind {
        name,
        mode,
        may_queue: may_queue || tokens > 1,
        tokens,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let rarely = || prop::bool::weighted(0.1);
    let number = 0..CLAIMS;
    prop_oneof![
        6 => (number.clone(), prop::bool::weighted(0.2)).prop_map(|(number, asks)| Step::Claim { number, asks }),
        1 => (number.clone(), any::<bool>()).prop_map(|(number, wrong)| Step::Renew { number, wrong }),
        5 => (number.clone(), prop::bool::weighted(0.8), rarely(), any::<bool>(), rarely()).prop_map(
            |(number, with_token, wrong, abandoned, min_hold)| Step::Release {
                number, with_token, wrong, abandoned, min_hold,
            },
        ),
        1 => (number.clone(), any::<bool>()).prop_map(|(number, force)| Step::Break { number, force }),
        1 => Just(Step::Look),
        3 => (prop::collection::vec(mode(), NAMES), 1_u32..5)
            .prop_map(|(modes, tokens)| Step::Set { modes, tokens }),
        2 => number.prop_map(|number| Step::ReleaseOfSet { number }),
    ]
}

/// One engine: its clients, the last grant of each claim, and the holds of sets.
struct System {
    clients: Vec<Arc<dyn Engine>>,
    tokens: [Option<Grant>; CLAIMS],
    sets: Sets,
}

/// The content of an answer, without the parts that may differ between the engines.
#[derive(Debug, PartialEq)]
enum Reply {
    /// `rank`: how many known grants of the name have smaller tokens.
    Held {
        tokens: u32,
        previous: Previous,
        rank: usize,
    },
    Waiting(Option<u32>),
    Taken(Option<u32>),
    Gone,
    Error(leasehold_core::Fault),
    Other(String),
    Set(SetReply),
    Seen(Option<Mode>, Vec<(String, String)>, Vec<String>),
}

impl System {
    fn new(clients: Vec<Arc<dyn Engine>>) -> Self {
        Self { clients, tokens: Default::default(), sets: Sets::default() }
    }

    async fn step(&mut self, step: &Step, claims: &[Claim], names: &[Name]) -> Reply {
        match *step {
            Step::Claim { number, asks } => {
                let how = if asks { How::Ask } else { How::Create };
                match self.client(number).claim(&claims[number], how).await {
                    Ok(Answer::Held(grant)) => {
                        let name = &claims[number].name;
                        let others = claims.iter().zip(&self.tokens).filter(|(claim, _)| claim.name == *name);
                        let earlier = |old: &&Grant| old.token.number < grant.token.number;
                        let rank = others.filter_map(|(_, grant)| grant.as_ref()).filter(earlier).count();
                        let reply = Reply::Held { tokens: grant.tokens, previous: grant.previous, rank };
                        self.tokens[number] = Some(grant);
                        reply
                    }
                    Ok(Answer::Waiting(hint)) => Reply::Waiting(hint.ahead),
                    Ok(Answer::Taken(hint)) => Reply::Taken(hint.ahead),
                    Ok(Answer::Gone) => Reply::Gone,
                    Err(error) => Reply::Error(error.fault),
                }
            }
            Step::Renew { number, wrong } => {
                let Some(grant) = &self.tokens[number] else { return Reply::Other(String::new()) };
                let mut token = grant.token;
                token.number += u64::from(wrong);
                let Claim { id, name, mode, ttl, .. } = claims[number].clone();
                match &self.client(number).renew(&[Hold { id, name, mode, token, ttl }]).await[..] {
                    [Renewed::Extended { .. }] => Reply::Other("extended".to_owned()),
                    other => Reply::Other(format!("{other:?}")),
                }
            }
            Step::Release { number, with_token, wrong, abandoned, min_hold } => {
                let mut token = self.tokens[number].as_ref().filter(|_| with_token).map(|grant| grant.token);
                token.iter_mut().for_each(|token| token.number += u64::from(wrong));
                let Claim { id, name, mode, .. } = claims[number].clone();
                let ended = if abandoned { Previous::Abandoned } else { Previous::Clean };
                let min_hold = (min_hold && token.is_some()).then_some(HOUR);
                match &self
                    .client(number)
                    .release(&[Release { id, name, mode, token, ended, min_hold }])
                    .await[..]
                {
                    [Released::Freed] => Reply::Other("freed".to_owned()),
                    [Released::NotThere] => Reply::Other("not there".to_owned()),
                    other => Reply::Other(format!("{other:?}")),
                }
            }
            Step::Break { number, force } => {
                let Some(grant) = &self.tokens[number] else { return Reply::Other(String::new()) };
                let last = grant.token.number + u64::from(grant.tokens) - 1;
                let broken = self.client(number + 1).break_hold(&claims[number].name, last, force).await;
                Reply::Other(format!("{:?}", broken.unwrap()))
            }
            Step::Look => {
                let View { mode, holders, waiters, .. } = self.client(0).show(&claims[0].name).await.unwrap();
                let mut held: Vec<_> = holders
                    .into_iter()
                    .map(|holder| {
                        let is_min_hold = holder.owner == leasehold_core::lock_state::MIN_HOLD_OWNER;
                        (if is_min_hold { String::new() } else { holder.id }, holder.owner)
                    })
                    .collect();
                held.sort();
                Reply::Seen(mode, held, waiters.into_iter().map(|waiter| waiter.id).collect())
            }
            Step::Set { ref modes, tokens } => {
                let engine = Arc::clone(&self.clients[0]);
                let pattern = Claim { tokens, ..claims[0].clone() };
                Reply::Set(self.sets.claim(&*engine, names, modes, &pattern).await)
            }
            Step::ReleaseOfSet { number } => {
                let engine = Arc::clone(&self.clients[number % CLIENTS]);
                Reply::Other(format!("{:?}", self.sets.release_one(&*engine, number).await))
            }
        }
    }

    fn client(&self, number: usize) -> &dyn Engine {
        &*self.clients[number % CLIENTS]
    }
}

#[test]
fn redis_agrees_with_the_memory_engine() {
    let rig = Rig::new();
    compare_with_memory_engine(|| rig.engine(), 300);
}

pub(crate) fn compare_with_memory_engine(engine: impl Fn() -> Arc<RedisEngine>, cases: u32) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let runtime = Runtime::new().unwrap();
    let redis: Vec<Arc<dyn Engine>> = (0..CLIENTS).map(|_| engine() as Arc<dyn Engine>).collect();
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let (kinds, steps) = (prop::collection::vec(kind(), CLAIMS), prop::collection::vec(step(), 1..120));
    proptest!(config, |(kinds in kinds, steps in steps)| {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let begin = std::time::Instant::now();
        let store = MemoryStore::new(Lineage::new(1), Arc::new(StoppedClock));
        let memory = (0..CLIENTS).map(|_| Arc::new(MemoryEngine::new(Arc::clone(&store))) as Arc<dyn Engine>).collect();
        let mut oracle = System::new(memory);
        let mut tested = System::new(redis.clone());
        let names: Vec<Name> = (0..NAMES).map(|name| Name::new(&format!("run-{run}-{name}")).unwrap()).collect();
        let claims: Vec<Claim> = kinds.iter().enumerate().map(|(number, kind)| Claim {
            id: ClaimId((u128::from(run) << 64 | number as u128).to_be_bytes()),
            name: names[kind.name].clone(),
            mode: kind.mode,
            ttl: HOUR,
            claim_time: HOUR,
            may_queue: kind.may_queue,
            tokens: kind.tokens,
            owner: format!("owner {number}").into(),
            stops_on_term: false,
        }).collect();
        let takes_sets = takes_sets(&*redis[0], &names);
        let is_possible = |step: &&Step| takes_sets || !matches!(step, Step::Set { .. });
        runtime.block_on(async {
            for (position, step) in steps.iter().filter(is_possible).enumerate() {
                let (expected, actual) = (oracle.step(step, &claims, &names).await, tested.step(step, &claims, &names).await);
                // If the machine stalled, tombstones may have expired: such a run does not count.
                prop_assume!(begin.elapsed() < redis[0].profile().request_life);
                prop_assert_eq!(&expected, &actual, "step {} {:?}", position, step);
            }
            Ok(())
        })?;
    });
}
