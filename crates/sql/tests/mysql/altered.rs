//! Tables whose columns were changed after their creation.

use leasehold_core::{ErrorKind, Locks};

use crate::rig::{PATIENCE, Rig, until};

/// R24: the rows cannot be read, so no claim is granted, and every claim gets an answer.
#[test]
fn a_claim_reports_altered_columns() {
    for (column, kind) in
        [("token", "decimal(20, 2)"), ("expires", "decimal(20, 2)"), ("holder", "varbinary(20)")]
    {
        let rig = Rig::new();
        let locks = || Locks::builder(rig.engine()).build();
        let held = locks().mutex("x").blocking().acquire_within(PATIENCE).unwrap();
        rig.server.query(&format!("ALTER TABLE leasehold_lock MODIFY {column} {kind}"));
        let result = locks().mutex("x").blocking().acquire_within(PATIENCE);
        let error = result.expect_err("the rows are unreadable");
        assert_eq!(error.kind(), ErrorKind::Misconfigured, "{column} {kind}: {error}");
        let message = error.to_string();
        assert!(
            message.contains(&format!(
                "leasehold_lock was not made by leasehold, or altered: its column {column}"
            )),
            "{message}"
        );
        drop(held);
    }
}

/// R12: the error names the cause, not only that no renewal was acknowledged.
#[test]
fn a_lapsed_hold_reports_altered_columns() {
    let rig = Rig::new();
    let locks = Locks::builder(rig.engine()).build();
    let held = locks.mutex("x").ttl(std::time::Duration::from_secs(2)).blocking().acquire().unwrap();
    rig.server.query("ALTER TABLE leasehold_lock CHANGE expires ends bigint NOT NULL DEFAULT 0");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(until("the hold lapses", || !held.check()));
    let error = held.release_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost(leasehold_core::Loss::Lapsed), "{error}");
    assert!(error.to_string().contains("expires"), "the error names the column: {error}");
}

/// R24: a connection that knew the tables before finds them altered at the next poll for its waiting claim.
#[test]
fn a_waiter_reports_altered_columns() {
    let rig = Rig::new();
    let locks = || Locks::builder(rig.engine()).build();
    let held = locks().mutex("x").blocking().acquire_within(PATIENCE).unwrap();
    let waiting = std::thread::spawn({
        let locks = locks();
        move || locks.mutex("x").blocking().acquire_within(PATIENCE)
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let waits = || rig.remaining_rows().len() > 1;
    runtime.block_on(until("the claim waits", waits));
    rig.server.query("ALTER TABLE leasehold_claim MODIFY stand decimal(5, 2) NOT NULL");
    let error = waiting.join().unwrap().expect_err("the row is unreadable");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    drop(held);
}

/// R24: the check of the tables at connect does not read their rows, so the error comes when the row is read.
#[test]
fn a_claim_reports_a_null_column() {
    let rig = Rig::new();
    let locks = || Locks::builder(rig.engine()).build();
    let held = locks().mutex("x").blocking().acquire_within(PATIENCE).unwrap();
    rig.server.query("ALTER TABLE leasehold_lock MODIFY client bigint");
    rig.server.query("UPDATE leasehold_lock SET client = NULL");
    let error = locks().mutex("x").blocking().acquire_within(PATIENCE).expect_err("the row is unreadable");
    assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("column client"), "the error names the column: {error}");
    drop(held);
}

/// R24.
#[test]
fn an_unreadable_row_hides_no_other_name() {
    let rig = Rig::new();
    let locks = Locks::builder(rig.engine()).build();
    let held = ["held", "bad"].map(|name| locks.mutex(name).blocking().acquire_within(PATIENCE).unwrap());
    rig.server.query("ALTER TABLE leasehold_lock MODIFY holder varbinary(20)");
    rig.server.query("UPDATE leasehold_lock SET holder = 'too short' WHERE name = 'bad'");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let views = runtime.block_on(locks.list("")).unwrap();
    let listed: Vec<_> = views.iter().map(|view| (view.name.as_str(), view.problem.is_some())).collect();
    assert_eq!(listed, [("bad", true), ("held", false)]);
    drop(held);
}

#[test]
fn the_page_lists_each_column() {
    let rig = Rig::new();
    rig.server.query(leasehold_sql::mysql::SCHEMA);
    // MariaDB adds a display width to number types.
    let columns = "SELECT CONCAT_WS(' ', table_name, column_name, REGEXP_REPLACE(column_type, 'int\\\\([0-9]+\\\\)', 'int')) \
        FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name LIKE 'leasehold%'";
    crate::page::assert_listed("MySQL, MariaDB", rig.server.query(columns));
}
