//! The cases that hold for PostgreSQL, MySQL and MariaDB, by way of `sqlx`.

/// Makes a module of tests. `$rig`: an expression of a type with `pool`, a pool of connections, `server.query(text)`,
/// and `is_waiting()`, whether a transaction waits for another one.
macro_rules! suite {
    ($rig:ident, $dialect:expr) => {
        use leasehold_sql::{RowLock, RowLockErrorKind, row_lock};

        #[tokio::test(flavor = "multi_thread")]
        async fn transactions_under_one_name_run_one_after_another() {
            let rig = $rig::start().await;
            let mut first = rig.pool.begin().await.unwrap();
            let token = row_lock(&mut first, "n").await.unwrap().token();
            let pool = rig.pool.clone();
            let second = tokio::spawn(async move {
                let mut second = pool.begin().await.unwrap();
                let token = row_lock(&mut second, "n").await.unwrap().token();
                let read: i64 =
                    sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut *second).await.unwrap();
                second.commit().await.unwrap();
                (token, read)
            });
            $crate::until::until("the second transaction waits", || rig.is_waiting());
            // Another name is free meanwhile.
            let mut other = rig.pool.begin().await.unwrap();
            row_lock(&mut other, RowLock::from("m").no_wait()).await.unwrap();
            other.rollback().await.unwrap();
            sqlx::query("UPDATE work SET value = 7").execute(&mut *first).await.unwrap();
            first.commit().await.unwrap();
            assert_eq!(second.await.unwrap(), (token + 1, 7));
        }

        #[tokio::test]
        async fn a_commit_keeps_the_token_and_a_rollback_takes_it_back() {
            let rig = $rig::start().await;
            for (commits, expected) in [(true, 1), (false, 2), (true, 2), (true, 3)] {
                let mut transaction = rig.pool.begin().await.unwrap();
                let hold = row_lock(&mut transaction, "n").await.unwrap();
                assert_eq!(
                    (hold.token(), hold.token_of("n"), hold.token_of("m")),
                    (expected, Some(expected), None)
                );
                if commits {
                    transaction.commit().await.unwrap();
                } else {
                    transaction.rollback().await.unwrap();
                }
            }
            assert_eq!(rig.server.query("SELECT token FROM leasehold_row_locks"), ["3"]);
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn several_names_in_any_order_never_wait_for_each_other() {
            const ROUNDS: i64 = 100;
            let rig = $rig::start().await;
            let tasks = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "d"]].map(|names| {
                let pool = rig.pool.clone();
                tokio::spawn(async move {
                    for _ in 0..ROUNDS {
                        let mut transaction = pool.begin().await.unwrap();
                        let holds = row_lock(&mut transaction, names).await.unwrap();
                        assert_eq!(holds.iter().count(), 3);
                        let value: i64 = sqlx::query_scalar("SELECT value FROM work")
                            .fetch_one(&mut *transaction)
                            .await
                            .unwrap();
                        let update = format!("UPDATE work SET value = {}", value + 1);
                        sqlx::query(sqlx::AssertSqlSafe(update.as_str()))
                            .execute(&mut *transaction)
                            .await
                            .unwrap();
                        transaction.commit().await.unwrap();
                    }
                })
            });
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(
                rig.server.query("SELECT value FROM work"),
                [(3 * ROUNDS).to_string()],
                "no update is lost"
            );
            let tokens = rig.server.query("SELECT token FROM leasehold_row_locks ORDER BY name");
            assert_eq!(tokens, ["200", "300", "300", "100"]);
        }

        #[tokio::test]
        async fn a_call_that_does_not_wait_reports_a_locked_name() {
            let rig = $rig::start().await;
            // The first time the holder creates the row, so nobody else can see it.
            for _ in 0..2 {
                let mut holder = rig.pool.begin().await.unwrap();
                row_lock(&mut holder, "b").await.unwrap();
                let mut other = rig.pool.begin().await.unwrap();
                let taken = row_lock(&mut other, RowLock::from("b").no_wait()).await.unwrap_err();
                assert_eq!(taken.kind(), RowLockErrorKind::Taken, "{taken}");
                assert!(taken.is_taken() && !taken.is_retryable());
                other.rollback().await.unwrap();
                let mut other = rig.pool.begin().await.unwrap();
                let locked =
                    row_lock(&mut other, RowLock::from(["a", "b", "c"]).skip_locked()).await.unwrap();
                assert_eq!(locked.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "c"]);
                // The transaction is as usable as before.
                sqlx::query("UPDATE work SET value = value + 1").execute(&mut *other).await.unwrap();
                other.commit().await.unwrap();
                holder.commit().await.unwrap();
            }
            assert_eq!(rig.server.query("SELECT value FROM work"), ["2"]);
            let tokens = rig.server.query("SELECT token FROM leasehold_row_locks ORDER BY name");
            assert_eq!(tokens, ["2", "2", "2"]);
        }

        #[tokio::test]
        async fn a_call_that_skips_fails_if_no_name_is_free() {
            let rig = $rig::start().await;
            let mut holder = rig.pool.begin().await.unwrap();
            row_lock(&mut holder, ["a", "b"]).await.unwrap();
            holder.commit().await.unwrap();
            let mut holder = rig.pool.begin().await.unwrap();
            row_lock(&mut holder, ["a", "b"]).await.unwrap();
            let mut other = rig.pool.begin().await.unwrap();
            let taken = row_lock(&mut other, RowLock::from(["a", "b"]).skip_locked()).await.unwrap_err();
            assert_eq!(taken.kind(), RowLockErrorKind::Taken, "{taken}");
        }

        #[tokio::test]
        async fn a_call_that_is_dropped_at_any_point_leaves_no_time_limit() {
            let rig = $rig::start().await;
            let mut connection = rig.pool.acquire().await.unwrap();
            let before: String = sqlx::query_scalar(rig.limit).fetch_one(&mut *connection).await.unwrap();
            let limited = RowLock::from("n").wait(std::time::Duration::from_secs(7));
            for lock in [limited, RowLock::from("n").no_wait(), RowLock::from("n").skip_locked()] {
                for polls in 1.. {
                    let mut transaction = sqlx::Connection::begin(&mut *connection).await.unwrap();
                    let is_done = $crate::polled(polls, row_lock(&mut transaction, lock.clone())).await;
                    transaction.rollback().await.unwrap();
                    let after: String =
                        sqlx::query_scalar(rig.limit).fetch_one(&mut *connection).await.unwrap();
                    assert_eq!(before, after, "{lock:?} after {polls} polls");
                    if is_done {
                        break;
                    }
                }
            }
        }

        #[tokio::test]
        async fn a_wait_ends_at_its_limit_and_later_statements_have_the_limit_of_before() {
            let rig = $rig::start().await;
            let mut holder = rig.pool.begin().await.unwrap();
            row_lock(&mut holder, "n").await.unwrap();
            let mut other = rig.pool.acquire().await.unwrap();
            let before: String = sqlx::query_scalar(rig.limit).fetch_one(&mut *other).await.unwrap();
            let mut transaction = sqlx::Connection::begin(&mut *other).await.unwrap();
            let limited = RowLock::from("n").wait(std::time::Duration::from_millis(30));
            let late = row_lock(&mut transaction, limited.clone()).await.unwrap_err();
            assert_eq!(late.kind(), RowLockErrorKind::TimedOut, "{late}");
            transaction.rollback().await.unwrap();
            holder.commit().await.unwrap();
            let mut transaction = sqlx::Connection::begin(&mut *other).await.unwrap();
            assert_eq!(row_lock(&mut transaction, limited).await.unwrap().token(), 2);
            let after: String = sqlx::query_scalar(rig.limit).fetch_one(&mut *transaction).await.unwrap();
            assert_eq!(before, after);
        }

        #[tokio::test]
        async fn a_missing_table_is_reported_with_the_statement_that_creates_it() {
            let rig = $rig::start().await;
            let mut transaction = rig.pool.begin().await.unwrap();
            let lock = RowLock::from("n").table("other_locks");
            let missing = row_lock(&mut transaction, lock.clone()).await.unwrap_err();
            assert_eq!(missing.kind(), RowLockErrorKind::MissingTable, "{missing}");
            assert!(missing.to_string().ends_with(&lock.schema($dialect)), "{missing}");
            transaction.rollback().await.unwrap();
            sqlx::raw_sql(sqlx::AssertSqlSafe(lock.schema($dialect).as_str()))
                .execute(&rig.pool)
                .await
                .unwrap();
            let mut transaction = rig.pool.begin().await.unwrap();
            assert_eq!(row_lock(&mut transaction, lock).await.unwrap().token(), 1);
        }

        #[tokio::test]
        async fn names_are_data_and_compared_byte_by_byte() {
            let rig = $rig::start().await;
            let names = ["a", "A", "a ", "ä", "'); DROP TABLE work; --", "\\", "$1 ? %s", "\u{1F512}"];
            let mut transaction = rig.pool.begin().await.unwrap();
            let holds = row_lock(&mut transaction, &names[..]).await.unwrap();
            assert!(names.iter().all(|name| holds.token_of(name) == Some(1)), "{holds:?}");
            transaction.commit().await.unwrap();
            for name in names {
                let mut transaction = rig.pool.begin().await.unwrap();
                assert_eq!(row_lock(&mut transaction, name).await.unwrap().token(), 2, "{name}");
                transaction.commit().await.unwrap();
            }
            assert_eq!(rig.server.query("SELECT count(*) FROM leasehold_row_locks"), ["8"]);
        }

        #[tokio::test]
        async fn a_transaction_with_an_old_snapshot_must_run_again() {
            let rig = $rig::start().await;
            // With a time limit MariaDB gets other statements.
            let limited = |name: &str| RowLock::from(name).wait(std::time::Duration::from_secs(60));
            // Once the row does not exist yet, and once it does.
            for (name, lock, expected) in [
                ("n", RowLock::from("n"), 2),
                ("n", RowLock::from("n"), 4),
                ("m", limited("m"), 2),
                ("m", limited("m"), 4),
                ("n", RowLock::from(["a", "n"]), 1),
            ] {
                let mut old = rig.pool.begin_with(rig.begin_snapshot).await.unwrap();
                let read: i64 =
                    sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut *old).await.unwrap();
                let mut newer = rig.pool.begin().await.unwrap();
                row_lock(&mut newer, name).await.unwrap();
                sqlx::query("UPDATE work SET value = value + 1").execute(&mut *newer).await.unwrap();
                newer.commit().await.unwrap();
                let conflict = row_lock(&mut old, lock.clone()).await.unwrap_err();
                assert!(
                    conflict.is_retryable() && conflict.kind() == RowLockErrorKind::Conflict,
                    "{conflict}"
                );
                old.rollback().await.unwrap();
                // A new transaction of the same level reads what the earlier one committed.
                let mut again = rig.pool.begin_with(rig.begin_snapshot).await.unwrap();
                assert_eq!(row_lock(&mut again, lock).await.unwrap().token(), expected);
                let now: i64 =
                    sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut *again).await.unwrap();
                assert_eq!(now, read + 1);
                again.commit().await.unwrap();
            }
        }

        #[tokio::test]
        async fn a_session_that_the_server_ends_loses_the_lock_and_its_writes() {
            let rig = $rig::start().await;
            let mut first = rig.pool.begin().await.unwrap();
            row_lock(&mut first, "n").await.unwrap();
            sqlx::query("UPDATE work SET value = 9").execute(&mut *first).await.unwrap();
            let session: i64 = sqlx::query_scalar(rig.session).fetch_one(&mut *first).await.unwrap();
            rig.server.query(&rig.end_session.replace("SESSION", &session.to_string()));
            // The server has rolled back as soon as the next transaction has the lock.
            let mut next = rig.pool.begin().await.unwrap();
            assert_eq!(row_lock(&mut next, "n").await.unwrap().token(), 1);
            let read: i64 = sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut *next).await.unwrap();
            assert_eq!(read, 0);
            let broken = row_lock(&mut first, "m").await.unwrap_err();
            assert!(broken.is_retryable() && broken.kind() == RowLockErrorKind::Disconnected, "{broken:?}");
        }
    };
}
