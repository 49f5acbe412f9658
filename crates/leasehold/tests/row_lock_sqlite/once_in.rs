//! Work that is done one time, with its record in the transaction of the work.

use leasehold::sql::{OnceIn, OnceInTable, RowLockError, once_in};
use sqlx::{AssertSqlSafe, Sqlite, Transaction};

use super::*;

async fn database() -> (TempDir, SqlitePool) {
    let (directory, pool) = super::database().await;
    let statements = OnceInTable::default().schema(Dialect::Sqlite);
    sqlx::raw_sql(AssertSqlSafe(&*statements)).execute(&pool).await.unwrap();
    (directory, pool)
}

async fn execute(pool: &SqlitePool, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(pool).await.unwrap();
}

/// Does the work of the key unless it is done, and returns whether it was.
async fn work(transaction: &mut Transaction<'_, Sqlite>, key: &str) -> Result<bool, RowLockError> {
    match once_in(transaction, key).await? {
        OnceIn::Done(result) => {
            assert_eq!(result, b"receipt\0'");
            Ok(true)
        }
        OnceIn::Run(mut turn) => {
            sqlx::query("UPDATE work SET value = value + 1").execute(&mut **turn).await.unwrap();
            turn.done("receipt\0'").await?;
            Ok(false)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_at_once_one_is_committed_however_many_roll_back() {
    let (_directory, pool) = database().await;
    // A transaction that begins with the call never has an old snapshot, also without IMMEDIATE.
    let tasks: Vec<_> = (0..4)
        .map(|number| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut fresh = 0;
                for round in 0..10 {
                    let begin = if number < 2 { IMMEDIATE } else { "BEGIN" };
                    let mut transaction = pool.begin_with(begin).await.unwrap();
                    let was_done = work(&mut transaction, "n").await.unwrap();
                    if was_done || round > 0 {
                        transaction.commit().await.unwrap();
                        fresh += usize::from(!was_done);
                    } else {
                        transaction.rollback().await.unwrap();
                    }
                }
                fresh
            })
        })
        .collect();
    let mut fresh = 0;
    for task in tasks {
        fresh += task.await.unwrap();
    }
    assert_eq!((fresh, value(&pool).await), (1, 1));
}

#[tokio::test]
async fn a_transaction_with_an_old_snapshot_or_without_time_must_wait_or_run_again() {
    let (_directory, pool) = database().await;
    let mut old = pool.begin().await.unwrap();
    let _: i64 = sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut *old).await.unwrap();
    let mut newer = pool.begin().await.unwrap();
    assert!(!work(&mut newer, "n").await.unwrap());
    let limit = "SELECT timeout FROM pragma_busy_timeout";
    let mut other = pool.begin().await.unwrap();
    let before: i64 = sqlx::query_scalar(limit).fetch_one(&mut *other).await.unwrap();
    let late = once_in(&mut other, "n").wait(Duration::from_millis(30)).await.unwrap_err();
    assert_eq!(late.kind(), RowLockErrorKind::TimedOut, "{late}");
    let after: i64 = sqlx::query_scalar(limit).fetch_one(&mut *other).await.unwrap();
    assert_eq!(before, after);
    newer.commit().await.unwrap();
    let conflict = once_in(&mut old, "n").await.unwrap_err();
    assert!(conflict.is_retryable() && conflict.kind() == RowLockErrorKind::Conflict, "{conflict}");
    old.rollback().await.unwrap();
    let mut again = pool.begin().await.unwrap();
    assert!(work(&mut again, "n").await.unwrap());
}

#[tokio::test]
async fn other_payloads_ended_records_and_savepoints_are_told_apart() {
    let (_directory, pool) = database().await;
    let mut transaction = pool.begin().await.unwrap();
    let call = once_in(&mut transaction, "n").digest([1; 32]).keep(Duration::from_secs(3600));
    let OnceIn::Run(turn) = call.await.unwrap() else { panic!() };
    turn.done("receipt\0'").await.unwrap();
    transaction.commit().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let other = once_in(&mut transaction, "n").digest([2; 32]).await.unwrap_err();
    assert_eq!(other.kind(), RowLockErrorKind::Mismatch, "{other}");
    assert!(matches!(once_in(&mut transaction, "n").digest([1; 32]).await.unwrap(), OnceIn::Done(_)));
    assert!(work(&mut transaction, "n").await.unwrap());
    let lasts = "SELECT ends / 1000000 - unixepoch() BETWEEN 1 AND 3601 FROM leasehold_once";
    assert!(sqlx::query_scalar::<_, bool>(lasts).fetch_one(&mut *transaction).await.unwrap());
    transaction.rollback().await.unwrap();
    // After its end nothing of the record counts.
    execute(&pool, "UPDATE leasehold_once SET ends = 1").await;
    let mut transaction = pool.begin().await.unwrap();
    sqlx::raw_sql("SAVEPOINT early").execute(&mut *transaction).await.unwrap();
    let call = once_in(&mut transaction, "n").digest([2; 32]);
    let OnceIn::Run(mut turn) = call.await.unwrap() else { panic!() };
    sqlx::raw_sql("ROLLBACK TO SAVEPOINT early").execute(&mut **turn).await.unwrap();
    let conflict = turn.done("").await.unwrap_err();
    assert!(conflict.is_retryable(), "{conflict}");
    assert!(!work(&mut transaction, "n").await.unwrap());
}

#[tokio::test]
async fn keys_are_data_and_ended_records_are_deleted_in_parts() {
    let (_directory, pool) = database().await;
    let keys = ["a", "A", "a ", "ä", "'); DROP TABLE work; --", "\\", "?1 %s", "\u{1F512}"];
    for expected in [false, true] {
        for key in keys {
            let mut transaction = pool.begin().await.unwrap();
            assert_eq!(work(&mut transaction, key).await.unwrap(), expected, "{key}");
            transaction.commit().await.unwrap();
        }
    }
    assert_eq!(value(&pool).await, 8);
    execute(
        &pool,
        "WITH RECURSIVE numbers AS (SELECT 1 AS number UNION ALL SELECT number + 1 FROM numbers WHERE number < 502)
        INSERT INTO leasehold_once SELECT 'old ' || number, number, NULL, '' FROM numbers",
    )
    .await;
    for expected in [500, 2, 0] {
        let mut transaction = pool.begin().await.unwrap();
        let deleted = OnceInTable::default().delete_ended(&mut transaction).await.unwrap();
        assert_eq!(deleted, expected);
        transaction.commit().await.unwrap();
    }
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM leasehold_once").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 8);
}

#[tokio::test]
async fn a_missing_table_is_reported_with_the_statements_that_create_it() {
    let (_directory, pool) = super::database().await;
    let table = OnceInTable::new("main.other_records");
    let mut transaction = pool.begin().await.unwrap();
    let missing = once_in(&mut transaction, "n").table(&table).await.unwrap_err();
    assert_eq!(missing.kind(), RowLockErrorKind::MissingTable, "{missing}");
    assert!(missing.to_string().ends_with(&table.schema(Dialect::Sqlite)), "{missing}");
    transaction.rollback().await.unwrap();
    execute(&pool, &table.schema(Dialect::Sqlite)).await;
    let mut transaction = pool.begin().await.unwrap();
    assert!(matches!(once_in(&mut transaction, "n").table(&table).await.unwrap(), OnceIn::Run(_)));
}
