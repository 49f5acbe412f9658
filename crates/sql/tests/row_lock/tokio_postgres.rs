//! PostgreSQL by way of `tokio-postgres`: what the client library could do differently.

use leasehold_sql::{RowLock, RowLockErrorKind, row_lock};
use tokio_postgres::{Client, NoTls};

use crate::postgres::Rig;

async fn connect(rig: &Rig) -> Client {
    let (client, connection) = tokio_postgres::connect(&rig.server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn names_are_locked_until_the_end_of_the_transaction() {
    let rig = Rig::start().await;
    let (mut one, mut other) = (connect(&rig).await, connect(&rig).await);
    let mut first = one.transaction().await.unwrap();
    assert_eq!(
        row_lock(&mut first, ["b", "a"]).await.unwrap().iter().collect::<Vec<_>>(),
        [("a", 1), ("b", 1)]
    );
    let mut second = other.transaction().await.unwrap();
    let taken = row_lock(&mut second, RowLock::from("a").no_wait()).await.unwrap_err();
    assert_eq!(taken.kind(), RowLockErrorKind::Taken, "{taken}");
    let skipped = row_lock(&mut second, RowLock::from(["a", "c"]).skip_locked()).await.unwrap();
    assert_eq!(skipped.iter().collect::<Vec<_>>(), [("c", 1)]);
    second.rollback().await.unwrap();
    first.commit().await.unwrap();
    let mut second = other.transaction().await.unwrap();
    assert_eq!(row_lock(&mut second, "a").await.unwrap().token(), 2);
}

#[tokio::test]
async fn errors_have_the_same_kinds() {
    let rig = Rig::start().await;
    let (mut one, mut other) = (connect(&rig).await, connect(&rig).await);
    let mut transaction = one.transaction().await.unwrap();
    let missing = row_lock(&mut transaction, RowLock::from("n").table("nowhere")).await.unwrap_err();
    assert_eq!(missing.kind(), RowLockErrorKind::MissingTable, "{missing}");
    transaction.rollback().await.unwrap();
    let mut holder = one.transaction().await.unwrap();
    row_lock(&mut holder, "n").await.unwrap();
    let mut transaction = other.transaction().await.unwrap();
    let limited = RowLock::from("n").wait(std::time::Duration::from_millis(30));
    let late = row_lock(&mut transaction, limited).await.unwrap_err();
    assert_eq!(late.kind(), RowLockErrorKind::TimedOut, "{late}");
    transaction.rollback().await.unwrap();
    rig.server.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    );
    let broken = row_lock(&mut holder, "m").await.unwrap_err();
    assert_eq!(broken.kind(), RowLockErrorKind::Disconnected, "{broken}");
}
