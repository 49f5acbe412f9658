//! A database in which other users may create functions, operators, types and tables: no code of theirs runs with our
//! rights.

use std::sync::Arc;

use leasehold_core::{Env, Locks};
use leasehold_sql::{
    SqlEngine,
    postgres::{Config, SCHEMA, engine},
};
use leasehold_testkit::{
    server::{PgBouncer, psql},
    suite::Disturbance,
};

use crate::{
    harness::{Conforms, assert_conforms},
    rig::{Rig, acquire, locks_of},
};

pub(crate) const TRAPS: &str = include_str!("hostile.sql");
const ROLES: &str = include_str!("../../../../docs/engines/postgres-roles.sql");

/// Clients with the role that the page for operators documents.
struct Hostile {
    rig: Rig,
    pooler: Option<PgBouncer>,
}

impl Hostile {
    fn new(pooled: bool) -> Self {
        let rig = Rig::new();
        rig.server.query(SCHEMA);
        rig.server.query(ROLES);
        rig.server.query("GRANT SELECT ON leasehold_lock TO leasehold_viewer");
        rig.server.query(TRAPS);
        let pooler = pooled.then(|| PgBouncer::start(rig.server.port()));
        Self { rig, pooler }
    }

    fn config(&self) -> Config {
        let url = |port| format!("//leasehold@127.0.0.1:{port}/postgres");
        match &self.pooler {
            None => Config::from_url(&url(self.rig.proxy.port())).unwrap(),
            Some(pooler) => Config::from_url(&url(pooler.port()))
                .unwrap()
                .listen(Config::from_url(&url(self.rig.server.port())).unwrap()),
        }
    }

    fn executed(&self) -> Vec<String> {
        self.rig.server.query("SELECT DISTINCT what FROM public.executed")
    }
}

impl Conforms for Hostile {
    fn client(&self) -> Arc<SqlEngine> {
        Arc::new(engine(self.config(), &Env::system()))
    }

    fn disturb(&self, _: Disturbance) -> bool {
        false
    }

    fn rows(&self) -> Vec<String> {
        self.rig.remaining_rows()
    }

    fn max_waiters(&self) -> usize {
        30
    }
}

/// Checks the traps: statements that are not qualified with a schema run them.
fn assert_traps_work(hostile: &Hostile) {
    for (statement, what) in [
        ("SELECT 1::float8 * 2::int4", "float8 * int4"),
        ("SELECT unnest('{a}'::text[])", "unnest text[]"),
        ("SELECT 'a'::name || 1::int8", "name || int8"),
    ] {
        let output = psql(hostile.rig.server.port(), &["-U", "leasehold", "-c", statement]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(hostile.executed(), [what], "{statement}");
        hostile.rig.server.query("DELETE FROM public.executed");
    }
}

#[test]
fn no_function_operator_or_type_of_others_is_used() {
    let hostile = Hostile::new(false);
    assert_traps_work(&hostile);
    // Tested first: a client in a trap may hang.
    let locks = Locks::builder(Arc::new(engine(hostile.config(), &Env::system()))).build();
    let first = locks.mutex("first").blocking().try_acquire();
    assert_eq!(hostile.executed(), [""; 0]);
    first.unwrap().release_blocking().unwrap();
    assert_conforms(&hostile, 70);
    let locks = Locks::builder(Arc::new(engine(hostile.config(), &Env::system()))).build();
    hostile.rig.run(locks.guarantee()).unwrap();
    assert_eq!(hostile.executed(), [""; 0]);
}

#[test]
fn behind_a_pooler_no_function_of_others_is_used() {
    let hostile = Hostile::new(true);
    assert_traps_work(&hostile);
    assert_conforms(&hostile, 70);
    let locks = Locks::builder(Arc::new(engine(hostile.config(), &Env::system()))).build();
    hostile.rig.run(locks.guarantee()).unwrap();
    assert_eq!(hostile.executed(), [""; 0]);
}

/// The owner of the tables decides what they do.
#[test]
fn foreign_tables_need_a_trusted_owner() {
    let rig = Rig::new();
    rig.server.query("CREATE ROLE mallory LOGIN; GRANT CREATE, USAGE ON SCHEMA public TO mallory; CREATE ROLE victim LOGIN");
    let output = psql(rig.server.port(), &["-U", "mallory", "-v", "ON_ERROR_STOP=1", "-c", SCHEMA]);
    assert!(output.status.success(), "{output:?}");
    rig.server.query("GRANT ALL ON leasehold_meta, leasehold_lock, leasehold_claim TO victim");
    let port = rig.server.port();
    let error = locks_of("victim", port).mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured(), "{error}");
    assert!(
        error.to_string().contains("belongs to mallory") && error.to_string().contains("table_owner=mallory"),
        "{error}"
    );
    let config =
        Config::from_url(&format!("//victim@127.0.0.1:{port}/postgres")).unwrap().table_owner("mallory");
    let locks = Locks::builder(Arc::new(engine(config, &Env::system()))).build();
    acquire(&locks, "a").release_blocking().unwrap();
    // A role that we are a member of is trusted.
    rig.server.query("GRANT mallory TO victim");
    acquire(&locks_of("victim", port), "a").release_blocking().unwrap();
}

#[test]
fn altered_tables_are_refused() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'");
    for (make, undo, word) in [
        (
            "CREATE TRIGGER t BEFORE INSERT ON leasehold_lock FOR EACH ROW EXECUTE FUNCTION f()",
            "DROP TRIGGER t ON leasehold_lock",
            "a trigger",
        ),
        (
            "CREATE RULE r AS ON DELETE TO leasehold_claim DO ALSO NOTHING",
            "DROP RULE r ON leasehold_claim",
            "a rule",
        ),
        (
            "ALTER TABLE leasehold_meta ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE leasehold_meta DISABLE ROW LEVEL SECURITY",
            "row level security",
        ),
        (
            "ALTER TABLE leasehold_meta RENAME TO m; CREATE VIEW leasehold_meta AS SELECT * FROM m",
            "DROP VIEW leasehold_meta; ALTER TABLE m RENAME TO leasehold_meta",
            "it is a view",
        ),
        (
            "ALTER TABLE leasehold_lock ALTER COLUMN since TYPE text",
            "ALTER TABLE leasehold_lock ALTER COLUMN since DROP DEFAULT, ALTER COLUMN since TYPE bigint USING 0, ALTER COLUMN since SET DEFAULT 0",
            "its column since must be a bigint",
        ),
        (
            "ALTER TABLE leasehold_claim ADD COLUMN colour integer NOT NULL",
            "ALTER TABLE leasehold_claim DROP COLUMN colour",
            "its column colour integer is not one of leasehold's",
        ),
        (
            "ALTER TABLE leasehold_claim RENAME TO c",
            "ALTER TABLE c RENAME TO leasehold_claim",
            "does not exist",
        ),
    ] {
        rig.server.query(make);
        let error = rig.locks().mutex("a").blocking().try_acquire().unwrap_err();
        assert!(error.is_misconfigured() && error.to_string().contains(word), "{make}: {error}");
        rig.server.query(undo);
        acquire(&rig.locks(), "a").release_blocking().unwrap();
    }
}

#[test]
fn tables_are_found_by_search_path_or_url() {
    let rig = Rig::new();
    rig.server.query("CREATE SCHEMA \"o\"\"dd\"; CREATE SCHEMA mine; CREATE SCHEMA leasehold_lock");
    rig.server.query("CREATE ROLE someone SUPERUSER LOGIN");
    rig.server.query("ALTER ROLE someone SET search_path = mine");
    let port = rig.server.port();
    acquire(&locks_of("someone", port), "a").release_blocking().unwrap();
    let of = |schema: &str| in_schema("postgres", port, schema);
    // Two schemas are two sets of locks, and one schema is one set of locks, however a client finds the schema.
    let held = acquire(&of("mine"), "a");
    assert!(locks_of("someone", port).mutex("a").blocking().try_acquire().unwrap_err().is_taken());
    let odd = acquire(&of("o\"dd"), "a");
    acquire(&of("leasehold_lock"), "a").release_blocking().unwrap();
    assert_eq!(
        rig.server.query("SELECT schemaname FROM pg_tables WHERE tablename = 'leasehold_lock' ORDER BY 1"),
        ["leasehold_lock", "mine", "o\"dd"]
    );
    held.release_blocking().unwrap();
    odd.release_blocking().unwrap();
}

/// Locks whose tables are in this schema.
fn in_schema(user: &str, port: u16, schema: &str) -> Locks {
    let config =
        Config::from_url(&format!("//{user}@127.0.0.1:{port}/postgres")).unwrap().schema(schema).unwrap();
    Locks::builder(Arc::new(engine(config, &Env::system()))).build()
}

/// A schema is created only by a user with the right to create it, and only if it does not exist.
#[test]
fn a_missing_schema_is_created_if_the_user_may() {
    let rig = Rig::new();
    rig.server
        .query("CREATE ROLE poor LOGIN; CREATE ROLE rich LOGIN; CREATE SCHEMA given AUTHORIZATION poor");
    rig.server.query("GRANT CREATE ON DATABASE postgres TO rich");
    let port = rig.server.port();
    let of = |user, schema| in_schema(user, port, schema);
    let error = of("poor", "no\"where").mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("leasehold schema"), "{error}");
    assert!(rig.run(of("rich", "no\"where").show("a")).unwrap().holders.is_empty());
    let schemas = || rig.server.query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'no%'");
    assert!(schemas().is_empty(), "a refused user or `show` created it");
    let held = acquire(&of("rich", "no\"where"), "a");
    assert_eq!(schemas(), ["no\"where"]);
    acquire(&of("poor", "given"), "a").release_blocking().unwrap();
    held.release_blocking().unwrap();
    for schema in ["", "a\nb", &"x".repeat(64)] {
        let config = Config::from_url("//h/d").unwrap();
        assert!(config.schema(schema).unwrap_err().is_misconfigured(), "{schema}");
    }
}

#[test]
fn a_database_without_utf8_is_refused() {
    let rig = Rig::new();
    rig.server
        .query("CREATE DATABASE narrow ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    let config = Config::from_url(&format!("//postgres@127.0.0.1:{}/narrow", rig.server.port())).unwrap();
    let locks = Locks::builder(Arc::new(engine(config, &Env::system()))).build();
    let error = locks.mutex("a").blocking().try_acquire().unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("LATIN1"), "{error}");
}
