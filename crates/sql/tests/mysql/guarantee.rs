//! The guarantee, by the settings of the server.

use leasehold_core::{Engine, Fault, How, Inspect, Level, Severity};
use leasehold_testkit::server::MariadbServer;

use crate::rig::{
    Rig, USER, as_user, assert_taken, claim, claim_and_hold, engine_at, is_mysql, release_hold, until,
};

async fn level(rig: &Rig) -> (Level, String) {
    let guarantee = rig.engine().guarantee().await.unwrap();
    (guarantee.level, guarantee.to_string())
}

#[tokio::test]
async fn the_guarantee_follows_durability_settings() {
    let cases: [(&[&str], Level, &str); 6] = [
        (&[], Level::LeaseBounded, "the clock"),
        (&["--innodb-flush-log-at-trx-commit=2"], Level::BestEffort, "innodb_flush_log_at_trx_commit"),
        (&["--innodb-flush-log-at-trx-commit=0"], Level::BestEffort, "innodb_flush_log_at_trx_commit"),
        (&["--skip-innodb-doublewrite"], Level::BestEffort, "innodb_doublewrite"),
        (&["--log-bin", "--sync-binlog=0"], Level::BestEffort, "sync_binlog"),
        (&["--log-bin", "--sync-binlog=1"], Level::LeaseBounded, "the clock"),
    ];
    for (options, wanted, note) in cases {
        let (level, notes) = level(&Rig::of(MariadbServer::durable(options))).await;
        assert_eq!(level, wanted, "{options:?}: {notes}");
        assert!(notes.contains(note), "{options:?}: {notes}");
    }
}

#[tokio::test]
async fn replicas_lower_the_guarantee() {
    if is_mysql() {
        return mysql_replicas_lower_the_guarantee().await;
    }
    let mut rig = Rig::of(MariadbServer::durable(&["--log-bin", "--sync-binlog=1", "--server-id=1"]));
    rig.server.stop();
    let replica = rig.server.copy(&["--server-id=2", "--read-only=1"]);
    rig.server.restart();
    assert_eq!(level(&rig).await.0, Level::LeaseBounded);
    replica.query(&format!(
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root'; START SLAVE",
        rig.server.port()
    ));
    until("the replica is connected", || {
        rig.server.query("SHOW STATUS LIKE 'Slaves_connected'") == ["Slaves_connected|1"]
    })
    .await;
    let (follows, notes) = level(&rig).await;
    assert_eq!(follows, Level::BestEffort);
    assert!(notes.contains("commits do not wait for them"), "{notes}");
    rig.server.query(
        "SET GLOBAL rpl_semi_sync_master_enabled = 1, GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
    );
    replica.query("SET GLOBAL rpl_semi_sync_slave_enabled = 1; STOP SLAVE; START SLAVE");
    until("commits wait for the replica", || {
        rig.server.query("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")
            == ["Rpl_semi_sync_master_clients|1"]
    })
    .await;
    let (follows, notes) = level(&rig).await;
    assert_eq!(follows, Level::BestEffort);
    assert!(notes.contains("up to a time limit"), "{notes}");
}

/// The test on MySQL: its binary log is on by default, and it has no status value for the number of replicas.
async fn mysql_replicas_lower_the_guarantee() {
    const UNSEEN: &str = "the right PROCESS";
    let rig = Rig::of(MariadbServer::durable(&["--server-id=1"]));
    let replica = MariadbServer::durable(&["--server-id=2", "--read-only=1"]);
    let (alone, notes) = level(&rig).await;
    assert!(alone == Level::LeaseBounded && !notes.contains(UNSEEN), "{notes}");
    rig.server.query(leasehold_sql::mysql::SCHEMA);
    for statement in [USER, leasehold_sql::mysql::GRANTS] {
        rig.server.query(statement);
    }
    let by_locker = async || engine_at(&as_user(&rig)).guarantee().await.unwrap().to_string();
    assert!(by_locker().await.contains(UNSEEN), "the user cannot see connections of replicas");
    rig.server.query("INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'");
    replica.query("INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'");
    let follow = format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {}, SOURCE_USER = 'root', \
         GET_SOURCE_PUBLIC_KEY = 1; START REPLICA IO_THREAD",
        rig.server.port()
    );
    replica.query(&follow);
    let connected = "SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    until("the replica is connected", || rig.server.query(connected) == ["1"]).await;
    let (follows, notes) = level(&rig).await;
    assert!(follows == Level::BestEffort && notes.contains("commits do not wait for them"), "{notes}");
    assert!(by_locker().await.contains(UNSEEN), "the user still cannot see connections of replicas");
    replica.query(
        "SET GLOBAL rpl_semi_sync_replica_enabled = 1; STOP REPLICA IO_THREAD; START REPLICA IO_THREAD",
    );
    rig.server.query("SET GLOBAL rpl_semi_sync_source_enabled = 1");
    let waits = "SHOW STATUS LIKE 'Rpl_semi_sync_source_clients'";
    until("commits wait for the replica", || rig.server.query(waits) == ["Rpl_semi_sync_source_clients|1"])
        .await;
    let (follows, notes) = level(&rig).await;
    assert!(follows == Level::BestEffort && notes.contains("up to a time limit"), "{notes}");
}

/// A cluster of one node is recognised, and can be used for locks.
#[tokio::test]
async fn a_cluster_is_noted_in_the_guarantee() {
    if is_mysql() {
        return a_group_lowers_the_guarantee().await;
    }
    let rig = Rig::of(MariadbServer::durable(&[
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
        "--wsrep-cluster-address=gcomm://",
        "--wsrep-node-address=127.0.0.1",
        "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0",
        "--wsrep-sst-method=skip",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
    ]));
    let (one, other) = (rig.engine(), rig.engine());
    let claim = claim("a");
    let grant = claim_and_hold(&*one, &claim).await;
    assert_taken(&*other, "a").await;
    release_hold(&*one, &claim, &grant).await;
    let (level, notes) = level(&rig).await;
    assert_eq!(level, Level::LeaseBounded);
    assert!(notes.contains("Galera"), "{notes}");
    let told = rig.engine().diagnose().await.unwrap();
    let node = told.iter().find(|diagnostic| diagnostic.id == "mysql-galera").unwrap();
    assert!(node.severity == Severity::Good && node.found.contains("1 nodes"), "{node:?}");
    rig.server.query("SET GLOBAL wsrep_provider_options = 'pc.ignore_sb=true'");
    let split = rig.engine().guarantee().await.unwrap();
    assert!(split.level == Level::BestEffort && split.to_string().contains("pc.ignore_sb"), "{split}");
    // F61: `GET_LOCK` excludes on one node only.
    let error = rig.session().claim(&crate::rig::claim("a"), How::Create).await.unwrap_err();
    assert!(error.fault == Fault::Misconfigured && error.message.contains("wsrep_on is ON"), "{error:?}");
}

/// MySQL's group replication: this server does not know what other members have applied.
async fn a_group_lowers_the_guarantee() {
    let rig = Rig::of(MariadbServer::durable(&[
        "--server-id=1",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--report-host=127.0.0.1",
        "--plugin-load-add=group_replication.so",
        "--loose-group-replication-group-name=3e11fa47-71ca-11e1-9e33-c80aa9429562",
        "--loose-group-replication-communication-stack=MYSQL",
        "--loose-group-replication-start-on-boot=OFF",
    ]));
    let here = format!("SET GLOBAL group_replication_local_address = '127.0.0.1:{}'", rig.server.port());
    for statement in [
        &here,
        "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root' FOR CHANNEL 'group_replication_recovery'",
        "SET GLOBAL group_replication_bootstrap_group = ON",
        "START GROUP_REPLICATION",
    ] {
        rig.server.query(statement);
    }
    let state = "SELECT member_state FROM performance_schema.replication_group_members";
    until("the server is a member", || rig.server.query(state) == ["ONLINE"]).await;
    let (one, other) = (rig.engine(), rig.engine());
    let claim = claim("a");
    let grant = claim_and_hold(&*one, &claim).await;
    assert_taken(&*other, "a").await;
    release_hold(&*one, &claim, &grant).await;
    let (level, notes) = level(&rig).await;
    assert!(level == Level::BestEffort && notes.contains("group_replication_group_name"), "{notes}");
    // The group has one primary, so the locks of its sessions exclude.
    let guarantee = rig.session().guarantee().await.unwrap();
    assert_eq!(guarantee.level, Level::BestEffort, "{guarantee}");
}
