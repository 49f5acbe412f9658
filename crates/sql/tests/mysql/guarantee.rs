//! What is promised, by what the server is told to do.

use leasehold_core::{Inspect, Level};
use leasehold_testkit::server::MariadbServer;

use crate::rig::{Rig, claim, finds_taken, free, take, until};

async fn level(rig: &Rig) -> (Level, String) {
    let guarantee = rig.engine().guarantee().await.unwrap();
    (guarantee.level, guarantee.to_string())
}

#[tokio::test]
async fn the_label_follows_what_reaches_the_disk() {
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
async fn replicas_that_are_not_waited_for_are_told_of() {
    let mut rig = Rig::of(MariadbServer::durable(&["--log-bin", "--sync-binlog=1", "--server-id=1"]));
    rig.server.stop();
    let replica = rig.server.copy(&["--server-id=2", "--read-only=1"]);
    rig.server.restart();
    assert_eq!(level(&rig).await.0, Level::LeaseBounded);
    replica.says(&format!(
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {}, MASTER_USER = 'root'; START SLAVE",
        rig.server.port()
    ));
    until("it follows", || rig.server.says("SHOW STATUS LIKE 'Slaves_connected'") == ["Slaves_connected|1"])
        .await;
    let (follows, notes) = level(&rig).await;
    assert_eq!(follows, Level::BestEffort);
    assert!(notes.contains("they are not waited for"), "{notes}");
    rig.server.says(
        "SET GLOBAL rpl_semi_sync_master_enabled = 1, GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
    );
    replica.says("SET GLOBAL rpl_semi_sync_slave_enabled = 1; STOP SLAVE; START SLAVE");
    until("it is waited for", || {
        rig.server.says("SHOW STATUS LIKE 'Rpl_semi_sync_master_clients'")
            == ["Rpl_semi_sync_master_clients|1"]
    })
    .await;
    let (follows, notes) = level(&rig).await;
    assert_eq!(follows, Level::BestEffort);
    assert!(notes.contains("up to a time limit"), "{notes}");
}

/// A cluster of one: it is known for what it is, and locks.
#[tokio::test]
async fn galera_is_told_of() {
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
    let grant = take(&*one, &claim).await;
    finds_taken(&*other, "a").await;
    free(&*one, &claim, &grant).await;
    let (level, notes) = level(&rig).await;
    assert_eq!(level, Level::LeaseBounded);
    assert!(notes.contains("Galera"), "{notes}");
}
