//! Records on MariaDB or MySQL, by way of `sqlx`.

use leasehold_sql::Dialect;
use sqlx::{MySql, mysql::MySqlPoolOptions};

use crate::mysql::Rig;

once_suite!(Rig, MySql, Dialect::Mysql, "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))");

#[tokio::test]
async fn the_time_zone_of_a_session_does_not_matter() {
    let rig = rig().await;
    for (first, second) in [("+12:00", "-12:00"), ("-12:00", "+12:00")] {
        rig.server.query("DELETE FROM leasehold_once");
        for (zone, expected) in [(first, false), (second, true)] {
            let mut connection = rig.pool.acquire().await.unwrap();
            let set = format!("SET time_zone = '{zone}'");
            sqlx::raw_sql(AssertSqlSafe(&*set)).execute(&mut *connection).await.unwrap();
            let mut transaction = connection.begin().await.unwrap();
            let was_done = match once_in(&mut transaction, "n").keep(Duration::from_secs(3600)).await.unwrap()
            {
                OnceIn::Done(_) => true,
                OnceIn::Run(turn) => {
                    turn.done("").await.unwrap();
                    false
                }
            };
            assert_eq!(was_done, expected, "{zone}");
            transaction.commit().await.unwrap();
            assert_eq!(
                OnceInTable::default().delete_ended(&mut connection.begin().await.unwrap()).await.unwrap(),
                0
            );
        }
    }
}

#[tokio::test]
async fn every_isolation_level_runs_and_repeats() {
    let rig = rig().await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        for expected in [false, true] {
            let mut connection = rig.pool.acquire().await.unwrap();
            let set = format!("SET TRANSACTION ISOLATION LEVEL {level}");
            sqlx::raw_sql(AssertSqlSafe(&*set)).execute(&mut *connection).await.unwrap();
            let mut transaction = connection.begin().await.unwrap();
            assert_eq!(work(&mut transaction, level).await.unwrap().1, expected, "{level}");
            transaction.commit().await.unwrap();
        }
    }
    assert_eq!(rig.server.query("SELECT value FROM work"), ["3"]);
}

#[tokio::test]
async fn the_rights_on_the_page_suffice() {
    let rig = rig().await;
    rig.server.query("CREATE USER app@'%'");
    rig.server.query("GRANT SELECT, UPDATE ON work TO app@'%'");
    let url = format!("mysql://app@127.0.0.1:{}/locks", rig.server.port());
    let pool = MySqlPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    let denied = once_in(&mut transaction, "n").await.unwrap_err();
    assert_eq!(denied.kind(), RowLockErrorKind::Denied, "{denied}");
    transaction.rollback().await.unwrap();
    rig.server.query("GRANT SELECT, INSERT, UPDATE ON leasehold_once TO app@'%'");
    assert!(!commit_work(&pool, "n").await);
    assert!(commit_work(&pool, "n").await);
    rig.server.query("UPDATE leasehold_once SET ends = 1");
    rig.server.query("REVOKE INSERT ON leasehold_once FROM app@'%'");
    rig.server.query("GRANT DELETE ON leasehold_once TO app@'%'");
    let mut transaction = pool.begin().await.unwrap();
    assert_eq!(OnceInTable::default().delete_ended(&mut transaction).await.unwrap(), 1);
}
