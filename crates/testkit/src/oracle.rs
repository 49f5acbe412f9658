//! Sends the same random requests to an engine and to the memory engine, and compares the answers. The requests are
//! claims, asks, releases, renewals and reads of a lock's state, by several clients. How the previous hold ended is not
//! compared, because not all engines report it. If the engine has no other mode, all claims are exclusive. Times are
//! not compared either; the conformance suite tests expiry. If the engine takes several names in one step, requests for
//! all names are among the random ones; if it converts holds, so are conversions.

mod sets;

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use leasehold_core::{
    Answer, Claim, ClaimId, Clock, Engine, Fault, Hold, How, Instant, Lineage, Mode, Modes, Name, Previous,
    Release, Released, Renewed, Token,
    memory::{MemoryEngine, MemoryStore},
};
use proptest::prelude::*;
pub use sets::{SetReply, Sets, takes_sets};
use tokio::runtime::Runtime;

const CLIENTS: usize = 3;
const NAMES: usize = 2;
/// The number of claims in one run: few, so that the claims conflict.
const CLAIMS: usize = 12;
/// Added to a token to make a wrong one.
const WRONG_TOKEN_OFFSET: u64 = 1_000_000;
const HOUR: std::time::Duration = std::time::Duration::from_secs(3600);

/// A clock that does not move, so that the memory engine forgets nothing.
#[derive(Clone, Copy, Debug)]
pub struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(HOUR.as_nanos() as u64)
    }
}

/// The moment at which a waiting claim is granted a released name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granting {
    /// In the step of the release itself. The grant is then visible to all clients.
    AtOnce,
    /// When the waiting claim asks: permits, or all claims. Therefore the comparison lets all waiting claims ask after
    /// each release, until no more are granted.
    WhenAsked,
}

/// One random request. `index` is the number of the claim; `name` is the number of the name.
#[derive(Clone, Debug)]
enum Step {
    Claim {
        index: usize,
        asks: bool,
    },
    Renew {
        index: usize,
        wrong_token: bool,
    },
    Release {
        index: usize,
        with_token: bool,
        wrong_token: bool,
    },
    Show {
        name: usize,
    },
    /// Makes the hold shared.
    Downgrade {
        index: usize,
    },
    /// Makes the hold exclusive, by a new claim.
    Upgrade {
        index: usize,
    },
    /// New claims of all names in one step, each in its mode.
    Set {
        modes: Vec<Mode>,
    },
    /// Releases one of the holds of such claims, or of a claim of an upgrade.
    ReleaseOfSet {
        number: usize,
    },
}

/// The number of the name, the mode, and whether the claim may queue.
type Kind = (usize, Mode, bool);

/// A kind that an engine with these modes can grant.
fn kind(modes: Modes) -> impl Strategy<Value = Kind> {
    (0..NAMES, mode(modes), prop::bool::weighted(0.8))
}

/// A mode that an engine with these modes can grant.
fn mode(modes: Modes) -> impl Strategy<Value = Mode> {
    let mode = prop_oneof![
        4 => Just(Mode::Exclusive),
        4 => Just(Mode::Shared),
        4 => (1_u32..=3).prop_map(|count| Mode::Permits { count, limit: 3 }),
        1 => Just(Mode::Permits { count: 1, limit: 2 }),
    ];
    mode.prop_map(move |mode| if modes == Modes::All { mode } else { Mode::Exclusive })
}

fn step(modes: Modes) -> impl Strategy<Value = Step> {
    let index = 0..CLAIMS;
    prop_oneof![
        6 => (index.clone(), prop::bool::weighted(0.4)).prop_map(|(index, asks)| Step::Claim { index, asks }),
        1 => (index.clone(), any::<bool>()).prop_map(|(index, wrong_token)| Step::Renew { index, wrong_token }),
        4 => (index.clone(), prop::bool::weighted(0.8), prop::bool::weighted(0.1))
            .prop_map(|(index, with_token, wrong_token)| Step::Release { index, with_token, wrong_token }),
        1 => (0..NAMES).prop_map(|name| Step::Show { name }),
        1 => index.clone().prop_map(|index| Step::Downgrade { index }),
        1 => index.clone().prop_map(|index| Step::Upgrade { index }),
        2 => prop::collection::vec(mode(modes), NAMES).prop_map(|modes| Step::Set { modes }),
        2 => index.prop_map(|number| Step::ReleaseOfSet { number }),
    ]
}

/// One system with its clients, and the last grant of each claim.
struct System {
    clients: Vec<Arc<dyn Engine>>,
    tokens: [Option<Token>; CLAIMS],
    /// Whether each claim was waiting after its last request.
    waiting: [bool; CLAIMS],
    granting: Granting,
    sets: Sets,
}

/// An answer, without the parts in which two correct engines may differ.
#[derive(Debug, PartialEq)]
enum Reply {
    /// The claim holds the name. `rank` is the number of known grants of the name with smaller tokens.
    Held {
        rank: usize,
    },
    Waiting,
    Taken,
    Gone,
    Error(Fault),
    Extended(bool),
    Freed(bool),
    /// The ids of the holders, and of the waiters in order.
    Seen(Vec<String>, Vec<String>),
    Set(SetReply),
    /// Whether the hold was upgraded; `None`: it was lost.
    Upgraded(Option<bool>),
    /// Nothing was sent, because the claim has no token, or no claim of a set holds.
    Nothing,
}

impl System {
    fn new(clients: Vec<Arc<dyn Engine>>, granting: Granting) -> Self {
        Self {
            clients,
            tokens: Default::default(),
            waiting: Default::default(),
            granting,
            sets: Sets::default(),
        }
    }

    /// If a waiting claim is granted only when it asks, lets all waiting claims ask until no more are granted.
    /// Otherwise does nothing.
    async fn ask_until_stable(&mut self, claims: &[Claim], names: &[Name]) {
        let mut granted = self.granting == Granting::WhenAsked;
        while std::mem::take(&mut granted) {
            for index in (0..CLAIMS).filter(|&index| self.waiting[index]).collect::<Vec<_>>() {
                let ask = Step::Claim { index, asks: true };
                granted |= matches!(Box::pin(self.step(&ask, claims, names)).await, Reply::Held { .. });
            }
        }
    }

    /// Sends one request and returns the answer without the parts in which two correct engines may differ.
    async fn step(&mut self, step: &Step, claims: &[Claim], names: &[Name]) -> Reply {
        match *step {
            Step::Claim { index, asks } => {
                let how = if asks { How::Ask } else { How::Create };
                let answer = self.client(index).claim(&claims[index], how).await;
                self.waiting[index] = matches!(answer, Ok(Answer::Waiting(_)));
                match answer {
                    Ok(Answer::Held(grant)) => {
                        let others = claims.iter().zip(&self.tokens);
                        let others = others.filter(|(claim, _)| claim.name == claims[index].name);
                        let earlier = |old: &&Token| old.number < grant.token.number;
                        let rank = others.filter_map(|(_, token)| token.as_ref()).filter(earlier).count();
                        self.tokens[index] = Some(grant.token);
                        Reply::Held { rank }
                    }
                    Ok(Answer::Waiting(_)) => Reply::Waiting,
                    Ok(Answer::Taken(_)) => Reply::Taken,
                    Ok(Answer::Gone) => Reply::Gone,
                    Err(error) => Reply::Error(error.fault),
                }
            }
            Step::Renew { index, wrong_token } => {
                let Some(mut token) = self.tokens[index] else { return Reply::Nothing };
                token.number += WRONG_TOKEN_OFFSET * u64::from(wrong_token);
                let Claim { id, name, mode, ttl, .. } = claims[index].clone();
                let renewed = self.client(index).renew(&[Hold { id, name, mode, token, ttl }]).await;
                Reply::Extended(matches!(renewed[..], [Renewed::Extended { .. }]))
            }
            Step::Release { index, with_token, wrong_token } => {
                let mut token = self.tokens[index].filter(|_| with_token);
                token
                    .iter_mut()
                    .for_each(|token| token.number += WRONG_TOKEN_OFFSET * u64::from(wrong_token));
                let Claim { id, name, mode, .. } = claims[index].clone();
                let release = Release { id, name, mode, token, ended: Previous::Clean, min_hold: None };
                self.waiting[index] = false;
                let answer = match &self.client(index).release(&[release]).await[..] {
                    [Released::Freed] => Reply::Freed(true),
                    [Released::NotThere] => Reply::Freed(false),
                    other => panic!("{other:?}"),
                };
                self.ask_until_stable(claims, names).await;
                answer
            }
            Step::Show { name } => {
                let view = self.client(0).show(&names[name]).await.expect("the system can be looked at");
                let mut held: Vec<_> = view.holders.into_iter().map(|holder| holder.id).collect();
                held.sort();
                Reply::Seen(held, view.waiters.into_iter().map(|waiter| waiter.id).collect())
            }
            Step::Downgrade { index } => {
                let Some((index, hold)) = self.lock_hold(claims, index) else { return Reply::Nothing };
                let Some(conversions) = self.client(index).conversions() else { return Reply::Nothing };
                let renewed = conversions.downgrade(&hold).await;
                Reply::Extended(matches!(renewed, Renewed::Extended { .. }))
            }
            Step::Upgrade { index } => {
                let Some((index, hold)) = self.lock_hold(claims, index) else { return Reply::Nothing };
                let engine = Arc::clone(&self.clients[index % CLIENTS]);
                Reply::Upgraded(self.sets.upgrade(&*engine, &hold, &claims[index]).await)
            }
            Step::Set { ref modes } => {
                let engine = Arc::clone(&self.clients[0]);
                let reply = self.sets.claim(&*engine, names, modes, &claims[0]).await;
                Reply::Set(reply.without_details())
            }
            Step::ReleaseOfSet { number } => {
                // On some engines only the client of a claim knows of the claim.
                let engine = Arc::clone(&self.clients[0]);
                let released = self.sets.release_one(&*engine, number).await;
                self.ask_until_stable(claims, names).await;
                released.map_or(Reply::Nothing, Reply::Freed)
            }
        }
    }

    /// The last hold of one of the claims of locks that were granted, and the index of this claim.
    fn lock_hold(&self, claims: &[Claim], number: usize) -> Option<(usize, Hold)> {
        let granted: Vec<(usize, Token)> = (0..CLAIMS)
            .filter(|&index| claims[index].mode.limit().is_none())
            .filter_map(|index| Some((index, self.tokens[index]?)))
            .collect();
        let &(index, token) = granted.get(number % granted.len().max(1))?;
        let Claim { id, name, mode, ttl, .. } = claims[index].clone();
        Some((index, Hold { id, name, mode, token, ttl }))
    }

    fn client(&self, index: usize) -> &dyn Engine {
        &*self.clients[index % CLIENTS]
    }
}

/// Sends random requests until the clients of the engine under test have answered many of them like the memory engine.
///
/// # Panics
/// If an answer differs. The message has a minimal list of requests.
pub fn compare_with_memory_engine(granting: Granting, client: impl Fn() -> Arc<dyn Engine>) {
    let runs = AtomicU32::new(0);
    let runtime = Runtime::new().expect("a runtime needs nothing but a few threads and descriptors");
    let clients: Vec<Arc<dyn Engine>> = (0..CLIENTS).map(|_| client()).collect();
    let modes = clients[0].profile().modes;
    let config = ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(kinds in prop::collection::vec(kind(modes), CLAIMS), steps in prop::collection::vec(step(modes), 1..120))| {
        let run = runs.fetch_add(1, Ordering::Relaxed);
        let begin = std::time::Instant::now();
        let store = MemoryStore::new(Lineage::new(1), Arc::new(StoppedClock));
        let memory = (0..CLIENTS).map(|_| Arc::new(MemoryEngine::new(Arc::clone(&store))) as Arc<dyn Engine>).collect();
        let mut oracle = System::new(memory, granting);
        let mut tested = System::new(clients.clone(), granting);
        let names: Vec<Name> = (0..NAMES).map(|name| Name::new(&format!("run-{run}-{name}")).expect("it is short and plain")).collect();
        let claims: Vec<Claim> = kinds.iter().enumerate().map(|(number, &(name, mode, may_queue))| Claim {
            id: ClaimId((u128::from(run + 1) << 64 | number as u128).to_be_bytes()),
            name: names[name].clone(),
            mode: if modes == Modes::All { mode } else { Mode::Exclusive },
            ttl: HOUR,
            claim_time: HOUR,
            may_queue,
            tokens: 1,
            owner: format!("owner {number}").into(),
            stops_on_term: false,
        }).collect();
        let takes_sets = takes_sets(&*clients[0], &names);
        let converts = clients[0].conversions().is_some();
        let is_possible = |step: &&Step| match step {
            Step::Set { .. } => takes_sets,
            Step::Downgrade { .. } | Step::Upgrade { .. } => converts,
            _ => true,
        };
        runtime.block_on(async {
            for (step_number, step) in steps.iter().filter(is_possible).enumerate() {
                let wanted = oracle.step(step, &claims, &names).await;
                let got = tested.step(step, &claims, &names).await;
                // If the machine stalled, the system may have dropped its tombstones.
                prop_assume!(begin.elapsed() < clients[0].profile().request_life);
                prop_assert_eq!(&wanted, &got, "step {} {:?}", step_number, step);
            }
            Ok(())
        })?;
    });
}
