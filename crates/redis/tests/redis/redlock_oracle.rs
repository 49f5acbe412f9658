//! Several clients send random tries, renewals, releases, breaks and views, and a Redlock gives the same answers as the
//! memory engine, which is the oracle. No lease ends and no node fails here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, ClaimId, Engine, Grant, Hold, How, Lineage, Mode, Name, Previous, Release, Released,
    Renewed,
    memory::{MemoryEngine, MemoryStore},
};
use leasehold_testkit::oracle::StoppedClock;
use proptest::prelude::*;

use crate::redlock_rig::RedlockRig;

const CLIENTS: usize = 3;
const NAMES: usize = 2;
/// The number of claims in one run: there are few, so that many requests are about the same claim.
const CLAIMS: usize = 8;
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
enum Step {
    Claim { number: usize, asks: bool },
    Renew { number: usize, wrong: bool },
    Release { number: usize, with_token: bool, wrong: bool },
    Break { number: usize, force: bool },
    Look { name: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0..CLAIMS;
    prop_oneof![
        6 => (number.clone(), prop::bool::weighted(0.2)).prop_map(|(number, asks)| Step::Claim { number, asks }),
        1 => (number.clone(), any::<bool>()).prop_map(|(number, wrong)| Step::Renew { number, wrong }),
        5 => (number.clone(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(number, with_token, wrong)| Step::Release { number, with_token, wrong }),
        1 => (number, any::<bool>()).prop_map(|(number, force)| Step::Break { number, force }),
        1 => (0..NAMES).prop_map(|name| Step::Look { name }),
    ]
}

/// One engine: its clients, and the last grant of each claim.
struct System {
    clients: Vec<Arc<dyn Engine>>,
    grants: [Option<Grant>; CLAIMS],
}

impl System {
    fn client(&self, number: usize) -> &dyn Engine {
        &*self.clients[number % CLIENTS]
    }

    /// The answer, without the parts that may differ between the engines.
    async fn step(&mut self, step: &Step, claims: &[Claim], names: &[Name]) -> String {
        match *step {
            Step::Claim { number, asks } => {
                let how = if asks { How::Ask } else { How::Create };
                match self.client(number).claim(&claims[number], how).await {
                    Ok(Answer::Held(grant)) => {
                        let name = &claims[number].name;
                        // A repeated request of a claim gets a larger token if a majority of the nodes does not
                        // confirm in time that they kept its lock (decision 0018), as on a busy machine.
                        let is_other =
                            |(other, claim): &(usize, &Claim)| *other != number && claim.name == *name;
                        let others = claims.iter().enumerate().filter(is_other);
                        let earlier = |old: &&Grant| old.token.number < grant.token.number;
                        let rank = others
                            .filter_map(|(other, _)| self.grants[other].as_ref())
                            .filter(earlier)
                            .count();
                        self.grants[number] = Some(grant);
                        format!("held after {rank}")
                    }
                    Ok(Answer::Taken(_)) => "taken".to_owned(),
                    Ok(Answer::Gone) => "gone".to_owned(),
                    other => format!("{other:?}"),
                }
            }
            Step::Renew { number, wrong } => {
                let Some(grant) = &self.grants[number] else { return String::new() };
                let mut token = grant.token;
                token.number += u64::from(wrong);
                let Claim { id, name, mode, ttl, .. } = claims[number].clone();
                match &self.client(number).renew(&[Hold { id, name, mode, token, ttl }]).await[..] {
                    [Renewed::Extended { .. }] => "extended".to_owned(),
                    [Renewed::Lost(_)] => "lost".to_owned(),
                    other => format!("{other:?}"),
                }
            }
            Step::Release { number, with_token, wrong } => {
                let mut token = self.grants[number].as_ref().filter(|_| with_token).map(|grant| grant.token);
                token.iter_mut().for_each(|token| token.number += u64::from(wrong));
                let Claim { id, name, mode, .. } = claims[number].clone();
                let release = Release { id, name, mode, token, ended: Previous::Clean, min_hold: None };
                match &self.client(number).release(&[release]).await[..] {
                    [Released::Freed] => "freed".to_owned(),
                    [Released::NotThere] => "not there".to_owned(),
                    other => format!("{other:?}"),
                }
            }
            Step::Break { number, force } => {
                let Some(grant) = &self.grants[number] else { return String::new() };
                let broken =
                    self.client(number + 1).break_hold(&claims[number].name, grant.token.number, force).await;
                broken.map_or_else(|error| format!("{error:?}"), |broken| format!("{broken:?}"))
            }
            Step::Look { name } => {
                let view = match self.client(0).show(&names[name]).await {
                    Ok(view) => view,
                    Err(error) => return format!("{error:?}"),
                };
                let holders: Vec<_> =
                    view.holders.into_iter().map(|holder| (holder.id, holder.owner)).collect();
                format!("{holders:?}")
            }
        }
    }
}

#[test]
fn a_redlock_agrees_with_the_memory_engine() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let rig = RedlockRig::new(3);
    let engines: Vec<Arc<dyn Engine>> = (0..CLIENTS).map(|_| rig.engine() as Arc<dyn Engine>).collect();
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    let (kinds, steps) = (prop::collection::vec(0..NAMES, CLAIMS), prop::collection::vec(step(), 1..60));
    proptest!(config, |(kinds in kinds, steps in steps)| {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let begin = std::time::Instant::now();
        let store = MemoryStore::new(Lineage::new(1), Arc::new(StoppedClock));
        let memory = (0..CLIENTS).map(|_| Arc::new(MemoryEngine::new(Arc::clone(&store))) as Arc<dyn Engine>).collect();
        let mut oracle = System { clients: memory, grants: Default::default() };
        let mut tested = System { clients: engines.clone(), grants: Default::default() };
        let names: Vec<Name> = (0..NAMES).map(|name| Name::new(&format!("run-{run}-{name}")).unwrap()).collect();
        let claims: Vec<Claim> = kinds.iter().enumerate().map(|(number, name)| Claim {
            id: ClaimId((u128::from(run + 1) << 64 | number as u128).to_be_bytes()),
            name: names[*name].clone(),
            mode: Mode::Exclusive,
            ttl: LONG,
            claim_time: LONG,
            may_queue: false,
            tokens: 1,
            owner: format!("owner {number}").into(),
            stops_on_term: false,
        }).collect();
        rig.run(async {
            for (position, step) in steps.iter().enumerate() {
                let expected = oracle.step(step, &claims, &names).await;
                let actual = tested.step(step, &claims, &names).await;
                // If the machine stalled, answers may be late, or tombstones may have expired: such a run does not
                // count.
                prop_assume!(begin.elapsed() < engines[0].profile().request_life && !actual.contains("Error"));
                prop_assert_eq!(&expected, &actual, "step {} {:?}", position, step);
            }
            Ok(())
        })?;
    });
}
