//! A server whose clock steps forward and back: F09, F10, F59.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Claim, Engine, EngineError, Env, ErrorKind, Fault, How, Loss, Mode};
use leasehold_sql::{SqlEngine, postgres::engine};
use leasehold_testkit::server::PostgresServer;

use crate::rig::{Rig, acquire, config, release_of, until};

/// Long enough that no renewal is due during a test.
const TTL: Duration = Duration::from_secs(600);
/// The ttl of a hold that is renewed after a third of it; the rest is slack for a busy machine.
const HELD: Duration = Duration::from_secs(15);

#[test]
fn a_clock_step_forward_ends_a_hold_and_notifies_its_holder() {
    let rig = Rig::of(PostgresServer::with_clock());
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("a").ttl(TTL).blocking().acquire().unwrap();
    let token = guard.token();
    rig.server.set_clock(3600);
    // Any request of the holder's process shows the step; without it, a renewal would, after a third of the ttl.
    acquire(&locks, "b").release_blocking().unwrap();
    until("the holder is notified", || !guard.check());
    assert!(guard.release_blocking().unwrap_err().is_lost());
    assert!(acquire(&other, "a").token() > token);
}

/// R10: the row of an unused name is deleted, with its newest token, an hour later by the clock of the server, even if
/// that clock is wrong.
#[test]
fn tokens_grow_after_a_wrong_clock_forgot_a_name() {
    const HOURS: i64 = 3600;
    let rig = Rig::of(PostgresServer::with_clock());
    rig.server.set_clock(9 * HOURS);
    let locks = rig.locks();
    let tokens = ["one", "line"].map(|name| {
        let guard = acquire(&locks, name);
        let token = guard.token();
        guard.release_blocking().unwrap();
        token
    });
    rig.server.set_clock(11 * HOURS);
    until("the rows are swept", || {
        rig.server.query("SELECT name FROM leasehold_lock WHERE name <> ''").is_empty()
    });
    rig.server.set_clock(0);
    let again = acquire(&rig.locks(), "one");
    assert!(again.token() > tokens[0], "{} after {}", again.token(), tokens[0]);
    // A shared hold is granted by a transaction.
    let reader = rig.locks().rw("line").read().blocking().acquire().unwrap();
    assert!(reader.token() > tokens[1], "{} after {}", reader.token(), tokens[1]);
}

/// When the token cannot grow, an error is better than two grants with one token.
#[test]
fn a_used_up_token_counter_grants_nothing() {
    let rig = Rig::new();
    for name in ["row", "claims"] {
        acquire(&rig.locks(), name).release_blocking().unwrap();
        rig.server.query(&format!("UPDATE leasehold_lock SET token = {} WHERE name = '{name}'", i64::MAX));
        let locks = rig.locks();
        let error = match name {
            "row" => locks.mutex(name).blocking().try_acquire().unwrap_err(),
            _ => locks.rw(name).read().blocking().try_acquire().unwrap_err(),
        };
        let message = error.to_string();
        assert!(
            error.is_misconfigured() && message.contains("column token") && message.contains("undo"),
            "{message}"
        );
    }
}

#[test]
fn a_clock_step_back_keeps_holds_and_token_order() {
    let rig = Rig::of(PostgresServer::with_clock());
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("a").ttl(HELD).blocking().acquire().unwrap();
    let token = guard.token();
    rig.server.set_clock(-3600);
    // By the stepped clock the new end would be earlier than the old one, so the renewal keeps the old end; but it
    // writes the row.
    let written = || rig.server.query("SELECT xmin FROM leasehold_lock WHERE name = 'a'").remove(0);
    let before = written();
    until("the hold is renewed", || written() != before);
    assert!(guard.check(), "it was renewed in time");
    guard.release_blocking().unwrap();
    let next = acquire(&other, "a");
    assert!(next.token() > token, "{} after {token}", next.token());
    // If the process died now, the name would stay held for more than an hour.
    rig.server.set_clock(0);
    let long = locks.mutex("c").ttl(Duration::from_secs(2)).renew(false).blocking().acquire().unwrap();
    let token = long.token();
    rig.server.set_clock(-3600);
    until("the lease has ended by the clock of its client", || !long.check());
    assert!(rig.locks().mutex("c").blocking().try_acquire().unwrap_err().is_taken());
    let left = rig.show("c").holders[0].remaining;
    assert!(left > Some(TTL), "the long rest of the lease is shown: {left:?}");
    rig.run(other.break_hold("c", token.number, true)).unwrap();
    acquire(&other, "c").release_blocking().unwrap();
}

#[test]
fn a_lapsed_hold_does_not_release_its_successor() {
    let rig = Rig::of(PostgresServer::with_clock());
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("a").ttl(TTL).blocking().acquire().unwrap();
    rig.server.set_clock(700);
    let next = acquire(&other, "a");
    assert!(next.token() > guard.token());
    assert_eq!(guard.release_blocking().unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
    assert!(next.check(), "the late release had no effect");
    next.release_blocking().unwrap();
}

/// The database's clock.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// A client whose sessions have a longer lock timeout, as behind a pooler: there a fast-path statement waits, too.
fn patient(rig: &Rig) -> Arc<SqlEngine> {
    let url = rig.server.url();
    let config = config(&url).listen(config(&url));
    Arc::new(engine(config, &Env::system()))
}

/// F59: a lease starts when its row was locked, not when the statement or its transaction began.
#[test]
fn a_lease_starts_after_the_wait_for_its_row() {
    let rig = Rig::new();
    let ways =
        [(patient(&rig), Mode::Exclusive), (rig.engine(), Mode::Exclusive), (rig.engine(), Mode::Shared)];
    for (engine, mode) in ways {
        let (claim, freed) = loop {
            let claim = Claim { mode, ..rig.claim("a") };
            let (answer, freed) = rig.run(held_after_a_wait(&rig, &engine, &claim));
            match answer {
                Ok(Answer::Held(_)) => break (claim, freed),
                // On a stalled machine the row was locked for longer than the time limit of a request.
                Err(error) if matches!(error.fault, Fault::Retry | Fault::Unknown) => {
                    rig.run(engine.release(&release_of(&claim)));
                }
                other => panic!("{mode}: {other:?}"),
            }
        };
        let ends = format!(
            "SELECT max(expires) - {freed}, max(expires) - {NOW} FROM \
             (SELECT expires FROM leasehold_lock UNION ALL SELECT expires FROM leasehold_claim WHERE stand = 0) AS a"
        );
        let row = rig.server.query(&ends).remove(0);
        let (after_freed, left) = row.split_once('|').unwrap();
        let (after_freed, left): (i64, i64) = (after_freed.parse().unwrap(), left.parse().unwrap());
        let ttl = 600_000_000;
        assert!(
            after_freed >= ttl && left <= ttl,
            "{mode}: the lease ends {after_freed} µs after the row was free, {left} µs from now"
        );
        rig.run(engine.release(&release_of(&claim)));
    }
}

/// Claims while another session has locked the row of the name. Returns the answer, and when the row was free.
async fn held_after_a_wait(
    rig: &Rig,
    engine: &Arc<SqlEngine>,
    claim: &Claim,
) -> (Result<Answer, EngineError>, i64) {
    // Creates the row.
    let first = rig.claim("a");
    engine.claim(&first, How::Create).await.unwrap();
    engine.release(&release_of(&first)).await;
    let url = rig.server.url();
    let (blocker, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let block = "BEGIN; SELECT FROM leasehold_lock WHERE name = 'a' FOR UPDATE";
    blocker.batch_execute(block).await.unwrap();
    let pending_claim = tokio::spawn({
        let (engine, claim) = (Arc::clone(engine), claim.clone());
        async move { engine.claim(&claim, How::Create).await }
    });
    let waits = "SELECT FROM pg_locks WHERE NOT granted";
    while blocker.query(waits, &[]).await.unwrap().is_empty() {
        assert!(!pending_claim.is_finished(), "the claim waits for the row");
    }
    let freed = blocker.query_one(&format!("SELECT {NOW} FROM pg_sleep(0.5)"), &[]).await.unwrap();
    blocker.batch_execute("COMMIT").await.unwrap();
    (pending_claim.await.unwrap(), freed.get::<_, i64>(0))
}
