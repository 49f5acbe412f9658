//! The cases that hold for PostgreSQL, MySQL and MariaDB, by way of `sqlx`.

/// Makes a module of tests of `once_in` for a `Rig` as that of the suite of row locks. `$database`: the type of `sqlx`.
/// `$now`: the time of the server in microseconds.
macro_rules! once_suite {
    ($rig:ident, $database:ty, $dialect:expr, $now:literal) => {
        use std::{
            sync::atomic::{AtomicUsize, Ordering},
            time::Duration,
        };

        use leasehold_sql::{OnceIn, OnceInTable, RowLockError, RowLockErrorKind, once_in};
        use sqlx::{AssertSqlSafe, Connection, Pool, Transaction};

        use crate::until::until;

        /// A rig with the table of the records.
        async fn rig() -> $rig {
            let rig = $rig::start().await;
            rig.server.query(&OnceInTable::default().schema($dialect));
            rig
        }

        async fn execute(transaction: &mut Transaction<'_, $database>, text: &str) {
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut **transaction).await.unwrap();
        }

        async fn value(transaction: &mut Transaction<'_, $database>) -> i64 {
            sqlx::query_scalar("SELECT value FROM work").fetch_one(&mut **transaction).await.unwrap()
        }

        /// Does the work of the key unless it is done. Returns the result, and whether it is that of an earlier run.
        async fn work(
            transaction: &mut Transaction<'_, $database>,
            key: &str,
        ) -> Result<(Vec<u8>, bool), RowLockError> {
            match once_in(transaction, key).await? {
                OnceIn::Done(result) => Ok((result, true)),
                OnceIn::Run(mut turn) => {
                    sqlx::query("UPDATE work SET value = value + 1").execute(&mut **turn).await.unwrap();
                    turn.done("receipt").await?;
                    Ok((b"receipt".to_vec(), false))
                }
            }
        }

        /// Work in a transaction of its own, committed. Returns whether the result was that of an earlier run.
        async fn commit_work(pool: &Pool<$database>, key: &str) -> bool {
            let mut transaction = pool.begin().await.unwrap();
            let (result, was_done) = work(&mut transaction, key).await.unwrap();
            assert_eq!(result, b"receipt");
            transaction.commit().await.unwrap();
            was_done
        }

        fn micros(rig: &$rig, query: &str) -> i64 {
            rig.server.query(query)[0].parse().unwrap()
        }

        /// Waits until the record of the key has ended by the clock of the server.
        fn until_ended(rig: &$rig, key: &str) {
            let query = format!("SELECT ends - {} FROM leasehold_once WHERE name = '{key}'", $now);
            until("the record ends", || micros(rig, &query) <= 0);
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn a_repeat_waits_for_the_first_transaction_and_receives_its_result() {
            let rig = rig().await;
            let mut first = rig.pool.begin().await.unwrap();
            assert!(!work(&mut first, "n").await.unwrap().1);
            let pool = rig.pool.clone();
            let second = tokio::spawn(async move {
                let mut second = pool.begin().await.unwrap();
                let (result, was_done) = work(&mut second, "n").await.unwrap();
                (result, was_done, value(&mut second).await)
            });
            until("the second transaction waits", || rig.is_waiting());
            // Another key is free meanwhile.
            assert!(!commit_work_elsewhere(&rig, "m").await);
            first.commit().await.unwrap();
            assert_eq!(second.await.unwrap(), (b"receipt".to_vec(), true, 1));
        }

        /// A key whose work changes no row that another transaction has changed.
        async fn commit_work_elsewhere(rig: &$rig, key: &str) -> bool {
            let mut transaction = rig.pool.begin().await.unwrap();
            let was_done = match once_in(&mut transaction, key).await.unwrap() {
                OnceIn::Done(_) => true,
                OnceIn::Run(turn) => {
                    turn.done("").await.unwrap();
                    false
                }
            };
            transaction.commit().await.unwrap();
            was_done
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn of_many_at_once_one_is_committed_however_many_roll_back() {
            static RUNS: AtomicUsize = AtomicUsize::new(0);
            let rig = rig().await;
            let tasks: Vec<_> = (0..5)
                .map(|_| {
                    let pool = rig.pool.clone();
                    tokio::spawn(async move {
                        loop {
                            let mut transaction = pool.begin().await.unwrap();
                            match work(&mut transaction, "n").await {
                                Ok((result, was_done)) => {
                                    assert_eq!(result, b"receipt");
                                    // The first three roll back after the work.
                                    if was_done || RUNS.fetch_add(1, Ordering::SeqCst) >= 3 {
                                        transaction.commit().await.unwrap();
                                        return was_done;
                                    }
                                    transaction.rollback().await.unwrap();
                                }
                                Err(error) if error.is_retryable() => transaction.rollback().await.unwrap(),
                                Err(error) => panic!("{error}"),
                            }
                        }
                    })
                })
                .collect();
            let mut fresh = 0;
            for task in tasks {
                fresh += usize::from(!task.await.unwrap());
            }
            assert_eq!((fresh, RUNS.load(Ordering::SeqCst)), (1, 4));
            assert_eq!(rig.server.query("SELECT value FROM work"), ["1"]);
        }

        #[tokio::test]
        async fn a_rollback_or_a_commit_without_done_leaves_the_turn_to_the_next() {
            let rig = rig().await;
            let mut transaction = rig.pool.begin().await.unwrap();
            assert!(!work(&mut transaction, "n").await.unwrap().1);
            transaction.rollback().await.unwrap();
            let mut transaction = rig.pool.begin().await.unwrap();
            let OnceIn::Run(turn) = once_in(&mut transaction, "n").await.unwrap() else { panic!() };
            drop(turn);
            transaction.commit().await.unwrap();
            for was_done in [false, true, true] {
                assert_eq!(commit_work(&rig.pool, "n").await, was_done);
            }
            assert_eq!(rig.server.query("SELECT value FROM work"), ["1"]);
        }

        #[tokio::test]
        async fn a_session_that_the_server_ends_records_nothing() {
            let rig = rig().await;
            let mut first = rig.pool.begin().await.unwrap();
            let session: i64 = sqlx::query_scalar(rig.session).fetch_one(&mut *first).await.unwrap();
            let OnceIn::Run(mut turn) = once_in(&mut first, "n").await.unwrap() else { panic!() };
            sqlx::query("UPDATE work SET value = 9").execute(&mut **turn).await.unwrap();
            rig.server.query(&rig.end_session.replace("SESSION", &session.to_string()));
            // The server has rolled back as soon as the next transaction has the turn.
            assert!(!commit_work(&rig.pool, "n").await);
            assert_eq!(rig.server.query("SELECT value FROM work"), ["1"]);
            let broken = turn.done("").await.unwrap_err();
            assert!(broken.is_retryable() && broken.kind() == RowLockErrorKind::Disconnected, "{broken:?}");
        }

        #[tokio::test]
        async fn another_payload_is_told_apart_if_both_have_a_digest() {
            let rig = rig().await;
            let mut transaction = rig.pool.begin().await.unwrap();
            let OnceIn::Run(turn) = once_in(&mut transaction, "n").digest([1; 32]).await.unwrap() else {
                panic!()
            };
            turn.done("receipt").await.unwrap();
            transaction.commit().await.unwrap();
            assert!(commit_work(&rig.pool, "n").await, "a call without a digest compares nothing");
            let mut transaction = rig.pool.begin().await.unwrap();
            let same = once_in(&mut transaction, "n").digest([1; 32]).await.unwrap();
            assert!(matches!(same, OnceIn::Done(result) if result == b"receipt"));
            let other = once_in(&mut transaction, "n").digest([2; 32]).await.unwrap_err();
            assert_eq!(other.kind(), RowLockErrorKind::Mismatch, "{other}");
            assert!(!other.is_retryable() && !other.is_taken());
            transaction.rollback().await.unwrap();
            // A record without a digest.
            assert!(!commit_work(&rig.pool, "m").await);
            let mut transaction = rig.pool.begin().await.unwrap();
            let call = once_in(&mut transaction, "m").digest([2; 32]);
            assert!(matches!(call.await.unwrap(), OnceIn::Done(_)));
        }

        #[tokio::test]
        async fn a_record_ends_by_the_clock_of_the_server() {
            const HOUR: Duration = Duration::from_secs(3600);
            let rig = rig().await;
            let now = concat!("SELECT ", $now);
            let before = micros(&rig, now);
            let mut transaction = rig.pool.begin().await.unwrap();
            let OnceIn::Run(turn) = once_in(&mut transaction, "n").keep(HOUR).await.unwrap() else { panic!() };
            turn.done("").await.unwrap();
            transaction.commit().await.unwrap();
            let ends = micros(&rig, "SELECT ends FROM leasehold_once") - 3_600_000_000;
            assert!((before..=micros(&rig, now)).contains(&ends), "{before} {ends}");
            // A short time, over and over.
            for _ in 0..3 {
                let mut transaction = rig.pool.begin().await.unwrap();
                let call = once_in(&mut transaction, "m").keep(Duration::from_millis(1)).digest([1; 32]);
                let OnceIn::Run(turn) = call.await.unwrap() else { panic!("the record has ended") };
                turn.done("short").await.unwrap();
                transaction.commit().await.unwrap();
                until_ended(&rig, "m");
            }
            // The digest of an ended record is compared with nothing, and does not stay.
            assert!(!commit_work(&rig.pool, "m").await);
            assert_eq!(rig.server.query("SELECT count(*) FROM leasehold_once WHERE digest IS NOT NULL"), ["0"]);
        }

        #[tokio::test]
        async fn a_transaction_with_an_old_snapshot_must_run_again() {
            let rig = rig().await;
            let hour = Duration::from_secs(3600);
            for (key, keep) in [("a", hour), ("b", Duration::from_millis(1))] {
                // Once the row does not exist yet, and once it has ended.
                for is_new in [true, false] {
                    if !is_new {
                        rig.server.query("UPDATE leasehold_once SET ends = 1");
                    }
                    let mut old = rig.pool.begin_with(rig.begin_snapshot).await.unwrap();
                    let read = value(&mut old).await;
                    let mut newer = rig.pool.begin().await.unwrap();
                    let OnceIn::Run(mut turn) = once_in(&mut newer, key).keep(keep).await.unwrap() else {
                        panic!()
                    };
                    sqlx::query("UPDATE work SET value = value + 1").execute(&mut **turn).await.unwrap();
                    turn.done("receipt").await.unwrap();
                    newer.commit().await.unwrap();
                    if keep < hour {
                        until_ended(&rig, key);
                    }
                    let conflict = once_in(&mut old, key).await.unwrap_err();
                    assert!(
                        conflict.is_retryable() && conflict.kind() == RowLockErrorKind::Conflict,
                        "{conflict}"
                    );
                    old.rollback().await.unwrap();
                    // A new transaction of the same level.
                    let mut again = rig.pool.begin_with(rig.begin_snapshot).await.unwrap();
                    let is_done = matches!(once_in(&mut again, key).await.unwrap(), OnceIn::Done(_));
                    assert_eq!((is_done, value(&mut again).await), (keep == hour, read + 1));
                    again.rollback().await.unwrap();
                }
            }
        }

        #[tokio::test]
        async fn with_read_committed_an_earlier_read_does_not_matter() {
            let rig = rig().await;
            let mut connection = rig.pool.acquire().await.unwrap();
            for key in ["a", "b"] {
                let level = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED";
                let level = level.replace(rig.session_level.0, rig.session_level.1);
                sqlx::raw_sql(AssertSqlSafe(&*level)).execute(&mut *connection).await.unwrap();
                let mut early = connection.begin().await.unwrap();
                let read = value(&mut early).await;
                assert!(!commit_work(&rig.pool, key).await);
                assert!(work(&mut early, key).await.unwrap().1);
                assert_eq!(value(&mut early).await, read + 1);
            }
        }

        #[tokio::test]
        async fn keys_and_results_are_data() {
            let rig = rig().await;
            let longest = "k".repeat(512);
            let keys = ["a", "A", "a ", "ä", "'); DROP TABLE work; --", "\\", "$1 ? %s", "\u{1F512}", &longest];
            let all_bytes: Vec<u8> = (0..=255).collect();
            let quotes = br#"'"\'); DROP TABLE leasehold_once; --"#.to_vec();
            let largest = vec![0xff; 65_536];
            let results = [all_bytes, quotes, Vec::new(), largest];
            for is_repeat in [false, true] {
                for (key, expected) in keys.iter().zip(results.iter().cycle()) {
                    let mut transaction = rig.pool.begin().await.unwrap();
                    match once_in(&mut transaction, *key).await.unwrap() {
                        OnceIn::Run(turn) if !is_repeat => turn.done(expected.clone()).await.unwrap(),
                        OnceIn::Done(result) if is_repeat => assert_eq!(result, *expected, "{key}"),
                        other => panic!("{key}: {other:?}"),
                    }
                    transaction.commit().await.unwrap();
                }
            }
            assert_eq!(rig.server.query("SELECT count(*) FROM leasehold_once"), ["9"]);
            let mut transaction = rig.pool.begin().await.unwrap();
            let OnceIn::Run(turn) = once_in(&mut transaction, "too much").await.unwrap() else { panic!() };
            let refused = turn.done(vec![0; 65_537]).await.unwrap_err();
            assert_eq!(refused.kind(), RowLockErrorKind::Invalid, "{refused}");
        }

        #[tokio::test]
        async fn a_turn_before_a_savepoint_that_was_rolled_back_is_no_turn() {
            let rig = rig().await;
            // Once the row of the key is new, and once it is that of an ended record.
            for _ in 0..2 {
                let mut transaction = rig.pool.begin().await.unwrap();
                execute(&mut transaction, "SAVEPOINT early").await;
                let OnceIn::Run(mut turn) = once_in(&mut transaction, "n").await.unwrap() else { panic!() };
                execute(&mut turn, "ROLLBACK TO SAVEPOINT early").await;
                let conflict = turn.done("").await.unwrap_err();
                assert!(conflict.is_retryable(), "{conflict}");
                transaction.rollback().await.unwrap();
                assert!(!commit_work(&rig.pool, "n").await);
                rig.server.query("UPDATE leasehold_once SET ends = 1");
            }
        }

        #[tokio::test]
        async fn a_wait_ends_at_its_limit_and_later_statements_have_the_limit_of_before() {
            let rig = rig().await;
            let mut holder = rig.pool.begin().await.unwrap();
            assert!(!work(&mut holder, "n").await.unwrap().1);
            let mut other = rig.pool.acquire().await.unwrap();
            let before: String = sqlx::query_scalar(rig.limit).fetch_one(&mut *other).await.unwrap();
            let mut transaction = other.begin().await.unwrap();
            let late = once_in(&mut transaction, "n").wait(Duration::from_millis(30)).await.unwrap_err();
            assert!(late.is_taken() && late.kind() == RowLockErrorKind::TimedOut, "{late}");
            transaction.rollback().await.unwrap();
            holder.rollback().await.unwrap();
            let mut transaction = other.begin().await.unwrap();
            let OnceIn::Run(mut turn) = once_in(&mut transaction, "n").wait(Duration::from_secs(9)).await.unwrap()
            else {
                panic!()
            };
            let after: String = sqlx::query_scalar(rig.limit).fetch_one(&mut **turn).await.unwrap();
            assert_eq!(before, after);
        }

        #[tokio::test]
        async fn ended_records_are_deleted_in_parts_and_keys_in_use_are_skipped() {
            let (rig, table) = (rig().await, OnceInTable::default());
            for key in ["ended", "in use", "stored"] {
                assert!(!commit_work(&rig.pool, key).await);
            }
            rig.server.query("UPDATE leasehold_once SET ends = 1 WHERE name <> 'stored'");
            let mut user = rig.pool.begin().await.unwrap();
            let _turn = once_in(&mut user, "in use").await.unwrap();
            let mut new = rig.pool.begin().await.unwrap();
            let _other_turn = once_in(&mut new, "new").await.unwrap();
            let mut sweep = rig.pool.begin().await.unwrap();
            assert_eq!(table.delete_ended(&mut sweep).await.unwrap(), 1);
            // Keys that were never used are free while the deletion is not committed.
            assert!(!commit_work_elsewhere(&rig, "alone").await);
            sweep.commit().await.unwrap();
            user.rollback().await.unwrap();
            new.rollback().await.unwrap();
            let names = rig.server.query("SELECT name FROM leasehold_once ORDER BY name");
            assert_eq!(names, ["alone", "in use", "stored"]);
            rig.server.query(rig.many_ended);
            for expected in [500, 500, 3, 0] {
                let mut sweep = rig.pool.begin().await.unwrap();
                assert_eq!(table.delete_ended(&mut sweep).await.unwrap(), expected);
                sweep.commit().await.unwrap();
            }
            assert!(commit_work(&rig.pool, "stored").await);
        }

        #[tokio::test]
        async fn a_missing_table_is_reported_with_the_statements_that_create_it() {
            let rig = $rig::start().await;
            let table = OnceInTable::new("other_records");
            let mut transaction = rig.pool.begin().await.unwrap();
            let missing = once_in(&mut transaction, "n").table(&table).await.unwrap_err();
            assert_eq!(missing.kind(), RowLockErrorKind::MissingTable, "{missing}");
            assert!(missing.to_string().ends_with(&table.schema($dialect)), "{missing}");
            transaction.rollback().await.unwrap();
            for _ in 0..2 {
                rig.server.query(&table.schema($dialect));
            }
            let mut transaction = rig.pool.begin().await.unwrap();
            let OnceIn::Run(turn) = once_in(&mut transaction, "n").table(&table).await.unwrap() else {
                panic!()
            };
            turn.done("").await.unwrap();
            transaction.commit().await.unwrap();
            assert_eq!(rig.server.query("SELECT name FROM other_records"), ["n"]);
        }
    };
}
