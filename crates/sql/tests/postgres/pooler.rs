//! Behind a transaction pooler: session state is lost, and notifications bypass it.

use std::sync::Arc;

use leasehold_core::{Engine, Env, Fault, How, Locks};
use leasehold_sql::postgres::{Config, engine};
use leasehold_testkit::server::PgBouncer;

use crate::rig::{Rig, acquire, release_of, until};

fn locks(rig: &Rig, pooler: &PgBouncer) -> Locks {
    let config = Config::from_url(&format!("//postgres@127.0.0.1:{}/postgres", pooler.port())).unwrap();
    let config = config.listen(crate::rig::config(&rig.server.url()));
    Locks::builder(Arc::new(engine(config, &Env::system()))).build()
}

#[test]
fn locks_use_the_pooler_and_notifications_bypass_it() {
    let rig = Rig::new();
    let pooler = PgBouncer::start(rig.server.port());
    let holder = locks(&rig, &pooler);
    let guard = acquire(&holder, "a");
    let waiting: Vec<_> = (0..6)
        .map(|_| {
            let locks = locks(&rig, &pooler);
            std::thread::spawn(move || acquire(&locks, "a").release_blocking().unwrap())
        })
        .collect();
    until("all claims wait", || rig.show("a").waiters.len() == 6);
    guard.release_blocking().unwrap();
    waiting.into_iter().for_each(|waiter| waiter.join().unwrap());
    let shared = holder.rw("b").read().blocking().acquire().unwrap();
    let permit = holder.semaphore("c", 2).blocking().acquire().unwrap();
    shared.release_blocking().unwrap();
    permit.release_blocking().unwrap();
    let set = holder.all().mutex("a").read("b").permits("c", 1, 2);
    set.blocking().try_acquire().unwrap().release_blocking().unwrap();
    assert_eq!(rig.remaining_rows(), [""; 0]);
}

/// Many clients share few connections of the server.
#[test]
fn many_clients_share_the_connections_of_a_pooler() {
    let rig = Rig::new();
    let pooler = PgBouncer::start(rig.server.port());
    let clients: Vec<Locks> = (0..12).map(|_| locks(&rig, &pooler)).collect();
    let threads: Vec<_> = clients
        .into_iter()
        .enumerate()
        .map(|(at, locks)| {
            std::thread::spawn(move || {
                for round in 0..10 {
                    acquire(&locks, &format!("n{}", (at + round) % 5)).release_blocking().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(rig.remaining_rows(), [""; 0]);
}

/// R12: a pooler reports that the connection behind it broke; whether the statement took effect is unknown.
#[test]
fn a_server_that_dies_behind_a_pooler_leaves_a_claim_in_doubt() {
    let mut rig = Rig::new();
    let pooler = PgBouncer::start(rig.server.port());
    let config = Config::from_url(&format!("//postgres@127.0.0.1:{}/postgres", pooler.port())).unwrap();
    let engine = Arc::new(engine(config.listen(crate::rig::config(&rig.server.url())), &Env::system()));
    let (first, second) = (rig.claim("a"), rig.claim("a"));
    let mut pending_claim = None;
    rig.run(async {
        engine.claim(&first, How::Create).await.unwrap();
        engine.release(&release_of(&first)).await;
        rig.server.query(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NEW; END'; \
             CREATE TRIGGER slow BEFORE UPDATE ON leasehold_lock FOR EACH ROW EXECUTE FUNCTION slow()",
        );
        pending_claim = Some(tokio::spawn(async move { engine.claim(&second, How::Create).await }));
        let sleeps = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        until("the request is in flight", || rig.server.query(sleeps).len() == 1);
    });
    rig.server.kill();
    let error = rig.run(pending_claim.unwrap()).unwrap().unwrap_err();
    assert_eq!(error.fault, Fault::Unknown, "{error:?}");
}

/// Only the pooler can be reached, not the server itself: there are no notifications, and claims are still granted.
#[test]
fn a_waiter_without_notifications_polls_for_its_grant() {
    let rig = Rig::new();
    let pooler = PgBouncer::start(rig.server.port());
    let without_notifications = || {
        let config = Config::from_url(&format!("//postgres@127.0.0.1:{}/postgres", pooler.port())).unwrap();
        let config = config.listen(crate::rig::config("postgres://postgres@127.0.0.1:1/postgres"));
        Locks::builder(Arc::new(engine(config, &Env::system()))).build()
    };
    let guard = acquire(&without_notifications(), "a");
    let next = without_notifications();
    let waiting = std::thread::spawn(move || acquire(&next, "a"));
    until("the claim waits", || rig.show("a").waiters.len() == 1);
    guard.release_blocking().unwrap();
    waiting.join().unwrap().release_blocking().unwrap();
}

#[test]
fn an_undeclared_pooler_is_reported() {
    let rig = Rig::new();
    let pooler = PgBouncer::start(rig.server.port());
    let error = crate::rig::locks_of("postgres", pooler.port()).mutex("a").blocking().acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("listen_url"), "{error}");
}

#[test]
fn a_statement_pooler_is_refused() {
    let rig = Rig::new();
    let pooler = PgBouncer::in_mode(rig.server.port(), "statement");
    let locks = locks(&rig, &pooler);
    let error = locks.mutex("a").blocking().acquire_within(crate::rig::PATIENCE).unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("pool_mode = transaction"), "{error}");
}
