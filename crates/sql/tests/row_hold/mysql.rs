//! MariaDB, or the MySQL that `LEASEHOLD_TEST_SYSTEM` names.

use leasehold_sql::{
    RowEngine,
    mysql::{Config, row_engine},
};
use leasehold_testkit::server::{Brand, MariadbServer};
use mysql_async::{Conn, prelude::Queryable};
use tokio::runtime::Runtime;

use crate::rig::told_loss;

struct Rig {
    server: MariadbServer,
}

/// Another program.
struct Foreign {
    conn: std::sync::Mutex<Conn>,
    runtime: Runtime,
}

impl Foreign {
    fn lock(&self, statement: &str) {
        let mut conn = self.conn.lock().unwrap();
        self.runtime.block_on(conn.query_drop(format!("BEGIN; {statement}"))).unwrap();
    }

    fn commit(self) {
        self.runtime.block_on(async { self.conn.into_inner().unwrap().query_drop("COMMIT").await }).unwrap();
    }
}

impl Rig {
    fn new() -> Self {
        Self::of(MariadbServer::start(&[]))
    }

    fn of(server: MariadbServer) -> Self {
        for text in [
            "CREATE TABLE xxl_job_lock (lock_name varchar(50) NOT NULL PRIMARY KEY) ENGINE = InnoDB CHARACTER SET utf8mb4",
            "INSERT INTO xxl_job_lock VALUES ('schedule_lock')",
            "CREATE TABLE qrtz_locks (sched_name varchar(120), lock_name varchar(40), PRIMARY KEY (sched_name, lock_name)) ENGINE = InnoDB",
            "INSERT INTO qrtz_locks VALUES ('reports', 'TRIGGER_ACCESS'), ('other', 'TRIGGER_ACCESS')",
            "CREATE TABLE strict_lock (name varchar(50) NOT NULL PRIMARY KEY, owner varchar(50) NOT NULL) ENGINE = InnoDB",
            "CREATE TABLE wide_lock (name varbinary(512) NOT NULL PRIMARY KEY) ENGINE = InnoDB",
        ] {
            server.query(text);
        }
        Self { server }
    }

    fn engine(&self, rows: RowTable) -> RowEngine {
        self.engine_through(self.server.port(), rows)
    }

    fn engine_through(&self, port: u16, rows: RowTable) -> RowEngine {
        row_engine(Config::from_url(&format!("//root@127.0.0.1:{port}/locks")).unwrap(), rows)
    }

    fn foreign(&self) -> Foreign {
        let runtime = Runtime::new().unwrap();
        let conn = runtime.block_on(Conn::from_url(self.server.url())).unwrap();
        Foreign { conn: conn.into(), runtime }
    }

    fn is_waiting(&self) -> bool {
        self.server.transactions("trx_state = 'LOCK WAIT'") > 0
    }

    fn end_sessions(&self) {
        for id in self.server.query(
            "SELECT id FROM information_schema.processlist WHERE db = 'locks' AND id <> CONNECTION_ID()",
        ) {
            self.server.query(&format!("KILL {id}"));
        }
    }

    fn limit_idle_transactions(&self) {
        self.server.query("SET GLOBAL wait_timeout = 1");
        if Brand::found() == Brand::Mariadb {
            self.server.query("SET GLOBAL idle_transaction_timeout = 1");
        }
    }

    /// Whether a transaction of a hold is older than the limits.
    fn is_old(&self) -> bool {
        self.server.transactions("trx_started < NOW() - INTERVAL 3 SECOND") == 1
    }

    fn connections(&self) -> usize {
        let count = "SELECT count(*) FROM information_schema.processlist WHERE db = 'locks' AND id <> CONNECTION_ID()";
        self.server.query(count)[0].parse().unwrap()
    }

    fn how_to_end(&self, _session: &str) -> String {
        "information_schema.innodb_trx".to_owned()
    }

    const fn shows_holders(&self) -> bool {
        false
    }
}

suite!(Rig);

#[test]
fn a_server_that_is_read_only_is_refused() {
    let rig = Rig::new();
    rig.server.query("SET GLOBAL read_only = ON");
    let locks = locks(rig.engine(xxl_job()));
    let error = locks.mutex("schedule_lock").blocking().try_acquire().unwrap_err();
    assert!(error.is_refused() && error.to_string().contains("name the primary"), "{error:?}");
}

#[test]
fn a_server_that_becomes_read_only_ends_the_hold() {
    let rig = Rig::new();
    let locks = locks(rig.engine(xxl_job()));
    // No renewal could tell the loss.
    let request = locks.mutex("schedule_lock").ttl(Duration::from_secs(60)).renew(false);
    let guard = request.blocking().acquire_within(PATIENCE).unwrap();
    rig.server.query("SET GLOBAL read_only = ON");
    wait_for_loss(&guard);
    assert_eq!(told_loss(&guard), Loss::Gone);
}

#[test]
fn tables_whose_row_locks_exclude_nobody_are_refused() {
    let rig = Rig::new();
    rig.server.query("CREATE TABLE old_lock (name varchar(50) PRIMARY KEY) ENGINE = MyISAM");
    rig.server.query("INSERT INTO old_lock VALUES ('n')");
    rig.server.query("CREATE VIEW seen_lock AS SELECT lock_name AS name FROM xxl_job_lock");
    for (table, kind) in [("old_lock", "MyISAM"), ("locks.old_lock", "MyISAM"), ("seen_lock", "VIEW")] {
        let locks = locks(rig.engine(RowTable::new(table, "name").unwrap()));
        let error = locks.mutex("n").blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured(), "{error:?}");
        assert!(error.to_string().contains(&format!("is {kind}, and only")), "{error}");
    }
}

/// A second try beside the first, which the server may still execute, would find the row taken.
#[test]
fn a_try_without_an_answer_is_not_repeated_on_another_connection() {
    let rig = Rig::new();
    let proxy = leasehold_testkit::server::Proxy::start(rig.server.port());
    let engine = rig.engine_through(proxy.port(), xxl_job());
    let runtime = Runtime::new().unwrap();
    runtime.block_on(leasehold_core::Inspect::ping(&engine)).unwrap();
    assert_eq!(proxy.connections(), 1);
    proxy.hold_answers();
    let claim = claims::exclusive("schedule_lock", Duration::from_secs(30));
    let error = runtime.block_on(engine.claim(&claim, How::Create)).unwrap_err();
    assert!(error.to_string().contains("no answer within"), "{error}");
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn the_rights_on_the_page_suffice() {
    let rig = Rig::new();
    rig.server.query("CREATE USER app@'%'");
    rig.server.query("GRANT SELECT ON qrtz_locks TO app@'%'");
    let engine = || {
        let url = format!("//app@127.0.0.1:{}/locks", rig.server.port());
        row_engine(Config::from_url(&url).unwrap(), xxl_job())
    };
    let denied = locks(engine()).mutex("schedule_lock").blocking().try_acquire().unwrap_err();
    assert!(denied.is_denied(), "{denied:?}");
    rig.server.query("GRANT SELECT, UPDATE ON xxl_job_lock TO app@'%'");
    let (holder, other) = (locks(engine()), locks(engine()));
    let guard = acquire(&holder, "schedule_lock");
    assert!(other.mutex("schedule_lock").blocking().try_acquire().unwrap_err().is_taken());
    guard.release_blocking().unwrap();
}

/// MySQL has no Galera.
#[test]
fn a_node_of_galera_is_refused() {
    if Brand::found() == Brand::Mysql {
        return;
    }
    let rig = Rig::of(MariadbServer::start(&[
        "--wsrep-on=ON",
        "--wsrep-provider=/usr/lib/galera/libgalera_smm.so",
        "--wsrep-cluster-address=gcomm://",
        "--wsrep-node-address=127.0.0.1",
        "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0",
        "--wsrep-sst-method=skip",
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
    ]));
    let locks = locks(rig.engine(xxl_job()));
    let error = locks.mutex("schedule_lock").blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("excludes only on one node"), "{error:?}");
}
