//! MariaDB or MySQL by way of `mysql_async`: what the client library could do differently.

use leasehold_sql::{RowLock, RowLockErrorKind, row_lock};
use mysql_async::{Conn, TxOpts, prelude::Queryable};

use crate::mysql::Rig;

async fn connect(rig: &Rig) -> Conn {
    Conn::from_url(rig.server.url()).await.unwrap()
}

#[tokio::test]
async fn names_are_locked_until_the_end_of_the_transaction() {
    let rig = Rig::start().await;
    let (mut one, mut other) = (connect(&rig).await, connect(&rig).await);
    let mut first = one.start_transaction(TxOpts::new()).await.unwrap();
    assert_eq!(
        row_lock(&mut first, ["b", "a"]).await.unwrap().iter().collect::<Vec<_>>(),
        [("a", 1), ("b", 1)]
    );
    let mut second = other.start_transaction(TxOpts::new()).await.unwrap();
    let taken = row_lock(&mut second, RowLock::from("a").no_wait()).await.unwrap_err();
    assert_eq!(taken.kind(), RowLockErrorKind::Taken, "{taken}");
    let skipped = row_lock(&mut second, RowLock::from(["a", "c"]).skip_locked()).await.unwrap();
    assert_eq!(skipped.iter().collect::<Vec<_>>(), [("c", 1)]);
    second.rollback().await.unwrap();
    first.commit().await.unwrap();
    let mut second = other.start_transaction(TxOpts::new()).await.unwrap();
    assert_eq!(row_lock(&mut second, "a").await.unwrap().token(), 2);
    second.rollback().await.unwrap();
    drop((one.disconnect().await, other.disconnect().await));
}

#[tokio::test]
async fn errors_have_the_same_kinds() {
    let rig = Rig::start().await;
    let (mut one, mut other) = (connect(&rig).await, connect(&rig).await);
    let mut transaction = one.start_transaction(TxOpts::new()).await.unwrap();
    let missing = row_lock(&mut transaction, RowLock::from("n").table("nowhere")).await.unwrap_err();
    assert_eq!(missing.kind(), RowLockErrorKind::MissingTable, "{missing}");
    transaction.rollback().await.unwrap();
    let session = one.id();
    let mut holder = one.start_transaction(TxOpts::new()).await.unwrap();
    row_lock(&mut holder, "n").await.unwrap();
    let mut transaction = other.start_transaction(TxOpts::new()).await.unwrap();
    // The error is that of a later statement than the first of its text.
    let conflict = {
        transaction.query_drop("SELECT value FROM work").await.unwrap();
        holder.commit().await.unwrap();
        row_lock(&mut transaction, "n").await.unwrap_err()
    };
    assert_eq!(conflict.kind(), RowLockErrorKind::Conflict, "{conflict}");
    transaction.rollback().await.unwrap();
    let mut holder = one.start_transaction(TxOpts::new()).await.unwrap();
    row_lock(&mut holder, "n").await.unwrap();
    let mut transaction = other.start_transaction(TxOpts::new()).await.unwrap();
    let limited = RowLock::from("n").wait(std::time::Duration::from_millis(30));
    let late = row_lock(&mut transaction, limited).await.unwrap_err();
    assert_eq!(late.kind(), RowLockErrorKind::TimedOut, "{late}");
    transaction.rollback().await.unwrap();
    rig.server.query(&format!("KILL {session}"));
    let broken = row_lock(&mut holder, "m").await.unwrap_err();
    assert_eq!(broken.kind(), RowLockErrorKind::Disconnected, "{broken}");
    drop(holder);
    other.disconnect().await.unwrap();
}
