//! A server whose clock is set forward and back: F09, F10, F59.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Answer, Claim, Engine, EngineError, Env, ErrorKind, Fault, How, Loss, Mode};
use leasehold_sql::{SqlEngine, postgres::engine};
use leasehold_testkit::server::PostgresServer;

use crate::rig::{Rig, acquire, config, release_of, until};

/// So long that no renewal is due by itself.
const TTL: Duration = Duration::from_secs(600);
/// Renewed after a third of it: the rest is for a busy machine.
const HELD: Duration = Duration::from_secs(15);

#[test]
fn a_clock_step_forward_ends_a_hold_and_notifies_its_holder() {
    let rig = Rig::of(PostgresServer::with_clock());
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("a").ttl(TTL).blocking().acquire().unwrap();
    let token = guard.token();
    rig.server.set_clock(3600);
    // Somebody of the holder's process speaks to the server, as its renewals do every third of the ttl.
    acquire(&locks, "b").release_blocking().unwrap();
    until("the holder is told", || !guard.check());
    assert!(guard.release_blocking().unwrap_err().is_lost());
    assert!(acquire(&other, "a").token() > token);
}

/// R10: what is known of a token goes with the row of its name, an hour after its time by the clock of the server, whatever that is.
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
        rig.server.says("SELECT name FROM leasehold_lock WHERE name <> ''").is_empty()
    });
    rig.server.set_clock(0);
    let again = acquire(&rig.locks(), "one");
    assert!(again.token() > tokens[0], "{} after {}", again.token(), tokens[0]);
    // Through a transaction, and many at once, as those who share are granted, and those of a batch.
    let reader = rig.locks().rw("line").read().blocking().acquire().unwrap();
    assert!(reader.token() > tokens[1], "{} after {}", reader.token(), tokens[1]);
}

/// There is no larger one: rather nobody holds than two with one token.
#[test]
fn a_used_up_token_counter_grants_nothing() {
    let rig = Rig::new();
    for name in ["row", "claims"] {
        acquire(&rig.locks(), name).release_blocking().unwrap();
        rig.server.says(&format!("UPDATE leasehold_lock SET token = {} WHERE name = '{name}'", i64::MAX));
        let locks = rig.locks();
        let error = match name {
            "row" => locks.mutex(name).blocking().try_acquire().unwrap_err(),
            _ => locks.rw(name).read().blocking().try_acquire().unwrap_err(),
        };
        let said = error.to_string();
        assert!(error.is_misconfigured() && said.contains("column token") && said.contains("undo"), "{said}");
    }
}

#[test]
fn a_clock_step_back_keeps_holds_and_token_order() {
    let rig = Rig::of(PostgresServer::with_clock());
    let (locks, other) = (rig.locks(), rig.locks());
    let guard = locks.mutex("a").ttl(HELD).blocking().acquire().unwrap();
    let token = guard.token();
    rig.server.set_clock(-3600);
    // By the server's clock it is not extended, but written it is.
    let written = || rig.server.says("SELECT xmin FROM leasehold_lock WHERE name = 'a'").remove(0);
    let before = written();
    until("it is renewed", || written() != before);
    assert!(guard.check(), "renewed all the while");
    guard.release_blocking().unwrap();
    let next = acquire(&other, "a");
    assert!(next.token() > token, "{} after {token}", next.token());
    // A process that dies now would keep the name for an hour and more.
    rig.server.set_clock(0);
    let long = locks.mutex("c").ttl(Duration::from_secs(2)).renew(false).blocking().acquire().unwrap();
    let token = long.token();
    rig.server.set_clock(-3600);
    until("its lease is over by the clock of its client", || !long.check());
    assert!(rig.locks().mutex("c").blocking().try_acquire().unwrap_err().is_taken());
    let left = rig.show("c").holders[0].remaining;
    assert!(left > Some(TTL), "what is shown tells of it: {left:?}");
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
    assert!(next.check(), "the late release harmed nobody");
    next.release_blocking().unwrap();
}

/// The database's clock.
const NOW: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// One whose sessions have no limit for locks, as behind a pooler: there the statement about many names waits, too.
fn patient(rig: &Rig) -> Arc<SqlEngine> {
    let url = rig.server.url();
    let config = config(&url).listen(config(&url));
    Arc::new(engine(config, &Env::system()))
}

/// F59: from when the row was had, not from when the statement or its transaction began.
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
                // On a machine that stalled the row was locked for longer than a request may take.
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
        let said = rig.server.says(&ends).remove(0);
        let (after_freed, left) = said.split_once('|').unwrap();
        let (after_freed, left): (i64, i64) = (after_freed.parse().unwrap(), left.parse().unwrap());
        let ttl = 600_000_000;
        assert!(
            after_freed >= ttl && left <= ttl,
            "{mode}: {after_freed} after the row was free, {left} left"
        );
        rig.run(engine.release(&release_of(&claim)));
    }
}

/// Claims while somebody has the row of the name; answers what came of it, and when the row was free.
async fn held_after_a_wait(
    rig: &Rig,
    engine: &Arc<SqlEngine>,
    claim: &Claim,
) -> (Result<Answer, EngineError>, i64) {
    // The row is there.
    let first = rig.claim("a");
    engine.claim(&first, How::Create).await.unwrap();
    engine.release(&release_of(&first)).await;
    let url = rig.server.url();
    let (blocker, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let block = "BEGIN; SELECT FROM leasehold_lock WHERE name = 'a' FOR UPDATE";
    blocker.batch_execute(block).await.unwrap();
    let asked = tokio::spawn({
        let (engine, claim) = (Arc::clone(engine), claim.clone());
        async move { engine.claim(&claim, How::Create).await }
    });
    let waits = "SELECT FROM pg_locks WHERE NOT granted";
    while blocker.query(waits, &[]).await.unwrap().is_empty() {
        assert!(!asked.is_finished(), "it waits");
    }
    let freed = blocker.query_one(&format!("SELECT {NOW} FROM pg_sleep(0.5)"), &[]).await.unwrap();
    blocker.batch_execute("COMMIT").await.unwrap();
    (asked.await.unwrap(), freed.get::<_, i64>(0))
}
