//! Records on PostgreSQL, by way of `sqlx`.

use leasehold_sql::Dialect;
use sqlx::{Postgres, postgres::PgPoolOptions};

use crate::postgres::Rig;

once_suite!(Rig, Postgres, Dialect::Postgres, "(date_part('epoch', clock_timestamp()) * 1000000)::bigint");

#[tokio::test]
async fn a_transaction_that_has_written_has_the_turn_only_on_request() {
    let rig = rig().await;
    let mut transaction = rig.pool.begin().await.unwrap();
    execute(&mut transaction, "UPDATE work SET value = 5").await;
    let refused = once_in(&mut transaction, "n").await.unwrap_err();
    assert_eq!(refused.kind(), RowLockErrorKind::NotFirst, "{refused}");
    for key in ["n", "m"] {
        let call = once_in(&mut transaction, key).after_writes();
        let OnceIn::Run(turn) = call.await.unwrap() else { panic!() };
        turn.done("").await.unwrap();
    }
    transaction.commit().await.unwrap();
    assert_eq!(rig.server.query("SELECT name FROM leasehold_once ORDER BY name"), ["m", "n"]);
}

#[tokio::test]
async fn repeats_that_receive_the_result_do_not_wait_for_each_other() {
    let rig = rig().await;
    assert!(!commit_work(&rig.pool, "n").await);
    let (mut one, mut other) = (rig.pool.begin().await.unwrap(), rig.pool.begin().await.unwrap());
    assert!(work(&mut one, "n").await.unwrap().1);
    let call = once_in(&mut other, "n").wait(Duration::from_millis(1));
    assert!(matches!(call.await.unwrap(), OnceIn::Done(_)));
}

#[tokio::test]
async fn the_rights_on_the_page_suffice() {
    let rig = rig().await;
    rig.server.query("CREATE ROLE app LOGIN");
    rig.server.query("GRANT SELECT, UPDATE ON work TO app");
    let url = format!("postgres://app@127.0.0.1:{}/postgres", rig.server.port());
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let denied = once_in(&mut transaction, "n").await.unwrap_err();
    assert_eq!(denied.kind(), RowLockErrorKind::Denied, "{denied}");
    assert!(denied.to_string().ends_with("SELECT, INSERT and UPDATE on leasehold_once"), "{denied}");
    transaction.rollback().await.unwrap();
    rig.server.query("GRANT SELECT, INSERT, UPDATE ON leasehold_once TO app");
    assert!(!commit_work(&pool, "n").await);
    assert!(commit_work(&pool, "n").await);
    rig.server.query("REVOKE ALL ON leasehold_once FROM app");
    rig.server.query("GRANT SELECT, UPDATE, DELETE ON leasehold_once TO app");
    let mut transaction = pool.begin().await.unwrap();
    assert_eq!(OnceInTable::default().delete_ended(&mut transaction).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_repeatable_read_a_call_that_waited_for_a_commit_must_run_again() {
    let rig = rig().await;
    let mut first = rig.pool.begin().await.unwrap();
    assert!(!work(&mut first, "n").await.unwrap().1);
    let (pool, begin) = (rig.pool.clone(), rig.begin_snapshot);
    let second = tokio::spawn(async move {
        let mut second = pool.begin_with(begin).await.unwrap();
        work(&mut second, "n").await.unwrap_err()
    });
    until("the second transaction waits", || rig.is_waiting());
    first.commit().await.unwrap();
    let conflict = second.await.unwrap();
    assert!(conflict.is_retryable() && conflict.kind() == RowLockErrorKind::Conflict, "{conflict}");
}
