//! The cost of waiters.

use std::time::{Duration, Instant};

use leasehold_core::{Answer, Claim, Engine, How, Inspect, Notification};
use leasehold_sql::SqlEngine;
use leasehold_testkit::{server::PostgresServer, stopwatch::Stopwatch};

use crate::rig::{PATIENCE, Rig, release_of, until};

const CLIENTS: usize = 4;
/// The number of names that the clients wait for.
const NAMES: usize = 20;
/// How often, in seconds, a client with notifications refreshes its queue entries.
const REFRESH_SECONDS: u64 = 30;

/// R20: waiters share connections, transactions and polls.
#[test]
fn a_thousand_waiters_cost_few_connections_and_statements() {
    // The server's built-in counters lag behind.
    let rig = Rig::of(PostgresServer::start(&["shared_preload_libraries=pg_stat_statements"]));
    rig.server.query("CREATE EXTENSION pg_stat_statements");
    let clients: Vec<_> = (0..CLIENTS).map(|_| rig.engine()).collect();
    let names: Vec<String> = (0..NAMES).map(|name| format!("n{name}")).collect();
    let holds: Vec<_> = names.iter().map(|name| rig.claim(name)).collect();
    rig.run(async {
        for hold in &holds {
            assert!(matches!(clients[0].claim(hold, How::Create).await, Ok(Answer::Held(_))));
        }
        for round in 0..1000 / NAMES {
            let claims: Vec<_> = names.iter().map(|name| rig.claim(name)).collect();
            let executed =
                claims.iter().enumerate().map(|(at, claim)| clients[at % CLIENTS].claim(claim, How::Create));
            for answer in futures_util::future::join_all(executed).await {
                assert!(matches!(answer, Ok(Answer::Waiting(_))), "round {round}: {answer:?}");
            }
        }
    });
    let shown = rig.run(clients[0].list("")).unwrap();
    assert_eq!(shown.iter().map(|view| view.waiters.len()).sum::<usize>(), 1000);
    let statements = || -> u64 {
        let counted = "SELECT sum(calls) FROM pg_stat_statements WHERE query LIKE '%leasehold%'";
        rig.server.query(counted)[0].parse().unwrap()
    };
    let open = || -> Vec<String> {
        rig.server.query(
            "SELECT pid, xact_start FROM pg_stat_activity WHERE application_name = 'leasehold' AND xact_start IS NOT NULL",
        )
    };
    let (begin, before, opened) = (Instant::now(), statements(), open());
    assert!(before > 1000, "{before} statements: the server does not count them");
    std::thread::sleep(Duration::from_secs(6));
    let (executed, seconds) = (statements() - before, begin.elapsed().as_secs());
    let allowed = CLIENTS as u64 * (seconds / REFRESH_SECONDS + 1);
    assert!(executed <= allowed, "{executed} statements in {seconds} seconds, {allowed} allowed");
    until("no transaction stays open", || !open().iter().any(|still| opened.contains(still)));
    until("each client has one connection, for requests and notifications", || rig.connections() == CLIENTS);
    rig.run(clients[0].release(&holds.iter().flat_map(release_of).collect::<Vec<_>>()));
}

/// A waiter polls seldom. Nevertheless, claims ahead of it whose clients have exited are skipped soon after they were
/// granted.
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
    watch.assert_within(Duration::from_secs(REFRESH_SECONDS / 2), "three dead waiters are skipped");
    rig.run(waiter.release(&release_of(&claim)));
}

/// The listening connection also serves requests, but no transaction, which may wait for a row: notifications would
/// wait too.
#[test]
fn a_grant_arrives_while_another_row_is_locked() {
    let rig = Rig::new();
    let (holder, waiter) = (rig.engine(), rig.engine());
    let in_time = rig.run(async {
        let url = rig.server.url();
        let (blocker, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let locked = rig.claim("locked");
        holder.claim(&locked, How::Create).await.unwrap();
        blocker
            .batch_execute("BEGIN; SELECT FROM leasehold_lock WHERE name = 'locked' FOR UPDATE")
            .await
            .unwrap();
        // On a busy machine the notification may come only after the wait for the row has timed out.
        for number in 0..5 {
            let (hold, wait) = (rig.claim(&number.to_string()), rig.claim(&number.to_string()));
            assert!(matches!(holder.claim(&hold, How::Create).await, Ok(Answer::Held(_))));
            assert!(matches!(waiter.claim(&wait, How::Create).await, Ok(Answer::Waiting(_))));
            let (engine, stuck) = (std::sync::Arc::clone(&waiter), rig.claim("locked"));
            let stuck = tokio::spawn(async move { engine.claim(&stuck, How::Create).await.map(drop) });
            until("the claim waits in a transaction", || {
                stuck.is_finished()
                    || !rig
                        .server
                        .query(
                            "SELECT 1 FROM pg_stat_activity WHERE application_name = 'leasehold' \
                         AND wait_event_type = 'Lock' AND xact_start < clock_timestamp() - interval '300 ms'",
                        )
                        .is_empty()
            });
            holder.release(&release_of(&hold)).await;
            let in_time = loop {
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
            if in_time {
                return true;
            }
        }
        false
    });
    assert!(in_time, "the notification arrived only after the wait for the row");
}
