//! Fail-over to another server: F60, F63.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Env, Inspect, Level, Locks};
use leasehold_sql::postgres::{Config, engine};
use leasehold_testkit::server::PostgresServer;

use crate::rig::{Rig, acquire, until};

#[test]
fn a_promoted_replica_has_another_lineage() {
    let mut rig = Rig::of(PostgresServer::durable(&["synchronous_standby_names=", "wal_level=replica"]));
    acquire(&rig.locks(), "warm").release_blocking().unwrap();
    let replica = rig.server.replica();
    let guarantee = {
        let engine = rig.engine();
        until("the replica follows", || {
            rig.server.query("SELECT count(*) FROM pg_stat_replication") == ["1"]
        });
        rig.run(async move { engine.guarantee().await }).unwrap()
    };
    assert!(guarantee.level == Level::BestEffort, "{guarantee:?}");
    assert!(guarantee.to_string().contains("replicas"), "{guarantee:?}");
    let (proxy, engine) = rig.proxied();
    let locks = Locks::builder(engine).build();
    let guard = locks.mutex("a").ttl(Duration::from_secs(3)).blocking().acquire().unwrap();
    let token = guard.token();
    let row_count = "SELECT count(*) FROM leasehold_lock WHERE name = 'a'";
    until("the replica has the row", || {
        let output = leasehold_testkit::server::psql(replica.port(), &["-c", row_count]);
        String::from_utf8_lossy(&output.stdout).trim() == "1"
    });
    // A replica refuses claims, and reads of memos, which may be old there.
    let locks_at_replica = crate::rig::locks_of("postgres", replica.port());
    let error = locks_at_replica.mutex("b").blocking().try_acquire();
    assert!(error.unwrap_err().to_string().contains("replica"));
    let error = locks_at_replica.read_memo_blocking("a").unwrap_err();
    assert!(error.to_string().contains("replica"), "{error}");
    rig.server.kill();
    replica.promote();
    proxy.point_to(replica.port());
    proxy.reset();
    let lost = rig.run(async { tokio::time::timeout(crate::rig::PATIENCE, guard.lost()).await });
    assert!(lost.is_ok(), "the holder is notified: the lineage has changed");
    let config = Config::from_url(&format!("//postgres@127.0.0.1:{}/postgres", replica.port())).unwrap();
    let next = acquire(&Locks::builder(Arc::new(engine_of(config))).build(), "a");
    assert_ne!(next.token().lineage, token.lineage);
    assert!(next.token().number > token.number, "tokens follow the clock");
}

#[test]
fn a_logical_subscriber_is_no_replica() {
    let rig = Rig::of(PostgresServer::durable(&["wal_level=logical"]));
    acquire(&rig.locks(), "warm").release_blocking().unwrap();
    let _subscriber = rig.server.subscriber();
    until("the subscriber is connected", || {
        rig.server.query("SELECT count(*) FROM pg_stat_replication") == ["1"]
    });
    let engine = rig.engine();
    let guarantee = rig.run(async move { engine.guarantee().await }).unwrap();
    assert_eq!(guarantee.level, Level::LeaseBounded, "{guarantee:?}");
}

fn engine_of(config: Config) -> leasehold_sql::SqlEngine {
    engine(config, &Env::system())
}

/// F63: tokens do not come from a sequence, which may repeat numbers after a crash.
#[test]
fn tokens_grow_across_crashes() {
    let mut rig = Rig::of(PostgresServer::durable(&[]));
    let mut newest = 0;
    for _ in 0..3 {
        let locks = rig.locks();
        for _ in 0..20 {
            let guard = acquire(&locks, "a");
            assert!(guard.token().number > newest);
            newest = guard.token().number;
            guard.release_blocking().unwrap();
        }
        rig.server.kill();
        rig.server.restart();
    }
}
