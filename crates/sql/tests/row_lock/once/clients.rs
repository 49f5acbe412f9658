//! `once_in` by way of `tokio-postgres` and `mysql_async`: what these client libraries could do differently.

use std::time::Duration;

use leasehold_sql::{Dialect, OnceIn, OnceInTable, RowLockErrorKind, RowTransaction, once_in};
use mysql_async::{TxOpts, prelude::Queryable};
use tokio_postgres::NoTls;

/// A call whose work is in a closure. Returns whether it was done before.
macro_rules! once {
    ($transaction:expr, |$turn:ident| $work:expr) => {
        match once_in(&mut $transaction, "n").digest([7; 32]).await.unwrap() {
            OnceIn::Done(result) => {
                assert_eq!(result, b"a\0'b");
                true
            }
            OnceIn::Run(turn) => {
                #[allow(unused_mut, reason = "one of the clients needs no mutable reference")]
                let mut $turn = turn;
                $work;
                $turn.done(&b"a\0'b"[..]).await.unwrap();
                false
            }
        }
    };
}

/// Errors of an ongoing run and of another payload.
async fn check_errors<T: RowTransaction>(other: &mut T, kind: RowLockErrorKind) {
    let call = once_in(other, "n").digest([8; 32]).wait(Duration::from_millis(30));
    let error = call.await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
}

#[tokio::test]
async fn tokio_postgres_runs_and_repeats() {
    let rig = crate::postgres::Rig::start().await;
    rig.server.query(&OnceInTable::default().schema(Dialect::Postgres));
    let (mut one, connection) = tokio_postgres::connect(&rig.server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let (mut other, connection) = tokio_postgres::connect(&rig.server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut first = one.transaction().await.unwrap();
    assert!(!once!(first, |turn| turn.execute("UPDATE work SET value = 1", &[]).await.unwrap()));
    check_errors(&mut other.transaction().await.unwrap(), RowLockErrorKind::TimedOut).await;
    first.commit().await.unwrap();
    check_errors(&mut other.transaction().await.unwrap(), RowLockErrorKind::Mismatch).await;
    let mut second = one.transaction().await.unwrap();
    assert!(once!(second, |turn| turn.execute("UPDATE work SET value = 2", &[]).await.unwrap()));
    second.commit().await.unwrap();
    rig.server.query("UPDATE leasehold_once SET ends = 1");
    let mut sweep = one.transaction().await.unwrap();
    assert_eq!(OnceInTable::default().delete_ended(&mut sweep).await.unwrap(), 1);
    assert_eq!(rig.server.query("SELECT value FROM work"), ["1"]);
}

#[tokio::test]
async fn mysql_async_runs_and_repeats() {
    let rig = crate::mysql::Rig::start().await;
    rig.server.query(&OnceInTable::default().schema(Dialect::Mysql));
    let mut one = mysql_async::Conn::from_url(rig.server.url()).await.unwrap();
    let mut other = mysql_async::Conn::from_url(rig.server.url()).await.unwrap();
    let mut first = one.start_transaction(TxOpts::new()).await.unwrap();
    assert!(!once!(first, |turn| turn.query_drop("UPDATE work SET value = 1").await.unwrap()));
    let mut second = other.start_transaction(TxOpts::new()).await.unwrap();
    check_errors(&mut second, RowLockErrorKind::TimedOut).await;
    second.rollback().await.unwrap();
    first.commit().await.unwrap();
    let mut second = other.start_transaction(TxOpts::new()).await.unwrap();
    check_errors(&mut second, RowLockErrorKind::Mismatch).await;
    assert!(once!(second, |turn| turn.query_drop("UPDATE work SET value = 2").await.unwrap()));
    second.commit().await.unwrap();
    rig.server.query("UPDATE leasehold_once SET ends = 1");
    let mut sweep = one.start_transaction(TxOpts::new()).await.unwrap();
    assert_eq!(OnceInTable::default().delete_ended(&mut sweep).await.unwrap(), 1);
    sweep.commit().await.unwrap();
    assert_eq!(rig.server.query("SELECT value FROM work"), ["1"]);
    drop((one.disconnect().await, other.disconnect().await));
}
