//! Tables whose columns were changed after their creation.

use leasehold_core::ErrorKind;

use crate::rig::{PATIENCE, Rig, acquire, until};

/// R24: the rows cannot be read, so no claim is granted, and every claim gets an answer.
#[test]
fn a_claim_reports_altered_columns() {
    for (table, column, kind) in [
        ("lock", "token", "numeric"),
        ("lock", "tokens", "bigint"),
        ("lock", "expires", "numeric"),
        ("lock", "client", "numeric"),
        ("lock", "previous", "integer"),
        ("lock", "ended_until", "numeric"),
    ] {
        let rig = Rig::new();
        let held = acquire(&rig.locks(), "x");
        rig.server.query(&format!("ALTER TABLE leasehold_{table} ALTER COLUMN {column} TYPE {kind}"));
        let result = rig.locks().mutex("x").blocking().acquire_within(PATIENCE);
        let error = result.expect_err("the rows are unreadable");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{column} {kind}: {error}");
        assert!(error.to_string().contains("leasehold_"), "the error names the tables: {error}");
        drop(held);
    }
}

/// R25: an unreadable row once ended the maintenance task, and the claims of its client waited although the lock was
/// free.
#[test]
fn a_waiter_reports_altered_columns() {
    let rig = Rig::new();
    let held = acquire(&rig.locks(), "x");
    let waiting = std::thread::spawn({
        let locks = rig.locks();
        move || locks.mutex("x").blocking().acquire_within(PATIENCE)
    });
    until("the claim waits", || rig.show("x").waiters.len() == 1);
    rig.server.query("ALTER TABLE leasehold_claim ALTER COLUMN stand TYPE integer");
    let error = waiting.join().unwrap().expect_err("the row is unreadable");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    drop(held);
}

/// R12: the error names the cause, not only that no renewal was acknowledged.
#[test]
fn a_lapsed_hold_reports_altered_columns() {
    let rig = Rig::new();
    let held = rig.locks().mutex("x").ttl(std::time::Duration::from_secs(2)).blocking().acquire().unwrap();
    rig.server.query("ALTER TABLE leasehold_lock RENAME COLUMN expires TO ends");
    until("the hold lapses", || !held.check());
    let error = held.release_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(leasehold_core::Loss::Lapsed), "{error}");
    assert!(error.to_string().contains("expires"), "the error names the column: {error}");
}

/// R24: the server does not reject the statement, so the error comes when the row is read.
#[test]
fn a_claim_reports_a_null_column() {
    let rig = Rig::new();
    let held = acquire(&rig.locks(), "x");
    rig.server.query("ALTER TABLE leasehold_lock ALTER COLUMN owner DROP NOT NULL");
    rig.server.query("UPDATE leasehold_lock SET owner = NULL WHERE name = 'x'");
    let result = rig.locks().mutex("x").blocking().acquire_within(PATIENCE);
    let error = result.expect_err("the row is unreadable");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("column owner"), "the error names the column: {error}");
    drop(held);
}

/// R24: owners that exceed the bound of a reply together, an unreadable row, and a row with an invalid name.
#[test]
fn foreign_rows_hide_no_other_name() {
    let rig = Rig::new();
    let locks = rig.locks();
    let _held = acquire(&locks, "held");
    rig.server.query(
        "INSERT INTO leasehold_lock (name, token, holder, tokens, owner, expires) \
         SELECT name, 1, decode(repeat('ab', id), 'hex'), 1, repeat('x', size), 4102444800000000 \
         FROM (VALUES ('bad', 1, 1), ('big', 16, 41943040), ('more', 16, 41943040), (repeat('n', 99999), 16, 1)) \
         AS made (name, id, size)",
    );
    let views = rig.run(locks.list("")).unwrap();
    let listed: Vec<_> = views.iter().map(|view| (view.name.as_str(), view.problem.is_some())).collect();
    assert_eq!(listed, [("bad", true), ("big", false), ("held", false), ("more", false)]);
    assert_eq!(views[1].holders[0].owner, "x".repeat(128) + "…");
    assert!(locks.mutex("big").blocking().try_acquire().unwrap_err().is_taken());
    assert!(rig.run(locks.show("bad")).unwrap_err().to_string().contains("column"));
}

#[test]
fn the_page_lists_each_column() {
    let rig = Rig::new();
    rig.server.query(leasehold_sql::postgres::SCHEMA);
    let columns = "SELECT concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod)) \
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
        WHERE c.relkind = 'r' AND c.relname LIKE 'leasehold%' AND a.attnum > 0 AND NOT a.attisdropped";
    crate::page::assert_listed("PostgreSQL", rig.server.query(columns));
}
