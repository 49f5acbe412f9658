//! Tables of other programs on PostgreSQL.

use std::sync::Arc;

use leasehold_core::{Env, Inspect, Level};
use leasehold_sql::{
    ForeignTable, ForeignTableEngine, Layout,
    postgres::{Config, foreign_table_engine},
};
use leasehold_testkit::server::{PostgresServer, Proxy};

use crate::{
    foreign::{
        LAYOUTS, Site, assert_taken, conforms::assert_conforms, crowd, held, late, operators, released,
        steps, table, theirs::Dialect, tokens, try_claim,
    },
    rig::Rig,
};

static DIALECT: Dialect = Dialect {
    tables: ["shedlock", "lock_keys", "cache_locks", "databasechangeloglock", "method_lock"],
    create: [
        "DROP TABLE IF EXISTS shedlock; CREATE TABLE shedlock(name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL, \
         locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
        "DROP TABLE IF EXISTS lock_keys; CREATE TABLE lock_keys (key_id VARCHAR(64) NOT NULL PRIMARY KEY, \
         key_token VARCHAR(44) NOT NULL, key_expiration INTEGER)",
        "DROP TABLE IF EXISTS cache_locks; CREATE TABLE cache_locks (key VARCHAR(255) NOT NULL PRIMARY KEY, \
         owner VARCHAR(255) NOT NULL, expiration INTEGER NOT NULL)",
        "DROP TABLE IF EXISTS databasechangeloglock; CREATE TABLE databasechangeloglock (ID INTEGER NOT NULL, \
         LOCKED BOOLEAN NOT NULL, LOCKGRANTED TIMESTAMP WITHOUT TIME ZONE, LOCKEDBY VARCHAR(255), \
         CONSTRAINT databasechangeloglock_pkey PRIMARY KEY (ID)); INSERT INTO databasechangeloglock (ID, LOCKED) VALUES (1, FALSE)",
        "DROP TABLE IF EXISTS method_lock; CREATE TABLE method_lock (id SERIAL PRIMARY KEY, method_name VARCHAR(64) NOT NULL \
         UNIQUE, description VARCHAR(1024) NOT NULL DEFAULT '', update_time TIMESTAMP NOT NULL DEFAULT now())",
    ],
    coarse: "DROP TABLE IF EXISTS shedlock; CREATE TABLE shedlock(name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP(0) NOT NULL, \
         locked_at TIMESTAMP(0) NOT NULL, locked_by VARCHAR(255) NOT NULL)",
    wide: [
        "CREATE TABLE shedlock(name VARCHAR(600) PRIMARY KEY, lock_until TIMESTAMPTZ NOT NULL, locked_at TIMESTAMPTZ NOT NULL, \
         locked_by VARCHAR(255) NOT NULL)",
        "CREATE TABLE lock_keys (key_id VARCHAR(64) NOT NULL PRIMARY KEY, key_token VARCHAR(44) NOT NULL, key_expiration INTEGER)",
        "CREATE TABLE cache_locks (key VARCHAR(600) PRIMARY KEY, owner TEXT NOT NULL, expiration BIGINT NOT NULL)",
        "CREATE TABLE databasechangeloglock (ID INTEGER PRIMARY KEY, LOCKED BOOLEAN NOT NULL, LOCKGRANTED TIMESTAMP, \
         LOCKEDBY VARCHAR(255))",
        "CREATE TABLE method_lock (method_name TEXT PRIMARY KEY)",
    ],
    take: [
        "WITH taken AS (INSERT INTO shedlock(name, lock_until, locked_at, locked_by) VALUES (:name, \
         timezone('utc', CURRENT_TIMESTAMP) + cast(':seconds seconds' as interval), timezone('utc', CURRENT_TIMESTAMP), :owner) \
         ON CONFLICT (name) DO UPDATE SET lock_until = excluded.lock_until, locked_at = excluded.locked_at, \
         locked_by = excluded.locked_by WHERE shedlock.lock_until <= timezone('utc', CURRENT_TIMESTAMP) RETURNING 1) \
         SELECT count(*) FROM taken",
        "WITH added AS (INSERT INTO lock_keys (key_id, key_token, key_expiration) VALUES (encode(sha256(convert_to(:name, 'UTF8')), 'hex'), :owner, \
         CAST(EXTRACT(epoch FROM NOW()) AS INT) + :seconds) ON CONFLICT DO NOTHING RETURNING 1), \
         changed AS (UPDATE lock_keys SET key_token = :owner, key_expiration = CAST(EXTRACT(epoch FROM NOW()) AS INT) + :seconds \
         WHERE key_id = encode(sha256(convert_to(:name, 'UTF8')), 'hex') AND (key_token = :owner OR key_expiration <= \
         CAST(EXTRACT(epoch FROM NOW()) AS INT)) RETURNING 1) SELECT (SELECT count(*) FROM added) + (SELECT count(*) FROM changed)",
        "WITH added AS (INSERT INTO cache_locks (key, owner, expiration) VALUES (:name, :owner, \
         floor(extract(epoch FROM now()))::int + :seconds) ON CONFLICT DO NOTHING RETURNING 1), \
         changed AS (UPDATE cache_locks SET owner = :owner, expiration = floor(extract(epoch FROM now()))::int + :seconds \
         WHERE key = :name AND (owner = :owner OR expiration <= floor(extract(epoch FROM now()))::int) RETURNING 1) \
         SELECT (SELECT count(*) FROM added) + (SELECT count(*) FROM changed)",
        "WITH taken AS (UPDATE databasechangeloglock SET LOCKED = TRUE, LOCKEDBY = :owner, LOCKGRANTED = NOW() WHERE ID = 1 \
         AND LOCKED = FALSE RETURNING 1) SELECT count(*) FROM taken",
        "WITH added AS (INSERT INTO method_lock (method_name) VALUES (:name) ON CONFLICT DO NOTHING RETURNING 1) \
         SELECT count(*) FROM added",
    ],
    free: [
        "UPDATE shedlock SET lock_until = CASE WHEN locked_at + cast(':seconds seconds' as interval) > \
         timezone('utc', CURRENT_TIMESTAMP) THEN locked_at + cast(':seconds seconds' as interval) ELSE \
         timezone('utc', CURRENT_TIMESTAMP) END WHERE name = :name AND locked_by = :owner",
        "DELETE FROM lock_keys WHERE key_id = encode(sha256(convert_to(:name, 'UTF8')), 'hex') AND key_token = :owner",
        "DELETE FROM cache_locks WHERE key = :name AND owner = :owner",
        "UPDATE databasechangeloglock SET LOCKED = FALSE, LOCKEDBY = NULL, LOCKGRANTED = NULL WHERE ID = 1",
        "DELETE FROM method_lock WHERE method_name = :name",
    ],
    free_by_name: "UPDATE shedlock SET lock_until = timezone('utc', CURRENT_TIMESTAMP) WHERE name = :name",
    held: [
        "SELECT name FROM shedlock WHERE lock_until > timezone('utc', clock_timestamp())",
        "SELECT key_id FROM lock_keys WHERE key_expiration > extract(epoch FROM clock_timestamp())",
        "SELECT key FROM cache_locks WHERE expiration > extract(epoch FROM clock_timestamp())",
        "SELECT id FROM databasechangeloglock WHERE locked",
        "SELECT method_name FROM method_lock",
    ],
    unlocked_row: "INSERT INTO databasechangeloglock (ID, LOCKED) VALUES (1, FALSE)",
    now: "SELECT extract(epoch FROM clock_timestamp())",
    last_year: "UPDATE databasechangeloglock SET lockgranted = lockgranted - interval '1 year'",
};

impl Site for Rig {
    fn engine(&self, table: ForeignTable) -> Arc<ForeignTableEngine> {
        engine_at(&format!("//postgres@127.0.0.1:{}/postgres", self.proxy.port()), table)
    }

    fn engine_as(&self, user: &str, table: ForeignTable) -> Arc<ForeignTableEngine> {
        engine_at(&format!("//{user}@127.0.0.1:{}/postgres", self.server.port()), table)
    }

    fn query(&self, sql: &str) -> Vec<String> {
        self.server.query(sql)
    }

    fn cut(&self) {
        self.proxy.reset();
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn lock_waits(&self) -> usize {
        count(self, "wait_event_type = 'Lock'")
    }

    fn open_claims(&self) -> usize {
        count(
            self,
            "state = 'idle in transaction' AND query LIKE '%wal_insert%' OR state = 'active' AND query LIKE 'COMMIT%'",
        )
    }

    fn sql(&self) -> &'static Dialect {
        &DIALECT
    }
}

fn engine_at(url: &str, table: ForeignTable) -> Arc<ForeignTableEngine> {
    Arc::new(foreign_table_engine(Config::from_url(url).unwrap(), table, &Env::system()))
}

/// How many connections of leasehold are in this state.
fn count(rig: &Rig, state: &str) -> usize {
    let counted = rig.server.query(&format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'leasehold' AND ({state})"
    ));
    counted[0].parse().unwrap()
}

macro_rules! on_a_server {
    ($($test:ident = $steps:path;)*) => {
        $(#[test]
        fn $test() {
            let rig = Rig::new();
            rig.run($steps(&rig));
        })*
    };
}

foreign_table_tests!(on_a_server);

#[test]
fn rights_on_the_table_alone_suffice() {
    let rig = Rig::new();
    rig.server.query("CREATE ROLE locker LOGIN");
    rig.run(operators::rights_on_the_table_alone_suffice(
        &rig,
        &["GRANT SELECT, INSERT, UPDATE, DELETE ON :table TO locker",
          "DO $$ BEGIN IF to_regclass('method_lock_id_seq') IS NOT NULL THEN GRANT USAGE ON method_lock_id_seq TO locker; END IF; END $$"],
    ));
}

#[test]
fn unusable_tables_are_refused() {
    let rig = Rig::new();
    rig.run(operators::unusable_tables_are_refused(
        &rig,
        &[
            ("CREATE TABLE ODD (name text)", "nothing excludes"),
            (
                "CREATE TABLE ODD (name text UNIQUE, region text NOT NULL)",
                "region of odd_1 must have a value",
            ),
            ("CREATE TABLE ODD (name text UNIQUE DEFERRABLE)", "nothing excludes"),
            ("CREATE TABLE ODD (name int PRIMARY KEY)", "need a text"),
            ("CREATE TABLE ODD (title text PRIMARY KEY)", "has no column name"),
            ("CREATE VIEW ODD AS SELECT 'a'::text AS name", "is a view"),
            ("CREATE UNLOGGED TABLE ODD (name text PRIMARY KEY)", "temporary or unlogged"),
            (
                "CREATE TABLE ODD (name text, b int); CREATE UNIQUE INDEX ON ODD (name) WHERE b > 0",
                "nothing excludes",
            ),
        ],
    ));
}

#[test]
fn tokens_grow_over_a_restart_of_the_server() {
    let mut rig = Rig::of(PostgresServer::durable(&[]));
    rig.server.query(DIALECT.create[0]);
    let before = rig.run(tokens::one_token(&rig));
    rig.server.kill();
    rig.server.restart();
    let after = rig.run(tokens::one_token(&rig));
    assert!(before < after, "{before:?} {after:?}");
}

#[test]
fn a_schema_is_respected() {
    let rig = Rig::new();
    // A question mark in a name is not the place of a value.
    rig.server.query("CREATE SCHEMA \"app?\"; CREATE TABLE \"app?\".shedlock(name VARCHAR(64) PRIMARY KEY, lock_until TIMESTAMP NOT NULL, \
        locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL)");
    rig.server.query(DIALECT.create[0]);
    let config = Config::from_url(&format!("//postgres@127.0.0.1:{}/postgres", rig.server.port())).unwrap();
    let ours = foreign_table_engine(config.schema("app?").unwrap(), table(Layout::Shedlock), &Env::system());
    rig.run(held(&ours, &try_claim(Layout::Shedlock)));
    let count = |table: &str| rig.server.query(&format!("SELECT count(*) FROM {table}"));
    assert_eq!([count("\"app?\".shedlock"), count("public.shedlock")], [["1"], ["0"]]);
}

#[test]
fn the_guarantee_says_what_ends_a_hold() {
    let rig = Rig::of(PostgresServer::durable(&[]));
    for layout in LAYOUTS {
        rig.server.query(DIALECT.create[LAYOUTS.iter().position(|known| *known == layout).unwrap()]);
        let guarantee =
            rig.run(async { rig.engine_as("postgres", table(layout)).guarantee().await.unwrap() });
        let level = if steps::has_time(layout) { Level::LeaseBounded } else { Level::Exact };
        assert_eq!(guarantee.level, level, "{layout:?}: {guarantee}");
        assert!(guarantee.to_string().contains("places in the log"), "{guarantee}");
        let names_clock = guarantee.to_string().contains("usingDbTime()");
        assert_eq!(names_clock, layout == Layout::Shedlock, "{layout:?}: {guarantee}");
    }
}

/// Every request is one transaction, so a pooler that gives each transaction another connection does no harm.
#[test]
fn locks_work_behind_a_pooler_of_transactions() {
    let rig = Rig::new();
    let pooler = leasehold_testkit::server::PgBouncer::start(rig.server.port());
    for layout in LAYOUTS {
        rig.server.query(DIALECT.create[LAYOUTS.iter().position(|known| *known == layout).unwrap()]);
        let url = format!("//postgres@127.0.0.1:{}/postgres", pooler.port());
        let (ours, other) = (engine_at(&url, table(layout)), rig.engine_as("postgres", table(layout)));
        rig.run(async {
            let claim = try_claim(layout);
            let grant = held(&*ours, &claim).await;
            assert_taken(&*other, layout).await;
            let answer = released(&*ours, &claim, Some(&grant)).await;
            assert!(matches!(answer, leasehold_core::Released::Freed), "{layout:?}: {answer:?}");
        });
    }
}

#[test]
fn a_client_keeps_within_its_connections_and_renews() {
    // One of three is the listening connection of other engines, which this engine does not have.
    for (max_connections, most) in [(3, 2), (100, 4)] {
        let rig = Rig::new();
        rig.server.query(DIALECT.create[4]);
        let url = format!("//postgres@127.0.0.1:{}/postgres", rig.server.port());
        let config = Config::from_url(&url).unwrap().max_connections(max_connections).unwrap();
        let ours = Arc::new(foreign_table_engine(config, table(Layout::Insert), &Env::system()));
        rig.run(async {
            let (blocker, connection) =
                tokio_postgres::connect(&rig.server.url(), tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            blocker.batch_execute(&format!("BEGIN; {}", crowd::rows())).await.unwrap();
            crowd::a_client_keeps_within_its_connections_and_renews(ours, most, || rig.connections()).await;
        });
    }
}
