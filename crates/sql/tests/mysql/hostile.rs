//! A database in which other users may create functions, triggers and tables, on a server with unusual settings: no
//! code of other users runs with our rights, and our statements keep their meaning.

use leasehold_core::{Engine, Fault, How};
use leasehold_sql::mysql::{GRANTS, SCHEMA};

use crate::{
    harness::assert_conforms,
    rig::{
        Rig, USER, as_user, claim, claim_and_hold, engine_at, is_mysql, release_hold, use_every_statement,
    },
};

/// Every function that our statements call, with the number of its arguments.
const FUNCTIONS: [(&str, usize); 17] = [
    ("cast", 1),
    ("coalesce", 2),
    ("concat", 2),
    ("count", 1),
    ("current_user", 0),
    ("database", 0),
    ("exists", 1),
    ("greatest", 2),
    ("if", 3),
    ("last_insert_id", 1),
    ("left", 2),
    ("max", 1),
    ("min", 1),
    ("replace", 3),
    ("sysdate", 1),
    ("unix_timestamp", 1),
    ("uuid", 0),
];

const FORGET: &str = "DELETE FROM leasehold_claim; DELETE FROM leasehold_lock";

/// Creates functions of those names. Each records its calls, even if the transaction is rolled back.
fn lay_traps(rig: &Rig) {
    if is_mysql() {
        // Otherwise the server refuses functions that write, because its binary log may be in statement format.
        rig.server.query("SET GLOBAL log_bin_trust_function_creators = 1");
    }
    rig.server.query("CREATE TABLE executed (what varchar(64)) ENGINE = MyISAM");
    for (name, arguments) in FUNCTIONS {
        let parameters: Vec<String> = (0..arguments).map(|at| format!("a{at} varbinary(600)")).collect();
        rig.server.query(&format!(
            "DELIMITER //\nCREATE FUNCTION `{name}` ({}) RETURNS bigint BEGIN INSERT INTO executed VALUES ('{name}'); RETURN 1; END //",
            parameters.join(", ")
        ));
    }
}

fn executed(rig: &Rig) -> Vec<String> {
    rig.server.query("SELECT DISTINCT what FROM executed")
}

/// The server finds its own functions before stored ones, unless a space precedes the bracket.
#[test]
fn no_function_of_others_is_called() {
    let rig = Rig::new();
    lay_traps(&rig);
    for (statement, what) in [("SELECT min (1)", "min"), ("SELECT locks.greatest(1, 2)", "greatest")] {
        rig.server.query(statement);
        assert_eq!(executed(&rig), [what], "this statement runs the hostile function: {statement}");
        rig.server.query("DELETE FROM executed");
    }
    assert_conforms(&rig, 80);
    let engine = rig.engine();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(use_every_statement(&engine, &rig.engine()));
    assert_eq!(executed(&rig), [""; 0]);
}

const MODES_OF_MARIADB: &[&str] = &["SIMULTANEOUS_ASSIGNMENT", "EMPTY_STRING_IS_NULL", "ORACLE"];
const MODES_OF_MYSQL: &[&str] = &["TIME_TRUNCATE_FRACTIONAL", "ALLOW_INVALID_DATES", "ANSI", "TRADITIONAL"];
const SETTINGS_OF_MARIADB: &[(&str, &str, &str)] =
    &[("tx_read_only", "1", "0"), ("tx_isolation", "'SERIALIZABLE'", "'REPEATABLE-READ'")];
const SETTINGS_OF_MYSQL: &[(&str, &str, &str)] = &[
    ("transaction_read_only", "1", "0"),
    ("transaction_isolation", "'SERIALIZABLE'", "'REPEATABLE-READ'"),
    ("sql_require_primary_key", "1", "0"),
    ("sql_generate_invisible_primary_key", "1", "0"),
    ("default_collation_for_utf8mb4", "'utf8mb4_general_ci'", "'utf8mb4_0900_ai_ci'"),
    ("default_storage_engine", "'MyISAM'", "'InnoDB'"),
];

/// Each setting changes the meaning or the result of some statement, for clients that do not set it themselves.
#[tokio::test]
async fn server_settings_change_nothing() {
    let rig = Rig::new();
    let original_mode = rig.server.query("SELECT @@GLOBAL.sql_mode").remove(0);
    let modes = if is_mysql() { MODES_OF_MYSQL } else { MODES_OF_MARIADB };
    for mode in [
        "",
        "ANSI_QUOTES",
        "PIPES_AS_CONCAT",
        "NO_BACKSLASH_ESCAPES",
        "IGNORE_SPACE",
        "HIGH_NOT_PRECEDENCE",
        "NO_UNSIGNED_SUBTRACTION",
        "ONLY_FULL_GROUP_BY",
        "PAD_CHAR_TO_FULL_LENGTH",
        "REAL_AS_FLOAT",
    ]
    .iter()
    .chain(modes)
    {
        eprintln!("sql_mode = {mode}");
        rig.server.query(&format!("SET GLOBAL sql_mode = '{mode}'"));
        use_every_statement(&rig.engine(), &rig.engine()).await;
        rig.server.query(FORGET);
    }
    rig.server.query(&format!("SET GLOBAL sql_mode = '{original_mode}'"));
    let settings = if is_mysql() { SETTINGS_OF_MYSQL } else { SETTINGS_OF_MARIADB };
    for (setting, changed, usual) in [
        ("completion_type", "'CHAIN'", "'NO_CHAIN'"),
        ("completion_type", "'RELEASE'", "'NO_CHAIN'"),
        ("sql_select_limit", "1", "18446744073709551615"),
        ("sql_safe_updates", "1", "0"),
        ("max_join_size", "1", "18446744073709551615"),
        ("autocommit", "0", "1"),
        ("time_zone", "'-11:00'", "'SYSTEM'"),
        ("character_set_server", "'latin1'", "'utf8mb4'"),
        ("character_set_client", "'latin1'", "'utf8mb4'"),
    ]
    .iter()
    .chain(settings)
    {
        eprintln!("{setting} = {changed}");
        rig.server.query(&format!("SET GLOBAL {setting} = {changed}"));
        let (one, other) = (rig.engine(), rig.engine());
        use_every_statement(&one, &other).await;
        let held = [claim_and_hold(&*one, &claim("x")).await, claim_and_hold(&*one, &claim("y")).await];
        rig.server.query(&format!("SET GLOBAL {setting} = {usual}"));
        let others = rig.server.query("SELECT name FROM leasehold_lock WHERE name >= 'x'");
        assert_eq!(others, ["x", "y"], "{setting} = {changed}: others see the holds {held:?}");
        rig.server.query(FORGET);
    }
}

/// Changes by another user, how each is undone, and a part of the message.
const CHANGED: &[(&str, &str, &str)] = &[
    (
        "ALTER TABLE leasehold_lock ADD colour int NOT NULL",
        "ALTER TABLE leasehold_lock DROP colour",
        "its column colour is not one of leasehold's",
    ),
    (
        "CREATE TRIGGER t BEFORE INSERT ON leasehold_lock FOR EACH ROW SET NEW.token = 1",
        "DROP TRIGGER t",
        "its table leasehold_lock has the trigger t, ",
    ),
    (
        "CREATE TRIGGER u AFTER DELETE ON leasehold_claim FOR EACH ROW DO 0",
        "DROP TRIGGER u",
        "its table leasehold_claim has the trigger u, ",
    ),
    (
        "RENAME TABLE leasehold_meta TO m; CREATE VIEW leasehold_meta AS SELECT * FROM m",
        "DROP VIEW leasehold_meta; RENAME TABLE m TO leasehold_meta",
        "leasehold_meta is not a table of InnoDB but a view",
    ),
    (
        "RENAME TABLE leasehold_lock TO l; CREATE VIEW leasehold_lock AS SELECT * FROM l",
        "DROP VIEW leasehold_lock; RENAME TABLE l TO leasehold_lock",
        "leasehold_lock is not a table of InnoDB but a view",
    ),
    (
        "ALTER TABLE leasehold_lock ENGINE = MyISAM",
        "ALTER TABLE leasehold_lock ENGINE = InnoDB",
        "leasehold_lock is not a table of InnoDB but a base table of MyISAM",
    ),
    (
        "RENAME TABLE leasehold_claim TO c",
        "RENAME TABLE c TO leasehold_claim",
        "its table leasehold_claim does not exist",
    ),
    (
        "ALTER TABLE leasehold_lock MODIFY since bigint unsigned NOT NULL DEFAULT 0",
        "ALTER TABLE leasehold_lock MODIFY since bigint NOT NULL DEFAULT 0",
        "its column since must be bigint but is bigint",
    ),
    (
        "ALTER TABLE leasehold_claim MODIFY name varchar(512) NOT NULL",
        "ALTER TABLE leasehold_claim MODIFY name varbinary(512) NOT NULL",
        "its column name must be varbinary(512) but is varchar(512)",
    ),
    (
        "ALTER TABLE leasehold_lock DROP stamp",
        "ALTER TABLE leasehold_lock ADD stamp bigint NOT NULL DEFAULT 0",
        "its column stamp must be bigint but is missing",
    ),
    (
        "ALTER TABLE leasehold_lock DROP tokens, ADD tokens int AS (1) VIRTUAL",
        "ALTER TABLE leasehold_lock DROP tokens, ADD tokens int NOT NULL DEFAULT 0 AFTER holder",
        "its column tokens must be int but is int",
    ),
    (
        "ALTER TABLE leasehold_lock DROP PRIMARY KEY",
        "ALTER TABLE leasehold_lock ADD PRIMARY KEY (name)",
        "its unique keys must be (name) but are none",
    ),
    (
        "ALTER TABLE leasehold_lock DROP PRIMARY KEY, ADD PRIMARY KEY (name(4))",
        "ALTER TABLE leasehold_lock DROP PRIMARY KEY, ADD PRIMARY KEY (name)",
        "its unique keys must be (name) but are (name(4))",
    ),
    (
        "ALTER TABLE leasehold_claim ADD UNIQUE (place)",
        "ALTER TABLE leasehold_claim DROP KEY place",
        "its unique keys must be (name, id) but are (name, id), (place)",
    ),
];

const CHANGED_ON_MARIADB: &[(&str, &str, &str)] = &[(
    "ALTER TABLE leasehold_claim ADD SYSTEM VERSIONING",
    "ALTER TABLE leasehold_claim DROP SYSTEM VERSIONING",
    "leasehold_claim is not a table of InnoDB but a system versioned",
)];
const CHANGED_ON_MYSQL: &[(&str, &str, &str)] = &[
    (
        "ALTER TABLE leasehold_lock ADD colour int NOT NULL DEFAULT 0 INVISIBLE",
        "ALTER TABLE leasehold_lock DROP colour",
        "its column colour is not one of leasehold's",
    ),
    (
        "ALTER TABLE leasehold_lock ADD UNIQUE odd ((token + 1))",
        "ALTER TABLE leasehold_lock DROP KEY odd",
        "its unique keys must be (name) but are (name), (an expression)",
    ),
];

#[tokio::test]
async fn altered_tables_are_refused() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    let more_changes = if is_mysql() { CHANGED_ON_MYSQL } else { CHANGED_ON_MARIADB };
    for &(make, undo, message) in CHANGED.iter().chain(more_changes) {
        rig.server.query(make);
        let error = rig.engine().claim(&claim("a"), How::Create).await.unwrap_err();
        assert!(error.fault == Fault::Misconfigured && error.message.contains(message), "{make}: {error:?}");
        rig.server.query(undo);
        let engine = rig.engine();
        let claim = claim("a");
        let grant = claim_and_hold(&*engine, &claim).await;
        release_hold(&*engine, &claim, &grant).await;
    }
}

/// Existing tables are not read if that would execute code of another user.
#[tokio::test]
async fn a_view_is_not_read() {
    let rig = Rig::new();
    lay_traps(&rig);
    rig.server.query(SCHEMA);
    rig.server.query(
        "RENAME TABLE leasehold_meta TO m; CREATE SQL SECURITY INVOKER VIEW leasehold_meta AS \
         SELECT one, version + locks.left(1, 1) - 1 AS version, lineage FROM m",
    );
    rig.server.query("SELECT version FROM leasehold_meta");
    assert_eq!(executed(&rig), ["left"], "reading the view calls the function");
    rig.server.query("DELETE FROM executed");
    let error = rig.engine().claim(&claim("a"), How::Create).await.unwrap_err();
    assert!(error.fault == Fault::Misconfigured && error.message.contains("view"), "{error:?}");
    assert_eq!(executed(&rig), [""; 0]);
}

/// MariaDB shows triggers to users with the right to write the table. MySQL shows them only to users with the right to
/// create triggers; the documentation page explains the consequence.
#[tokio::test]
async fn a_user_with_minimal_rights_sees_a_trigger() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(USER);
    rig.server.query(GRANTS);
    for table in ["leasehold_lock", "leasehold_claim"] {
        rig.server.query(&format!("CREATE TRIGGER t AFTER UPDATE ON {table} FOR EACH ROW DO 0"));
        if is_mysql() {
            rig.server.query("GRANT TRIGGER ON locks.* TO locker@'%'");
        }
        let error = engine_at(&as_user(&rig)).claim(&claim("a"), How::Create).await.unwrap_err();
        assert!(error.fault == Fault::Misconfigured && error.message.contains("the trigger t"), "{error:?}");
        rig.server.query("DROP TRIGGER t");
    }
    claim_and_hold(&*engine_at(&as_user(&rig)), &claim("a")).await;
}
