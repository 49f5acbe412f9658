//! A Redlock gives the same answers as the memory engine, which is the oracle, to random claims that may not wait,
//! renewals, releases, breaks and views of several clients. No lease ends and no node fails here.

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
use leasehold_testkit::oracle::Still;
use proptest::prelude::*;

use crate::redlock_rig::RedlockRig;

const CLIENTS: usize = 3;
const NAMES: usize = 2;
/// The number of claims in one run: few, so that many requests are about the same claim.
const CLAIMS: usize = 8;
const LONG: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
enum Step {
    Claim { who: usize, asks: bool },
    Renew { who: usize, wrong: bool },
    Release { who: usize, with_token: bool, wrong: bool },
    Break { who: usize, force: bool },
    Look { name: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..CLAIMS;
    prop_oneof![
        6 => (who.clone(), prop::bool::weighted(0.2)).prop_map(|(who, asks)| Step::Claim { who, asks }),
        1 => (who.clone(), any::<bool>()).prop_map(|(who, wrong)| Step::Renew { who, wrong }),
        5 => (who.clone(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(who, with_token, wrong)| Step::Release { who, with_token, wrong }),
        1 => (who, any::<bool>()).prop_map(|(who, force)| Step::Break { who, force }),
        1 => (0..NAMES).prop_map(|name| Step::Look { name }),
    ]
}

/// One engine: its clients, and the last grant of each claim.
struct Side {
    clients: Vec<Arc<dyn Engine>>,
    grants: [Option<Grant>; CLAIMS],
}

impl Side {
    fn client(&self, who: usize) -> &dyn Engine {
        &*self.clients[who % CLIENTS]
    }

    /// The answer, without the parts that may differ.
    async fn step(&mut self, step: &Step, claims: &[Claim], names: &[Name]) -> String {
        match *step {
            Step::Claim { who, asks } => {
                let how = if asks { How::Ask } else { How::Create };
                match self.client(who).claim(&claims[who], how).await {
                    Ok(Answer::Held(grant)) => {
                        let name = &claims[who].name;
                        let others = claims.iter().zip(&self.grants).filter(|(claim, _)| claim.name == *name);
                        let earlier = |old: &&Grant| old.token.number < grant.token.number;
                        let rank = others.filter_map(|(_, grant)| grant.as_ref()).filter(earlier).count();
                        self.grants[who] = Some(grant);
                        format!("held after {rank}")
                    }
                    Ok(Answer::Taken(_)) => "taken".to_owned(),
                    Ok(Answer::Gone) => "gone".to_owned(),
                    other => format!("{other:?}"),
                }
            }
            Step::Renew { who, wrong } => {
                let Some(grant) = &self.grants[who] else { return String::new() };
                let mut token = grant.token;
                token.number += u64::from(wrong);
                let Claim { id, name, mode, ttl, .. } = claims[who].clone();
                match &self.client(who).renew(&[Hold { id, name, mode, token, ttl }]).await[..] {
                    [Renewed::Kept { .. }] => "kept".to_owned(),
                    [Renewed::Lost(_)] => "lost".to_owned(),
                    other => format!("{other:?}"),
                }
            }
            Step::Release { who, with_token, wrong } => {
                let mut token = self.grants[who].as_ref().filter(|_| with_token).map(|grant| grant.token);
                token.iter_mut().for_each(|token| token.number += u64::from(wrong));
                let Claim { id, name, mode, .. } = claims[who].clone();
                let release = Release { id, name, mode, token, ended: Previous::Clean, keep: None };
                match &self.client(who).release(&[release]).await[..] {
                    [Released::Freed] => "freed".to_owned(),
                    [Released::NotThere] => "not there".to_owned(),
                    other => format!("{other:?}"),
                }
            }
            Step::Break { who, force } => {
                let Some(grant) = &self.grants[who] else { return String::new() };
                let broken =
                    self.client(who + 1).break_hold(&claims[who].name, grant.token.number, force).await;
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
    proptest!(config, |(kinds in prop::collection::vec(0..NAMES, CLAIMS), steps in prop::collection::vec(step(), 1..60))| {
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let begin = std::time::Instant::now();
        let store = MemoryStore::new(Lineage::new(1), Arc::new(Still));
        let memory = (0..CLIENTS).map(|_| Arc::new(MemoryEngine::new(Arc::clone(&store))) as Arc<dyn Engine>).collect();
        let mut oracle = Side { clients: memory, grants: Default::default() };
        let mut tested = Side { clients: engines.clone(), grants: Default::default() };
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
            for (at, step) in steps.iter().enumerate() {
                let wanted = oracle.step(step, &claims, &names).await;
                let got = tested.step(step, &claims, &names).await;
                // After a stall of the machine, answers may be late, or tombstones may have expired.
                prop_assume!(begin.elapsed() < engines[0].profile().request_life && !got.contains("Error"));
                prop_assert_eq!(&wanted, &got, "step {} {:?}", at, step);
            }
            Ok(())
        })?;
    });
}
