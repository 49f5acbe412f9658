//! Unusable tables, and tables of other programs next to ours.

use leasehold_core::{Fault, Previous, Renewed};

use crate::{
    client::{Client, claim},
    rig::Rig,
};

#[track_caller]
fn assert_refused(rig: &Rig, words: &str) {
    let (fault, message) = Client::new(&rig.path()).refusal();
    assert_eq!(fault, Fault::Misconfigured, "{message}");
    assert!(message.contains(words) && message.contains("locks.db"), "{message}");
}

#[test]
fn tables_of_another_version_are_refused_unchanged() {
    for version in [0, 2] {
        let rig = Rig::new();
        let client = Client::new(&rig.path());
        let job = claim("job");
        let grant = client.hold(&job);
        rig.execute(&format!("UPDATE leasehold_meta SET version = {version}"));
        let before = rig.query("SELECT * FROM leasehold_lock");
        assert_refused(&rig, &format!("have version {version} and this leasehold knows version 1"));
        // A client that opened the file before gets this error, too.
        let renewed = client.renew(&job, &grant);
        assert!(
            matches!(&renewed, Renewed::Unknown(error) if error.message.contains("version")),
            "{renewed:?}"
        );
        assert_eq!(rig.query("SELECT * FROM leasehold_lock"), before);
        rig.execute("UPDATE leasehold_meta SET version = 1");
        assert!(matches!(client.renew(&job, &grant), Renewed::Extended { .. }));
    }
}

#[test]
fn a_newer_version_may_have_other_tables() {
    let rig = Rig::new();
    rig.execute("CREATE TABLE leasehold_meta (version INTEGER, what TEXT); INSERT INTO leasehold_meta VALUES (7, 'x')");
    assert_refused(&rig, "version 7");
    assert_eq!(rig.query("SELECT count(*) FROM sqlite_schema"), ["Integer(1)"]);
}

#[test]
fn foreign_tables_with_our_names_are_refused() {
    for text in [
        "CREATE TABLE leasehold_meta (colour TEXT)",
        "CREATE TABLE leasehold_lock (colour TEXT)",
        "CREATE TABLE leasehold_claim (colour TEXT)",
        "CREATE TABLE leasehold_meta (version INTEGER, lineage TEXT, boot TEXT, floor INTEGER)",
        "CREATE TABLE leasehold_meta (version INTEGER, lineage TEXT, boot TEXT, floor INTEGER); \
         INSERT INTO leasehold_meta VALUES (1, 'green', 'x', 0)",
        "CREATE VIEW leasehold_lock AS SELECT 1 AS colour",
    ] {
        let rig = Rig::new();
        rig.execute(text);
        let before = rig.query("SELECT sql FROM sqlite_schema");
        assert_refused(&rig, "leasehold");
        assert_eq!(rig.query("SELECT sql FROM sqlite_schema"), before, "{text}");
    }
}

#[test]
fn a_foreign_row_is_not_repaired() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    client.hold(&claim("other"));
    rig.execute("UPDATE leasehold_lock SET token = 'green', holder = 'me'");
    let before = rig.query("SELECT * FROM leasehold_lock");
    let error = client.create(&claim("other")).expect_err("the row is unreadable");
    assert_eq!(error.fault, Fault::Misconfigured, "{error:?}");
    assert_eq!(rig.query("SELECT * FROM leasehold_lock"), before);
    client.hold(&claim("job"));
}

#[test]
fn foreign_tables_stay_and_can_be_written() {
    let rig = Rig::new();
    rig.execute("CREATE TABLE things (thing); INSERT INTO things VALUES ('mine')");
    let client = Client::new(&rig.path());
    let job = claim("job");
    let grant = client.hold(&job);
    rig.execute("INSERT INTO things VALUES ('also mine')");
    client.release_hold(&job, &grant);
    assert_eq!(rig.query("SELECT count(*) FROM things"), ["Integer(2)"]);
}

#[test]
fn a_restart_of_the_machine_frees_all_locks_as_lapsed() {
    let rig = Rig::new();
    let job = claim("job");
    let grant = {
        let client = Client::new(&rig.path());
        let grant = client.hold(&job);
        client.enqueue(&claim("job"));
        let clean = claim("clean");
        let done = client.hold(&clean);
        client.release_hold(&clean, &done);
        grant
    };
    rig.execute("UPDATE leasehold_meta SET boot = 'another'");
    let client = Client::new(&rig.path());
    let next = client.hold(&claim("job"));
    assert_eq!((next.previous, next.token.lineage), (Previous::Lapsed, grant.token.lineage));
    assert!(next.token > grant.token);
    assert_eq!(client.hold(&claim("clean")).previous, Previous::Clean);
    assert!(matches!(client.renew(&job, &grant), Renewed::Lost(_)));
}

#[test]
fn first_clients_create_the_tables_together() {
    let rig = Rig::new();
    let begin = std::sync::Barrier::new(6);
    let tokens: Vec<_> = std::thread::scope(|scope| {
        let start_client = |number: usize| {
            let (client, begin) = (Client::new(&rig.path()), &begin);
            scope.spawn(move || {
                begin.wait();
                client.hold(&claim(&format!("job-{number}"))).token
            })
        };
        let threads: Vec<_> = (0..6).map(start_client).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(tokens.iter().all(|token| token.lineage == tokens[0].lineage), "{tokens:?}");
    assert_eq!(rig.remaining_rows().len(), 6);
}

/// R11: another program may write rows of any size and number.
#[test]
fn too_large_and_too_many_rows_are_refused() {
    let rig = Rig::new();
    let client = Client::new(&rig.path());
    for name in ["large", "many"] {
        client.hold(&claim(name));
    }
    rig.execute("UPDATE leasehold_lock SET owner = hex(zeroblob(40000000)) WHERE name = 'large'");
    client.enqueue(&claim("many"));
    // Each row is small enough; the characters have four bytes, so that even a busy machine exceeds the bound in time.
    rig.execute(
        "WITH RECURSIVE counted AS (SELECT 1 AS at UNION ALL SELECT at + 1 FROM counted WHERE at < 36000) \
         INSERT INTO leasehold_claim SELECT name, randomblob(16), stand, at, mode, count, most, token, tokens, previous, \
         replace(hex(zeroblob(256)), '0', '😀'), since, expires, claim_time, place_since, place_expires, client \
         FROM counted, leasehold_claim WHERE name = 'many'",
    );
    for name in ["large", "many"] {
        // On a busy machine requests may exceed their time limit: repeat until one does not.
        let mut answers = std::iter::repeat_with(|| client.create(&claim(name)).unwrap_err());
        let error = answers.find(|error| error.fault != Fault::Unknown).expect("an answer");
        assert_eq!(error.fault, Fault::Refused, "{name}: {error:?}");
    }
    client.hold(&claim("other"));
}

#[test]
fn the_page_lists_each_column() {
    let rig = Rig::new();
    Client::new(&rig.path()).hold(&claim("job"));
    let columns = "SELECT t.name || ' ' || c.name || ' ' || c.type FROM sqlite_schema AS t, pragma_table_info(t.name) AS c \
        WHERE t.type = 'table' AND t.name LIKE 'leasehold%'";
    let other = rig.other();
    let mut statement = other.prepare(columns).unwrap();
    let column_rows = statement.query_map([], |row| row.get(0)).unwrap();
    crate::page::assert_listed("SQLite", column_rows.map(Result::unwrap).collect());
}
