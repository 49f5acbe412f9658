//! What waiters cost.

use std::time::{Duration, Instant};

use leasehold_core::{Answer, Claim, Engine, How, Inspect, Notification};
use leasehold_sql::SqlEngine;
use leasehold_testkit::{server::PostgresServer, stopwatch::Stopwatch};

use crate::rig::{PATIENCE, Rig, release_of, until};

const CLIENTS: usize = 4;
/// How many names they wait for.
const NAMES: usize = 20;
/// How often a client speaks for its places, while it hears of its grants.
const SPEAKS_EVERY: u64 = 30;

/// R20: no connection, transaction or poll for each.
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
    assert!(before > 1000, "{before} statements: they are not counted");
    std::thread::sleep(Duration::from_secs(6));
    let (asked, seconds) = (statements() - before, begin.elapsed().as_secs());
    let allowed = CLIENTS as u64 * (seconds / SPEAKS_EVERY + 1);
    assert!(asked <= allowed, "{asked} statements in {seconds} seconds, {allowed} allowed");
    until("no transaction stays open", || !open().iter().any(|still| opened.contains(still)));
    until("each has one connection, which works and listens", || rig.connections() == CLIENTS);
    rig.run(clients[0].release(&holds.iter().flat_map(release_of).collect::<Vec<_>>()));
}

/// Who waits asks seldom, and yet the turns of the dead before it pass as soon as nobody speaks for them.
#[test]
fn dead_waiters_are_passed_over() {
    let rig = Rig::new();
    let (holder, waiter) = (rig.engine(), rig.engine());
    let hold = rig.claim("n");
    let wait = |engine: &SqlEngine, claim: &Claim| {
        let answer = rig.run(engine.claim(claim, How::Create));
        assert!(matches!(answer, Ok(Answer::Waiting(_))), "{answer:?}");
    };
    assert!(matches!(rig.run(holder.claim(&hold, How::Create)), Ok(Answer::Held(_))));
    for _ in 0..3 {
        let mut dead = rig.claim("n");
        dead.claim_time = Duration::from_millis(500);
        wait(&rig.engine(), &dead);
    }
    let claim = rig.claim("n");
    wait(&waiter, &claim);
    let watch = Stopwatch::start();
    rig.run(holder.release(&release_of(&hold)));
    let granted =
        async {
            while !waiter.notifications().await.iter().any(
                |notification| matches!(notification, Notification::Granted { id, .. } if *id == claim.id),
            ) {}
        };
    rig.run(async { tokio::time::timeout(PATIENCE, granted).await }).unwrap();
    watch.assert_within(Duration::from_secs(SPEAKS_EVERY / 2), "the turns of three that died");
    rig.run(waiter.release(&release_of(&claim)));
}

/// The connection that listens works, too, but waits for nobody's row: nothing would be heard meanwhile.
#[test]
fn a_grant_arrives_while_another_row_is_locked() {
    let rig = Rig::new();
    let (holder, waiter) = (rig.engine(), rig.engine());
    let told = rig.run(async {
        let url = rig.server.url();
        let (blocker, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let locked = rig.claim("locked");
        holder.claim(&locked, How::Create).await.unwrap();
        blocker
            .batch_execute("BEGIN; SELECT FROM leasehold_lock WHERE name = 'locked' FOR UPDATE")
            .await
            .unwrap();
        // A machine that is busy may not tell it before the wait for the row is given up.
        for number in 0..5 {
            let (hold, wait) = (rig.claim(&number.to_string()), rig.claim(&number.to_string()));
            assert!(matches!(holder.claim(&hold, How::Create).await, Ok(Answer::Held(_))));
            assert!(matches!(waiter.claim(&wait, How::Create).await, Ok(Answer::Waiting(_))));
            let (engine, stuck) = (std::sync::Arc::clone(&waiter), rig.claim("locked"));
            let stuck = tokio::spawn(async move { engine.claim(&stuck, How::Create).await.map(drop) });
            until("it waits in a transaction", || {
                stuck.is_finished()
                    || !rig
                        .server
                        .says(
                            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'leasehold' \
                         AND wait_event_type = 'Lock' AND xact_start < clock_timestamp() - interval '300 ms'",
                        )
                        .is_empty()
            });
            holder.release(&release_of(&hold)).await;
            let told = loop {
                let notification = waiter.notifications().await;
                if notification.iter().any(
                    |notification| matches!(notification, Notification::Granted { id, .. } if *id == wait.id),
                ) {
                    break !stuck.is_finished();
                }
                if notification.iter().any(|notification| {
                    matches!(notification, Notification::Recheck { .. } | Notification::AskAll)
                }) {
                    break false;
                }
            };
            waiter.release(&release_of(&wait)).await;
            drop(stuck.await.unwrap());
            if told {
                return true;
            }
        }
        false
    });
    assert!(told, "what was told was heard only when the wait for the row was over");
}
