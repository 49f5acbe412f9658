//! What waiters cost.

use std::time::{Duration, Instant};

use leasehold_core::{Answer, Claim, Engine, How, Previous, Release};

use crate::rig::{Rig, claim, free, take};

const CLIENTS: u64 = 12;
/// After so long without anything that moves each looks as seldom as it may.
const SETTLED: Duration = Duration::from_secs(8);
const COUNTED: Duration = Duration::from_secs(6);
/// The first look four times a second for grants, and once for holds that are over.
const FIRST_PER_SECOND: u64 = 5;

/// Nobody can be told of a grant: who is far from its turn looks for it seldom all the same.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_far_back_poll_seldom() {
    let rig = Rig::new();
    let (holder, hold) = (rig.engine(), claim("n"));
    let grant = take(&*holder, &hold).await;
    let mut line = Vec::new();
    for _ in 0..CLIENTS {
        let (engine, claim) = (rig.engine(), Claim { may_queue: true, ..claim("n") });
        let answer = engine.claim(&claim, How::Create).await;
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
        line.push((engine, claim));
    }
    let asked = || -> u64 {
        let said = rig.server.says("SHOW GLOBAL STATUS LIKE 'Questions'");
        said[0].rsplit('|').next().unwrap().parse().unwrap()
    };
    tokio::time::sleep(SETTLED).await;
    let (begin, before) = (Instant::now(), asked());
    tokio::time::sleep(COUNTED).await;
    let (asked, took) = (asked() - before, begin.elapsed().as_secs() + 1);
    let as_often_as_the_first = CLIENTS * FIRST_PER_SECOND * took;
    assert!(asked >= COUNTED.as_secs(), "{asked} statements: they are not counted");
    assert!(asked * 20 < as_often_as_the_first * 13, "{asked} statements in {took} s");
    for (engine, claim) in &line {
        let Claim { id, name, mode, .. } = claim.clone();
        engine.release(&[Release { id, name, mode, token: None, ended: Previous::Clean, keep: None }]).await;
    }
    free(&*holder, &hold, &grant).await;
}
