//! Many requests at the same time, which share one statement.

use futures_util::future::join_all;
use leasehold_core::{Answer, Claim, Engine, EngineError, Grant, How, Inspect, Mode, Release, Released};

use crate::rig::{Rig, release_of};

/// I1, I10: the names are, in turns, new, free, held, and held by a reader. Each request gets its own answer.
#[test]
fn each_of_many_requests_gets_its_own_answer() {
    let rig = Rig::new();
    let (engine, other) = (rig.engine(), rig.engine());
    let names: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
    rig.run(async {
        let mut before = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let mode = if at % 4 == 3 { Mode::Shared } else { Mode::Exclusive };
            let claim = Claim { mode, ..rig.claim(name) };
            if at % 4 > 0 {
                let grant = held(other.claim(&claim, How::Create).await);
                before.push(Release { token: Some(grant.token), ..release_of(&claim)[0].clone() });
            }
            if at % 4 == 1 {
                let freed = other.release(&before.split_off(before.len() - 1)).await;
                assert!(matches!(freed[..], [Released::Freed]), "{freed:?}");
            }
        }
        let claims: Vec<Claim> = names.iter().map(|name| rig.claim(name)).collect();
        let answers = join_all(claims.iter().map(|claim| engine.claim(claim, How::Create))).await;
        let mut releases = Vec::new();
        for (at, (claim, answer)) in claims.iter().zip(answers).enumerate() {
            if at % 4 < 2 {
                let token = Some(held(answer).token);
                releases.push(Release { token, ..release_of(claim)[0].clone() });
            } else {
                assert!(matches!(answer, Ok(Answer::Waiting(_))), "{at}: {answer:?}");
            }
        }
        // One release has the id of another claim.
        releases[7].id = rig.claim("n00").id;
        let wrong_name = releases[7].name.clone();
        let freed = engine.release(&releases).await;
        for (release, freed) in releases.iter().zip(freed) {
            let is_freed = matches!(freed, Released::Freed);
            assert_eq!(is_freed, release.name != wrong_name, "{release:?}: {freed:?}");
        }
        let freed = other.release(&before).await;
        assert!(freed.iter().all(|freed| matches!(freed, Released::Freed)), "{freed:?}");
        for (at, claim) in claims.iter().enumerate() {
            let view = other.show(&claim.name).await.unwrap();
            let holds = at % 4 >= 2 || claim.name == wrong_name;
            assert_eq!((view.holders.len(), view.waiters.len()), (usize::from(holds), 0), "{view:?}");
        }
    });
}

/// I1: of several new clients whose first request is a transaction, one is granted the name.
#[test]
fn one_of_many_first_transactions_is_granted() {
    let rig = Rig::new();
    rig.run(async {
        for round in 0..5 {
            let clients: Vec<_> = (0..8).map(|_| rig.engine()).collect();
            let mode = Mode::Permits { count: 1, limit: 1 };
            let claims: Vec<Claim> =
                clients.iter().map(|_| Claim { mode, ..rig.claim(&format!("a{round}")) }).collect();
            let pending_claims =
                clients.iter().zip(&claims).map(|(client, claim)| client.claim(claim, How::Create));
            let answers = join_all(pending_claims).await;
            let held = answers.iter().filter(|answer| matches!(answer, Ok(Answer::Held(_)))).count();
            assert_eq!(held, 1, "round {round}: {answers:?}");
        }
    });
}

fn held(answer: Result<Answer, EngineError>) -> Grant {
    match answer {
        Ok(Answer::Held(grant)) => grant,
        other => panic!("the name is free: {other:?}"),
    }
}
