//! Tables of other programs on MySQL and MariaDB.

use std::sync::Arc;

use leasehold_core::{Env, Inspect, Level, Released};
use leasehold_sql::{
    ForeignTable, ForeignTableEngine, Layout,
    mysql::{Config, foreign_table_engine},
};
use leasehold_testkit::server::{MariadbServer, Proxy};

use crate::{
    foreign::{
        LAYOUTS, Site, assert_taken, conforms::assert_conforms, held, late, name, operators, released, steps,
        table, theirs::Dialect, tokens, try_claim,
    },
    rig::{Rig, USER},
};

static DIALECT: Dialect = Dialect {
    tables: ["shedlock", "lock_keys", "cache_locks", "DATABASECHANGELOGLOCK", "method_lock"],
    create: [
        "DROP TABLE IF EXISTS shedlock; CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP(3) NOT NULL, \
         locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
        "DROP TABLE IF EXISTS lock_keys; CREATE TABLE lock_keys (key_id VARCHAR(64) NOT NULL PRIMARY KEY, \
         key_token VARCHAR(44) NOT NULL, key_expiration INTEGER UNSIGNED NOT NULL) COLLATE utf8mb4_bin, ENGINE = InnoDB",
        "DROP TABLE IF EXISTS cache_locks; CREATE TABLE cache_locks (`key` VARCHAR(255) NOT NULL PRIMARY KEY, \
         owner VARCHAR(255) NOT NULL, expiration INT NOT NULL)",
        "DROP TABLE IF EXISTS DATABASECHANGELOGLOCK; CREATE TABLE DATABASECHANGELOGLOCK (ID INT NOT NULL, \
         `LOCKED` BIT(1) NOT NULL, LOCKGRANTED datetime NULL, LOCKEDBY VARCHAR(255) NULL, \
         CONSTRAINT PK_DATABASECHANGELOGLOCK PRIMARY KEY (ID)); INSERT INTO DATABASECHANGELOGLOCK (ID, `LOCKED`) VALUES (1, 0)",
        "DROP TABLE IF EXISTS method_lock; CREATE TABLE method_lock (id int NOT NULL AUTO_INCREMENT, method_name varchar(64) \
         NOT NULL, `desc` varchar(1024) NOT NULL DEFAULT '', update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE \
         CURRENT_TIMESTAMP, PRIMARY KEY (id), UNIQUE KEY uidx_method_name (method_name)) ENGINE = InnoDB",
    ],
    coarse: "DROP TABLE IF EXISTS shedlock; CREATE TABLE shedlock(name VARCHAR(64) PRIMARY KEY, lock_until DATETIME NOT NULL, \
         locked_at DATETIME NOT NULL, locked_by VARCHAR(255) NOT NULL)",
    wide: [
        "CREATE TABLE shedlock(name VARCHAR(600) COLLATE COLLATION PRIMARY KEY, lock_until TIMESTAMP(3) NOT NULL, \
         locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL) CHARSET utf8mb4",
        "CREATE TABLE lock_keys (key_id VARCHAR(64) NOT NULL PRIMARY KEY, key_token VARCHAR(44) NOT NULL, \
         key_expiration INTEGER UNSIGNED NOT NULL) COLLATE utf8mb4_bin",
        "CREATE TABLE cache_locks (`key` VARCHAR(600) COLLATE COLLATION PRIMARY KEY, owner VARCHAR(255) NOT NULL, \
         expiration BIGINT NOT NULL) CHARSET utf8mb4",
        "CREATE TABLE DATABASECHANGELOGLOCK (ID INT PRIMARY KEY, `LOCKED` TINYINT NOT NULL, LOCKGRANTED datetime NULL, \
         LOCKEDBY VARCHAR(255) NULL)",
        "CREATE TABLE method_lock (method_name VARCHAR(600) COLLATE COLLATION PRIMARY KEY) CHARSET utf8mb4",
    ],
    take: [
        "INSERT IGNORE INTO shedlock(name, lock_until, locked_at, locked_by) VALUES (:name, TIMESTAMPADD(MICROSECOND, \
         :seconds * 1000000, UTC_TIMESTAMP(3)), UTC_TIMESTAMP(3), :owner); SET @added = ROW_COUNT(); \
         UPDATE shedlock SET lock_until = TIMESTAMPADD(MICROSECOND, :seconds * 1000000, UTC_TIMESTAMP(3)), \
         locked_at = UTC_TIMESTAMP(3), locked_by = :owner WHERE name = :name AND lock_until <= UTC_TIMESTAMP(3) AND @added < 1; \
         SELECT GREATEST(@added, ROW_COUNT())",
        "INSERT IGNORE INTO lock_keys (key_id, key_token, key_expiration) VALUES (SHA2(:name, 256), :owner, \
         UNIX_TIMESTAMP(NOW()) + :seconds); SET @added = ROW_COUNT(); UPDATE lock_keys SET key_token = :owner, \
         key_expiration = UNIX_TIMESTAMP(NOW()) + :seconds WHERE key_id = SHA2(:name, 256) AND (key_token = :owner OR \
         key_expiration <= UNIX_TIMESTAMP(NOW())) AND @added < 1; SELECT GREATEST(@added, ROW_COUNT())",
        "INSERT IGNORE INTO cache_locks (`key`, owner, expiration) VALUES (:name, :owner, UNIX_TIMESTAMP(NOW()) + :seconds); \
         SET @added = ROW_COUNT(); UPDATE cache_locks SET owner = :owner, expiration = UNIX_TIMESTAMP(NOW()) + :seconds \
         WHERE `key` = :name AND (owner = :owner OR expiration <= UNIX_TIMESTAMP(NOW())) AND @added < 1; \
         SELECT GREATEST(@added, ROW_COUNT())",
        "UPDATE DATABASECHANGELOGLOCK SET `LOCKED` = 1, LOCKEDBY = :owner, LOCKGRANTED = NOW() WHERE ID = 1 AND `LOCKED` = 0; \
         SELECT ROW_COUNT()",
        "INSERT IGNORE INTO method_lock (method_name) VALUES (:name); SELECT ROW_COUNT()",
    ],
    free: [
        "UPDATE shedlock SET lock_until = IF(TIMESTAMPADD(MICROSECOND, :seconds, locked_at) > UTC_TIMESTAMP(3), \
         TIMESTAMPADD(MICROSECOND, :seconds, locked_at), UTC_TIMESTAMP(3)) WHERE name = :name AND locked_by = :owner",
        "DELETE FROM lock_keys WHERE key_id = SHA2(:name, 256) AND key_token = :owner",
        "DELETE FROM cache_locks WHERE `key` = :name AND owner = :owner",
        "UPDATE DATABASECHANGELOGLOCK SET `LOCKED` = 0, LOCKEDBY = NULL, LOCKGRANTED = NULL WHERE ID = 1",
        "DELETE FROM method_lock WHERE method_name = :name",
    ],
    free_by_name: "UPDATE shedlock SET lock_until = UTC_TIMESTAMP(3) WHERE name = :name",
    held: [
        "SELECT name FROM shedlock WHERE lock_until > UTC_TIMESTAMP(6)",
        "SELECT key_id FROM lock_keys WHERE key_expiration > UNIX_TIMESTAMP()",
        "SELECT `key` FROM cache_locks WHERE expiration > UNIX_TIMESTAMP()",
        "SELECT ID FROM DATABASECHANGELOGLOCK WHERE `LOCKED` = 1",
        "SELECT method_name FROM method_lock",
    ],
    unlocked_row: "INSERT INTO DATABASECHANGELOGLOCK (ID, `LOCKED`) VALUES (1, 0)",
    now: "SELECT UNIX_TIMESTAMP(SYSDATE(6))",
    last_year: "UPDATE DATABASECHANGELOGLOCK SET LOCKGRANTED = LOCKGRANTED - INTERVAL 1 YEAR",
};

impl Site for Rig {
    fn engine(&self, table: ForeignTable) -> Arc<ForeignTableEngine> {
        engine_at(&format!("//root@127.0.0.1:{}/locks", self.proxy.port()), table)
    }

    fn engine_as(&self, user: &str, table: ForeignTable) -> Arc<ForeignTableEngine> {
        let login = if user == "root" { "root".to_owned() } else { format!("{user}:p%40ss%2Fword") };
        engine_at(&format!("//{login}@127.0.0.1:{}/locks", self.server.port()), table)
    }

    fn query(&self, sql: &str) -> Vec<String> {
        // A collation in which two different texts are never equal.
        let collation = if crate::rig::is_mysql() { "utf8mb4_0900_bin" } else { "utf8mb4_nopad_bin" };
        self.server.query(&sql.replace("COLLATE COLLATION", &format!("COLLATE {collation}")))
    }

    fn cut(&self) {
        self.proxy.reset();
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn lock_waits(&self) -> usize {
        self.server.transactions("trx_state = 'LOCK WAIT'")
    }

    fn open_claims(&self) -> usize {
        self.server.transactions("trx_rows_modified > 0")
    }

    fn sql(&self) -> &'static Dialect {
        &DIALECT
    }
}

pub(crate) fn engine_at(url: &str, table: ForeignTable) -> Arc<ForeignTableEngine> {
    Arc::new(foreign_table_engine(Config::from_url(url).unwrap(), table, &Env::system()))
}

macro_rules! on_a_server {
    ($($test:ident = $steps:path;)*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let rig = Rig::new();
            $steps(&rig).await;
        })*
    };
}

foreign_table_tests!(on_a_server);

#[tokio::test]
async fn rights_on_the_table_alone_suffice() {
    let rig = Rig::new();
    rig.server.query(USER);
    let grants = ["GRANT SELECT, INSERT, UPDATE, DELETE ON :table TO locker@'%'"];
    operators::rights_on_the_table_alone_suffice(&rig, &grants).await;
}

#[tokio::test]
async fn unusable_tables_are_refused() {
    let tables = [
        ("CREATE TABLE ODD (name varchar(64))", "nothing excludes"),
        (
            "CREATE TABLE ODD (name varchar(64) UNIQUE, region varchar(9) NOT NULL)",
            "region of odd_1 must have a value",
        ),
        ("CREATE TABLE ODD (name int PRIMARY KEY)", "need a text"),
        ("CREATE TABLE ODD (title varchar(64) PRIMARY KEY)", "has no column name"),
        ("CREATE VIEW ODD AS SELECT 'a' AS name", "is not a table of InnoDB"),
        ("CREATE TABLE ODD (name varchar(64) PRIMARY KEY) ENGINE = MyISAM", "is not a table of InnoDB"),
        ("CREATE TABLE ODD (name varchar(64), UNIQUE KEY part (name(4)))", "nothing excludes"),
    ];
    operators::unusable_tables_are_refused(&Rig::new(), &tables).await;
}

#[tokio::test]
async fn tokens_grow_over_a_restart_of_the_server() {
    let mut rig = Rig::of(MariadbServer::durable(&[]));
    rig.server.query(DIALECT.create[0]);
    let before = tokens::one_token(&rig).await;
    rig.server.kill();
    rig.server.restart();
    let after = tokens::one_token(&rig).await;
    assert!(before < after, "{before:?} {after:?}");
}

/// The sessions of other programs have the zone of the server, by which it stores a `TIMESTAMP`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_in_another_zone_changes_nothing() {
    let rig = Rig::of(MariadbServer::start(&["--default-time-zone=+07:00"]));
    steps::both_exclude_each_other(&rig).await;
    steps::a_killed_holder_blocks_until_its_time_has_passed(&rig).await;
}

#[tokio::test]
async fn the_guarantee_says_what_ends_a_hold() {
    let rig = Rig::of(MariadbServer::durable(&[]));
    for (layout, create) in LAYOUTS.into_iter().zip(DIALECT.create) {
        rig.server.query(create);
        let guarantee = rig.engine_as("root", table(layout)).guarantee().await.unwrap();
        let level = if steps::has_time(layout) { Level::LeaseBounded } else { Level::Exact };
        assert_eq!(guarantee.level, level, "{layout:?}: {guarantee}");
        assert!(guarantee.to_string().contains("UUID_SHORT"), "{guarantee}");
        let names_clock = guarantee.to_string().contains("usingDbTime()");
        assert_eq!(names_clock, layout == Layout::Shedlock, "{layout:?}: {guarantee}");
    }
}

/// Without a column that numbers the rows, a row may be another program's, and a release never deletes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_may_be_of_another_program_stays() {
    let rig = Rig::new();
    let layout = Layout::Insert;
    rig.query(DIALECT.wide[4]);
    let (ours, claim) = (rig.engine_as_proxied(layout), try_claim(layout));
    late::lose_the_answer_to_the_commit(&rig, &*ours, &claim).await;
    // The commit is lost, and another program inserts the row.
    rig.proxy.drop_connections();
    let insert = format!("INSERT INTO method_lock VALUES ('{}')", name(layout));
    crate::rig::until("the transaction of the claim has ended", || rig.open_claims() == 0).await;
    rig.query(&insert);
    assert!(matches!(released(&*ours, &claim, None).await, Released::NotThere));
    assert_eq!(rig.query("SELECT COUNT(*) FROM method_lock"), ["1"]);
    assert_taken(&*ours, layout).await;
    rig.query("DELETE FROM method_lock");
    held(&*ours, &try_claim(layout)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_dropped_while_it_commits_leaves_no_row() {
    let rig = Rig::new();
    rig.query(DIALECT.wide[4]);
    late::a_claim_dropped_while_it_commits_leaves_no_row(&rig, Layout::Insert).await;
}

impl Rig {
    fn engine_as_proxied(&self, layout: Layout) -> Arc<ForeignTableEngine> {
        Site::engine(self, table(layout))
    }
}
