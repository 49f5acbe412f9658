//! The cost of waiters.

use std::time::{Duration, Instant};

use leasehold_core::{Answer, Claim, Engine, How, Previous, Release};

use crate::rig::{Rig, claim, claim_and_hold, release_hold};

const CLIENTS: u64 = 12;
/// After this time without changes every client polls at its longest interval.
const SETTLED: Duration = Duration::from_secs(8);
const COUNTED: Duration = Duration::from_secs(6);
/// The first waiters poll four times a second for grants, and once for expired holds.
const FIRST_PER_SECOND: u64 = 5;

/// Without notifications every waiter polls; waiters far from the head of the queue poll seldom.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_far_back_poll_seldom() {
    let rig = Rig::new();
    let (holder, hold) = (rig.engine(), claim("n"));
    let grant = claim_and_hold(&*holder, &hold).await;
    let mut waiters = Vec::new();
    for _ in 0..CLIENTS {
        let (engine, claim) = (rig.engine(), Claim { may_queue: true, ..claim("n") });
        let answer = engine.claim(&claim, How::Create).await;
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
        waiters.push((engine, claim));
    }
    let statements = || -> u64 {
        let status = rig.server.query("SHOW GLOBAL STATUS LIKE 'Questions'");
        status[0].rsplit('|').next().unwrap().parse().unwrap()
    };
    tokio::time::sleep(SETTLED).await;
    let (begin, before) = (Instant::now(), statements());
    tokio::time::sleep(COUNTED).await;
    let (statements, took) = (statements() - before, begin.elapsed().as_secs() + 1);
    let as_often_as_the_first = CLIENTS * FIRST_PER_SECOND * took;
    assert!(statements >= COUNTED.as_secs(), "{statements} statements: the server does not count them");
    assert!(statements * 20 < as_often_as_the_first * 13, "{statements} statements in {took} s");
    for (engine, claim) in &waiters {
        let Claim { id, name, mode, .. } = claim.clone();
        engine
            .release(&[Release { id, name, mode, token: None, ended: Previous::Clean, min_hold: None }])
            .await;
    }
    release_hold(&*holder, &hold, &grant).await;
}
