//! Transactions that lock a row and change another one, on PostgreSQL and MariaDB. `row_lock` is compared with
//! `SELECT ... FOR UPDATE` in the same transaction of the same client library.

use std::{sync::Arc, time::Duration};

use leasehold::sql::{Dialect, RowLock, row_lock};
use leasehold_testkit::server::{MariadbServer, PostgresServer};
use mysql_async::{Conn, TxOpts, prelude::Queryable};
use tokio::{runtime::Runtime, sync::Mutex};
use tokio_postgres::{Client, NoTls, types::Type};

use crate::{Failure, comparison::Comparison, pairs::per_second};

/// The approximate length of one measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(400);
const ROUNDS: usize = 15;
const BARE_POSTGRES: &str = "SELECT token FROM leasehold_row_locks WHERE name = $1 FOR UPDATE";
const BARE_MYSQL: &str = "SELECT token FROM leasehold_row_locks WHERE name = 'bench' FOR UPDATE";
const WORK: &str = "UPDATE work SET value = value + 1";

/// How a transaction locks the row.
#[derive(Clone, Copy)]
enum Lock {
    Bare,
    Leasehold,
}

pub(crate) fn bench() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = PostgresServer::durable(&[]);
    for text in tables(Dialect::Postgres) {
        server.query(&text);
    }
    let client = Arc::new(Mutex::new(runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await?;
        tokio::spawn(connection);
        Ok::<_, Failure>(client)
    })?));
    println!("  PostgreSQL");
    compare(|lock| postgres(&runtime, &client, lock))?;
    let server = MariadbServer::durable(&[]);
    for text in tables(Dialect::Mysql) {
        server.query(&text);
    }
    let conn = Arc::new(Mutex::new(runtime.block_on(Conn::from_url(server.url()))?));
    println!("  MariaDB");
    compare(|lock| mysql(&runtime, &conn, lock))
}

fn tables(dialect: Dialect) -> [String; 4] {
    [
        RowLock::from("bench").schema(dialect),
        "INSERT INTO leasehold_row_locks VALUES ('bench', 1)".to_owned(),
        "CREATE TABLE work (value bigint NOT NULL)".to_owned(),
        "INSERT INTO work VALUES (0)".to_owned(),
    ]
}

fn compare(measure: impl Fn(Lock) -> Result<f64, Failure>) -> Result<(), Failure> {
    Comparison::new("transactions/s")
        .rounds(ROUNDS)
        .candidate("SELECT ... FOR UPDATE", || measure(Lock::Bare))
        .candidate("row_lock", || measure(Lock::Leasehold))
        .run()
}

fn postgres(runtime: &Runtime, client: &Arc<Mutex<Client>>, lock: Lock) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, 1, |_| {
        let client = Arc::clone(client);
        move || {
            let client = Arc::clone(&client);
            async move {
                let mut client = client.lock().await;
                let mut transaction = client.transaction().await?;
                match lock {
                    Lock::Bare => {
                        drop(transaction.query_typed(BARE_POSTGRES, &[(&"bench", Type::TEXT)]).await?)
                    }
                    Lock::Leasehold => drop(row_lock(&mut transaction, "bench").await?),
                }
                transaction.query_typed(WORK, &[]).await?;
                Ok(transaction.commit().await?)
            }
        }
    })
}

fn mysql(runtime: &Runtime, conn: &Arc<Mutex<Conn>>, lock: Lock) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, 1, |_| {
        let conn = Arc::clone(conn);
        move || {
            let conn = Arc::clone(&conn);
            async move {
                let mut conn = conn.lock().await;
                let mut transaction = conn.start_transaction(TxOpts::new()).await?;
                match lock {
                    Lock::Bare => drop(transaction.query_first::<i64, _>(BARE_MYSQL).await?),
                    Lock::Leasehold => drop(row_lock(&mut transaction, "bench").await?),
                }
                transaction.query_drop(WORK).await?;
                Ok(transaction.commit().await?)
            }
        }
    })
}
