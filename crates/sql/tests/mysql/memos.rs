//! The table of memos: the rights on it, and databases whose tables an earlier version of leasehold made.

use std::time::Duration;

use leasehold_core::{Locks, MIN_MEMO_KEEP, MemoKind, NewMemo};
use leasehold_sql::mysql::{GRANTS, SCHEMA};

use crate::rig::{PATIENCE, Rig, USER, as_user, engine_at, until};

const HOUR: Duration = Duration::from_secs(3600);
/// What an earlier version of leasehold made lacks this table.
const WITHOUT_MEMOS: &str = "DROP TABLE leasehold_memo";

fn memo(bytes: &str, keep: Duration) -> NewMemo {
    NewMemo::new(MemoKind::ONCE, bytes, keep).unwrap()
}

fn run_all(rig: &Rig, texts: &[&str]) {
    for text in texts {
        rig.server.query(text);
    }
}

/// A client with the documented rights.
fn locks_of_user(rig: &Rig) -> Locks {
    Locks::new(engine_at(&as_user(rig)))
}

#[tokio::test]
async fn the_documented_rights_write_read_and_delete_memos() {
    let rig = Rig::new();
    run_all(&rig, &[SCHEMA, USER, GRANTS]);
    let (locks, other) = (locks_of_user(&rig), locks_of_user(&rig));
    let guard = locks.mutex("a").acquire_within(PATIENCE).await.unwrap();
    guard.write_memo(memo("x", HOUR)).await.unwrap();
    let read = other.read_memo("a").await.unwrap().unwrap();
    assert_eq!((&read.bytes[..], read.is_held, read.token), (&b"x"[..], true, guard.token()));
    guard.release_with_memo(memo("", MIN_MEMO_KEEP)).await.unwrap();
    until("the ended memo is deleted", || rig.server.query("SELECT name FROM leasehold_memo").is_empty())
        .await;
    assert_eq!(other.read_memo("a").await.unwrap(), None);
}

#[tokio::test]
async fn tables_without_memos_get_them_with_the_first_memo() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    rig.server.query(WITHOUT_MEMOS);
    let (locks, other) = (Locks::new(rig.engine()), Locks::new(rig.engine()));
    let guard = locks.mutex("a").acquire_within(PATIENCE).await.unwrap();
    assert_eq!(other.read_memo("a").await.unwrap(), None);
    guard.release_with_memo(memo("x", HOUR)).await.unwrap();
    assert_eq!(other.read_memo("a").await.unwrap().unwrap().bytes, b"x");
}

#[tokio::test]
async fn a_user_without_the_right_to_create_the_table_gets_the_remedy_and_keeps_the_hold() {
    let rig = Rig::new();
    run_all(&rig, &[SCHEMA, USER, GRANTS, WITHOUT_MEMOS]);
    let locks = locks_of_user(&rig);
    let guard = locks.mutex("a").acquire_within(PATIENCE).await.unwrap();
    // The user keeps its right to the dropped table.
    rig.server.query("REVOKE ALL ON locks.leasehold_memo FROM locker@'%'");
    let error = guard.write_memo(memo("x", HOUR)).await.unwrap_err();
    assert!(error.is_misconfigured() && error.to_string().contains("leasehold schema"), "{error}");
    guard.confirm().await.unwrap();
    run_all(&rig, &[SCHEMA, GRANTS]);
    guard.write_memo(memo("x", HOUR)).await.unwrap();
    guard.release().await.unwrap();
}

/// An earlier version of leasehold leaves the name of the table free, and whoever may create tables can take it.
#[tokio::test]
async fn an_unusable_table_of_memos_stops_no_lock() {
    let rig = Rig::new();
    rig.server.query(SCHEMA);
    for (made, cause) in [
        ("DROP TABLE leasehold_memo; CREATE TABLE leasehold_memo (a int)", "column"),
        (
            "DROP TABLE leasehold_memo; CREATE TABLE leasehold_memo LIKE leasehold_lock; \
             CREATE TRIGGER t BEFORE INSERT ON leasehold_memo FOR EACH ROW SET @a = 1",
            "trigger",
        ),
        ("DROP TABLE leasehold_memo; CREATE VIEW leasehold_memo AS SELECT 1 AS name", "view"),
    ] {
        rig.server.query(made);
        let locks = Locks::new(rig.engine());
        let guard = locks.mutex("a").acquire_within(PATIENCE).await.unwrap();
        locks.show("a").await.unwrap();
        for error in
            [guard.write_memo(memo("x", HOUR)).await.unwrap_err(), locks.read_memo("a").await.unwrap_err()]
        {
            let message = error.to_string();
            assert!(error.is_misconfigured() && message.contains("leasehold_memo"), "{error}");
            assert!(message.contains(cause), "{error}");
        }
        guard.release().await.unwrap();
    }
}

/// The documented rights and the right to create tables.
#[tokio::test]
async fn the_right_to_create_tables_suffices_for_the_table_of_memos() {
    let rig = Rig::new();
    run_all(&rig, &[SCHEMA, USER, GRANTS, WITHOUT_MEMOS, "GRANT CREATE ON locks.* TO locker@'%'"]);
    let locks = locks_of_user(&rig);
    let guard = locks.mutex("a").acquire_within(PATIENCE).await.unwrap();
    guard.release_with_memo(memo("x", HOUR)).await.unwrap();
    assert_eq!(locks.read_memo("a").await.unwrap().unwrap().bytes, b"x");
}

#[tokio::test]
async fn a_read_only_server_reads_no_memos() {
    let rig = Rig::new();
    let locks = Locks::new(rig.engine());
    let guard = locks.mutex("a").acquire_within(PATIENCE).await.unwrap();
    guard.release_with_memo(memo("x", HOUR)).await.unwrap();
    rig.server.query("SET GLOBAL read_only = 1");
    let error = Locks::new(rig.engine()).read_memo("a").await.unwrap_err();
    assert!(error.to_string().contains("name the primary"), "{error}");
}

/// One memo that has ended.
const ONE: &str =
    "INSERT INTO leasehold_memo VALUES ('ended', 'once', REPEAT('a', 16), 1, '1', 1, NULL, 1, '')";

/// So many that several statements are needed to delete them.
#[tokio::test]
async fn one_sweep_deletes_all_ended_memos() {
    let rig = Rig::new();
    let digits = "SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 \
        UNION SELECT 7 UNION SELECT 8 UNION SELECT 9";
    let many = format!(
        "INSERT INTO leasehold_memo SELECT CONCAT('ended', a.d, b.d, c.d, e.d), 'once', REPEAT('a', 16), 1, '1', 1, NULL, 1, '' \
         FROM ({digits}) AS a, ({digits}) AS b, ({digits}) AS c, ({digits}) AS e"
    );
    run_all(&rig, &[SCHEMA, &many]);
    let locks = Locks::new(rig.engine());
    let _guard = locks.mutex("a").acquire_within(PATIENCE).await.unwrap();
    until("they are deleted", || rig.server.query("SELECT 1 FROM leasehold_memo LIMIT 1").is_empty()).await;
}

/// Its number tells a late write of the same hold from a later one.
#[tokio::test]
async fn an_ended_memo_stays_until_the_hold_of_its_writer_ends() {
    let rig = Rig::new();
    let locks = Locks::new(rig.engine());
    let names = || rig.server.query("SELECT name FROM leasehold_memo");
    let guard = locks.mutex("a").acquire_within(PATIENCE).await.unwrap();
    guard.write_memo(memo("x", MIN_MEMO_KEEP)).await.unwrap();
    while locks.read_memo("a").await.unwrap().is_some() {}
    rig.server.query(ONE);
    until("a sweep deletes the memo without a hold", || !names().contains(&"ended".to_owned())).await;
    assert_eq!(names(), ["a"]);
    guard.release().await.unwrap();
    until("a sweep deletes it", || names().is_empty()).await;
}

/// So what it says about the memo and about the hold is of one moment.
#[tokio::test]
async fn a_memo_is_read_by_one_statement() {
    let rig = Rig::new();
    run_all(&rig, &[SCHEMA, USER, GRANTS]);
    let writer = Locks::new(rig.engine());
    let guard = writer.mutex("a").acquire_within(PATIENCE).await.unwrap();
    guard.release_with_memo(memo("x", HOUR)).await.unwrap();
    let reader = locks_of_user(&rig);
    let read = async || assert_eq!(reader.read_memo("a").await.unwrap().unwrap().bytes, b"x");
    read().await;
    rig.server.query("SET GLOBAL log_output = 'TABLE'");
    rig.server.query("SET GLOBAL general_log = 1");
    read().await;
    rig.server.query("SET GLOBAL general_log = 0");
    let texts = "SELECT argument FROM mysql.general_log WHERE user_host LIKE 'locker%' AND argument LIKE '%leasehold_%'";
    let texts = rig.server.query(texts);
    assert_eq!(texts.len(), 1, "{texts:?}");
}
