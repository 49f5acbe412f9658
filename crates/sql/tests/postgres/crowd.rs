//! What waiters cost.

use std::time::{Duration, Instant};

use leasehold_core::{Answer, Engine, How, Inspect};
use leasehold_testkit::server::PostgresServer;

use crate::rig::{Rig, release_of, until};

const CLIENTS: usize = 4;
/// How many names they wait for.
const NAMES: usize = 20;
/// A client looks once a second whether a hold is over, and less often at its places, whether that is easy for the server or not.
const STATEMENTS_PER_SECOND: u64 = 2;

/// S6: no connection, transaction or poll for each.
#[test]
fn a_thousand_waiters_cost_few_connections_and_statements() {
    // The server's own counters are behind by as much as it likes.
    let rig = Rig::of(PostgresServer::start(&["shared_preload_libraries=pg_stat_statements"]));
    rig.server.says("CREATE EXTENSION pg_stat_statements");
    let clients: Vec<_> = (0..CLIENTS).map(|_| rig.engine()).collect();
    let names: Vec<String> = (0..NAMES).map(|name| format!("n{name}")).collect();
    let holds: Vec<_> = names.iter().map(|name| rig.claim(name)).collect();
    rig.run(async {
        for hold in &holds {
            assert!(matches!(clients[0].claim(hold, How::Create).await, Ok(Answer::Held(_))));
        }
        for round in 0..1000 / NAMES {
            let claims: Vec<_> = names.iter().map(|name| rig.claim(name)).collect();
            let asked =
                claims.iter().enumerate().map(|(at, claim)| clients[at % CLIENTS].claim(claim, How::Create));
            for answer in futures_util::future::join_all(asked).await {
                assert!(matches!(answer, Ok(Answer::Waiting(_))), "round {round}: {answer:?}");
            }
        }
    });
    let shown = rig.run(clients[0].list("")).unwrap();
    assert_eq!(shown.iter().map(|view| view.waiters.len()).sum::<usize>(), 1000);
    let statements = || -> u64 {
        let counted = "SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE '%leasehold%'";
        rig.server.says(counted)[0].parse().unwrap()
    };
    let open = || -> Vec<String> {
        rig.server.says(
            "SELECT pid, xact_start FROM pg_stat_activity WHERE application_name = 'leasehold' AND xact_start IS NOT NULL",
        )
    };
    let (begin, before, opened) = (Instant::now(), statements(), open());
    std::thread::sleep(Duration::from_secs(4));
    let asked = statements() - before;
    // What is under way at both ends of the time, too.
    let seconds = begin.elapsed().as_secs() + 2;
    assert!(asked >= CLIENTS as u64, "{asked} statements: they are not counted");
    let allowed = CLIENTS as u64 * STATEMENTS_PER_SECOND * seconds;
    assert!(asked <= allowed, "{asked} statements in {seconds} seconds, {allowed} allowed");
    until("no transaction stays open", || !open().iter().any(|still| opened.contains(still)));
    until("connections that rest are closed", || rig.connections() <= CLIENTS * 2);
    rig.run(clients[0].release(&holds.iter().flat_map(release_of).collect::<Vec<_>>()));
}
