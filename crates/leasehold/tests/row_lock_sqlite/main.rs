//! Row locks in transactions of `sqlx` on SQLite, and fences.

#![cfg(feature = "sqlx-sqlite")]
#![expect(clippy::unwrap_used, reason = "tests")]

mod once_in;

use std::{str::FromStr, time::Duration};

use leasehold::{
    Lineage, Token,
    sql::{Dialect, Fence, Fenced, RowLock, RowLockErrorKind, row_lock},
};
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions},
};
use tempfile::TempDir;

/// How a transaction begins that is going to write.
const IMMEDIATE: &str = "BEGIN IMMEDIATE";

async fn database() -> (TempDir, SqlitePool) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}?mode=rwc", directory.path().join("file.db").display());
    let options = SqliteConnectOptions::from_str(&url).unwrap();
    let options = options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(90));
    let pool = SqlitePoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
    for text in [&RowLock::from("n").schema(Dialect::Sqlite), "CREATE TABLE work AS SELECT 0 AS value"] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&pool).await.unwrap();
    }
    (directory, pool)
}

async fn value(pool: &SqlitePool) -> i64 {
    sqlx::query_scalar("SELECT value FROM work").fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_run_one_after_another() {
    const ROUNDS: i64 = 50;
    let (_directory, pool) = database().await;
    let tasks = [["a", "b"], ["b", "a"], ["b", "c"]].map(|names| {
        let pool = pool.clone();
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let mut transaction = pool.begin_with(IMMEDIATE).await.unwrap();
                assert_eq!(row_lock(&mut transaction, names).await.unwrap().iter().count(), 2);
                let read: i64 =
                    sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut *transaction).await.unwrap();
                let update = sqlx::query("UPDATE work SET value = ?").bind(read + 1);
                update.execute(&mut *transaction).await.unwrap();
                transaction.commit().await.unwrap();
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(value(&pool).await, 3 * ROUNDS);
    let mut transaction = pool.begin_with(IMMEDIATE).await.unwrap();
    let holds = row_lock(&mut transaction, ["c", "b", "a"]).await.unwrap();
    assert_eq!(holds.iter().map(|(_, token)| token).collect::<Vec<_>>(), [101, 151, 51]);
}

#[tokio::test]
async fn a_rollback_takes_the_token_back() {
    let (_directory, pool) = database().await;
    for (commits, expected) in [(true, 1), (false, 2), (true, 2), (true, 3)] {
        let mut transaction = pool.begin().await.unwrap();
        assert_eq!(row_lock(&mut transaction, "n").await.unwrap().token(), expected);
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_in_use_is_reported_in_each_way_of_waiting() {
    let (_directory, pool) = database().await;
    let mut holder = pool.begin().await.unwrap();
    let _holds = row_lock(&mut holder, "n").await.unwrap();
    let mut other = pool.begin().await.unwrap();
    let limit = "SELECT timeout FROM pragma_busy_timeout";
    let before: i64 = sqlx::query_scalar(limit).fetch_one(&mut *other).await.unwrap();
    let taken = row_lock(&mut other, RowLock::from("m").no_wait()).await.unwrap_err();
    assert_eq!(taken.kind(), RowLockErrorKind::Taken, "{taken}");
    let taken = row_lock(&mut other, RowLock::from("m").skip_locked()).await.unwrap_err();
    assert_eq!(taken.kind(), RowLockErrorKind::Taken, "{taken}");
    let limited = RowLock::from("m").wait(Duration::from_millis(30));
    let late = row_lock(&mut other, limited).await.unwrap_err();
    assert_eq!(late.kind(), RowLockErrorKind::TimedOut, "{late}");
    let after: i64 = sqlx::query_scalar(limit).fetch_one(&mut *other).await.unwrap();
    assert_eq!(before, after);
    other.rollback().await.unwrap();
    holder.commit().await.unwrap();
    let mut other = pool.begin().await.unwrap();
    assert_eq!(row_lock(&mut other, RowLock::from("m").no_wait()).await.unwrap().token(), 1);
}

#[tokio::test]
async fn a_transaction_with_an_old_snapshot_must_run_again() {
    let (_directory, pool) = database().await;
    let mut old = pool.begin().await.unwrap();
    let _: i64 = sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut *old).await.unwrap();
    let mut newer = pool.begin().await.unwrap();
    let _holds = row_lock(&mut newer, "n").await.unwrap();
    newer.commit().await.unwrap();
    let conflict = row_lock(&mut old, "n").await.unwrap_err();
    assert!(conflict.is_retryable() && conflict.kind() == RowLockErrorKind::Conflict, "{conflict}");
}

#[tokio::test]
async fn a_missing_table_is_reported_with_the_statement_that_creates_it() {
    let (_directory, pool) = database().await;
    let mut transaction = pool.begin().await.unwrap();
    let lock = RowLock::from("n").table("other_locks");
    let missing = row_lock(&mut transaction, lock.clone()).await.unwrap_err();
    assert_eq!(missing.kind(), RowLockErrorKind::MissingTable, "{missing}");
    assert!(missing.to_string().ends_with(&lock.schema(Dialect::Sqlite)), "{missing}");
}

#[tokio::test]
async fn a_fence_refuses_smaller_tokens_and_tells_a_missing_row() {
    let (_directory, pool) = database().await;
    let fence = Fence::new("stock", "fence").unwrap().dialect(Dialect::Sqlite);
    for text in ["CREATE TABLE stock (item text PRIMARY KEY, pieces integer)", &fence.column()] {
        sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&pool).await.unwrap();
    }
    let mut connection = pool.acquire().await.unwrap();
    let token = |number| Token { lineage: Lineage::new(1), number };
    for number in 1..=150_u64 {
        let upsert = fence.upsert(token(number), &["item"], &["pieces"]).unwrap();
        let query =
            sqlx::query(sqlx::AssertSqlSafe(upsert.text.as_str())).bind(upsert.token).bind("a").bind(500);
        assert_eq!(query.execute(&mut *connection).await.unwrap().rows_affected(), 1);
    }
    for number in 150..300 {
        let update = fence.update(token(number), "pieces = pieces - ?2", "item = ?3");
        let query =
            sqlx::query(sqlx::AssertSqlSafe(update.text.as_str())).bind(update.token).bind(2).bind("a");
        assert_eq!(query.execute(&mut *connection).await.unwrap().rows_affected(), 1);
    }
    let late = fence.seal(token(298), "item = ?2");
    for (item, judged) in [("a", Fenced::Overtaken { seen: 299 }), ("b", Fenced::NoRow)] {
        let query = sqlx::query(sqlx::AssertSqlSafe(late.text.as_str())).bind(late.token).bind(item);
        assert_eq!(query.execute(&mut *connection).await.unwrap().rows_affected(), 0);
        let query = fence.seen("item = ?1");
        let seen = sqlx::query_scalar(sqlx::AssertSqlSafe(query.as_str()))
            .bind(item)
            .fetch_optional(&mut *connection)
            .await
            .unwrap();
        assert_eq!(fence.judge(token(298), seen), judged);
    }
    let upsert = fence.upsert(token(298), &["item"], &["pieces"]).unwrap();
    let query = sqlx::query(sqlx::AssertSqlSafe(upsert.text.as_str())).bind(upsert.token).bind("a").bind(0);
    assert_eq!(query.execute(&mut *connection).await.unwrap().rows_affected(), 0);
    let pieces: i64 =
        sqlx::query_scalar("SELECT pieces FROM stock").fetch_one(&mut *connection).await.unwrap();
    assert_eq!(pieces, 200);
}
