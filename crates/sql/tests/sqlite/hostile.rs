//! Files prepared by an attacker: their code never runs, and the error names it.

use leasehold_core::Fault;
use leasehold_sql::sqlite::SCHEMA;

use crate::{
    client::{Client, claim},
    rig::Rig,
};

/// Changes to a file with our tables, and a part of the message.
const CHANGED: [(&str, &str); 12] = [
    (
        "CREATE TRIGGER 't\nu' AFTER INSERT ON leasehold_lock BEGIN INSERT INTO executed VALUES ('trigger'); END",
        "the trigger t?u on its table leasehold_lock would change what locks do",
    ),
    (
        "CREATE TRIGGER t BEFORE UPDATE ON Leasehold_Claim BEGIN SELECT raise(IGNORE); END",
        "the trigger t on its table Leasehold_Claim",
    ),
    (
        "ALTER TABLE leasehold_meta RENAME TO m; \
         CREATE VIEW leasehold_meta AS SELECT one, version, lineage, boot, floor FROM m",
        "leasehold_meta was not made by leasehold: it is a view",
    ),
    (
        "DROP TABLE leasehold_claim; CREATE VIEW Leasehold_Claim AS SELECT 1 AS name; \
         CREATE TRIGGER t INSTEAD OF INSERT ON Leasehold_Claim BEGIN INSERT INTO executed VALUES ('view'); END",
        "Leasehold_Claim was not made by leasehold: it is a view",
    ),
    (
        "DROP TABLE leasehold_meta; CREATE VIRTUAL TABLE leasehold_meta USING fts5(version, lineage, boot, floor)",
        "leasehold_meta was not made by leasehold: it is a virtual table",
    ),
    ("DROP TABLE leasehold_claim", "its table leasehold_claim is missing"),
    (
        "ALTER TABLE leasehold_lock ADD COLUMN colour AS (name || 'x')",
        "its table leasehold_lock was not made by leasehold, or altered: it says \", colour AS (\" where leasehold says \") WITHOUT ROWID\"",
    ),
    (
        "DROP TABLE leasehold_meta; CREATE TABLE leasehold_meta (one INTEGER PRIMARY KEY CHECK (one = 1 AND random() IS NOT NULL), \
         version INTEGER NOT NULL, lineage TEXT NOT NULL, boot TEXT NOT NULL, floor INTEGER NOT NULL); \
         INSERT INTO leasehold_meta VALUES (1, 1, '1f', '', 0)",
        "it says \"AND random ( )\" where leasehold says \") , version INTEGER\"",
    ),
    (
        "DROP TABLE leasehold_meta; CREATE TABLE leasehold_meta (one INTEGER PRIMARY KEY CHECK (one = 1), \
         version INTEGER NOT NULL, lineage TEXT NOT NULL, boot TEXT NOT NULL, floor INTEGER NOT NULL DEFAULT (random())); \
         INSERT INTO leasehold_meta VALUES (1, 1, '1f', '', 0)",
        "it says \"DEFAULT ( random (\" where leasehold says \")\"",
    ),
    (
        "CREATE UNIQUE INDEX i ON leasehold_claim (place)",
        "the index i on its table leasehold_claim was not made by leasehold",
    ),
    (
        "DROP INDEX leasehold_called; CREATE INDEX leasehold_called ON leasehold_claim (client) WHERE stand = 4",
        "its index leasehold_called was not made by leasehold, or altered: it says \"4\" where leasehold says \"1\"",
    ),
    (
        "DROP TABLE leasehold_lock; CREATE TABLE leasehold_lock (name TEXT PRIMARY KEY, token TEXT NOT NULL) WITHOUT ROWID",
        "it says \"TEXT NOT NULL )\" where leasehold says \"INTEGER NOT NULL ,\"",
    ),
];

#[test]
fn altered_tables_are_refused_before_any_change() {
    for (text, message_part) in CHANGED {
        let rig = Rig::new();
        rig.execute("CREATE TABLE executed (what)");
        rig.execute(SCHEMA);
        rig.execute(text);
        let state = || {
            let queries = ["PRAGMA journal_mode", "SELECT sql FROM sqlite_schema", "SELECT * FROM executed"];
            queries.map(|text| rig.query(text))
        };
        let before = state();
        let client = Client::new(&rig.path());
        let (fault, message) = client.refusal();
        assert_eq!(fault, Fault::Misconfigured, "{text}: {message}");
        assert!(
            message.contains(message_part) && message.contains("locks.db") && !message.contains('\n'),
            "{text}: {message}"
        );
        let looked = client.show("job").expect_err("a look is refused, too");
        assert_eq!(looked.fault, Fault::Misconfigured, "{text}: {looked:?}");
        assert_eq!(state(), before, "{text}");
    }
}

#[test]
fn tables_with_other_comments_are_accepted() {
    let rig = Rig::new();
    let bare: Vec<&str> = SCHEMA.lines().map(|line| line.split("--").next().unwrap().trim()).collect();
    rig.execute(&bare.join(" /* -- it's ours */ "));
    let client = Client::new(&rig.path());
    client.hold(&claim("job"));
}

/// Another process may write the file while we use it.
#[test]
fn a_trigger_created_later_does_not_run() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    client.hold(&claim("first"));
    rig.execute("CREATE TABLE executed (what)");
    rig.execute(
        "CREATE TRIGGER t AFTER INSERT ON leasehold_lock BEGIN INSERT INTO executed VALUES (new.name); END",
    );
    rig.execute("INSERT INTO leasehold_lock (name, token) VALUES ('by others', 1)");
    client.hold(&claim("second"));
    assert_eq!(rig.query("SELECT what FROM executed"), ["Text(\"by others\")"]);
}
