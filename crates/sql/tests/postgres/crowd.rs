//! What waiters cost.

use std::time::Duration;

use leasehold_core::{Answer, Engine, How};

use crate::rig::{Rig, release_of};

/// S6: no connection, transaction or poll for each.
#[test]
fn a_thousand_waiters_cost_few_connections_and_statements() {
    let rig = Rig::new();
    let clients: Vec<_> = (0..4).map(|_| rig.engine()).collect();
    let first = rig.claim("a");
    rig.run(async {
        assert!(matches!(clients[0].claim(&first, How::Create).await, Ok(Answer::Held(_))));
        for round in 0..25 {
            let claims: Vec<_> = (0..40).map(|_| rig.claim("a")).collect();
            let asked =
                claims.iter().enumerate().map(|(at, claim)| clients[at % 4].claim(claim, How::Create));
            for answer in futures_util::future::join_all(asked).await {
                assert!(matches!(answer, Ok(Answer::Waiting(_))), "round {round}: {answer:?}");
            }
        }
    });
    assert_eq!(rig.show("a").waiters.len(), 1000);
    let statements = || -> u64 {
        let counted = rig
            .server
            .says("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'postgres'");
        counted[0].parse().unwrap()
    };
    // The counters of the server are behind by a second.
    std::thread::sleep(Duration::from_secs(3));
    let before = statements();
    std::thread::sleep(Duration::from_secs(5));
    let rate = (statements() - before) as f64 / 5.0;
    assert!(rate < 20.0, "{rate} statements a second");
    crate::rig::until("connections that rest are closed", || rig.connections() <= 4 * 2);
    let old = rig.server.says(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold' AND xact_start < now() - interval '2 s'",
    );
    assert_eq!(old, ["0"], "no transaction stays open");
    rig.run(clients[0].release(&release_of(&first)));
}
