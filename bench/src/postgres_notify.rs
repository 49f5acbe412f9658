//! The cost of notifications on PostgreSQL at the highest rates of commits. Commits with notifications happen one after
//! the other, because all notifications go into one queue.

use std::{future::poll_fn, sync::Arc, time::Duration};

use leasehold_testkit::server::PostgresServer;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};

use crate::{Failure, comparison::Comparison, pairs::per_second};

/// The approximate length of one measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(400);
const ROUNDS: usize = 15;
const CONNECTIONS: usize = 16;
const LISTENERS: usize = 4;

const UPDATE: &str = "UPDATE bare SET token = token + 1 WHERE name = $1";
const NOTIFIED: &str = "WITH it AS (UPDATE bare SET token = token + 1 WHERE name = $1 RETURNING name) \
    SELECT pg_notify($2, 'granted ' || name || ' 1 1795342775315027 30000000 0') FROM it";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = PostgresServer::durable(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let conns = runtime.block_on(conns(&server.url()))?;
    let _listeners = runtime.block_on(listeners(&server.url()))?;
    println!("  {CONNECTIONS} connections, a row each; {LISTENERS} that listen, each to its own channel");
    Comparison::new("commits/s")
        .rounds(ROUNDS)
        .candidate("an update", || commits(&runtime, &conns, false))
        .candidate("an update that notifies one that listens", || commits(&runtime, &conns, true))
        .run()
}

struct Conn {
    client: Client,
    update: Statement,
    notified: Statement,
}

async fn conns(url: &str) -> Result<Vec<Arc<Conn>>, Failure> {
    let mut conns = Vec::new();
    for index in 0..CONNECTIONS {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        let table = "CREATE TABLE IF NOT EXISTS bare (name text PRIMARY KEY, token bigint NOT NULL) WITH (fillfactor = 50)";
        client.batch_execute(table).await?;
        client.execute("INSERT INTO bare VALUES ($1, 0)", &[&index.to_string()]).await?;
        let (update, notified) = (client.prepare(UPDATE).await?, client.prepare(NOTIFIED).await?);
        conns.push(Arc::new(Conn { client, update, notified }));
    }
    Ok(conns)
}

/// Clients that listen, and ignore the notifications.
async fn listeners(url: &str) -> Result<Vec<Client>, Failure> {
    let mut listeners = Vec::new();
    for index in 0..LISTENERS {
        let (client, mut connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(async move {
            while let Some(Ok(_)) = poll_fn(|context| connection.poll_message(context)).await {}
        });
        client.batch_execute(&format!("LISTEN bare_{index}")).await?;
        listeners.push(client);
    }
    Ok(listeners)
}

fn commits(runtime: &Runtime, conns: &[Arc<Conn>], notifies: bool) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, conns.len(), |task| {
        let conn = Arc::clone(&conns[task]);
        move || commit(Arc::clone(&conn), notifies, task)
    })
}

async fn commit(conn: Arc<Conn>, notifies: bool, task: usize) -> Result<(), Failure> {
    let (name, channel) = (task.to_string(), format!("bare_{}", task % LISTENERS));
    let Conn { client, update, notified } = &*conn;
    if notifies {
        client.query_one(notified, &[&name, &channel]).await?;
    } else {
        client.execute(update, &[&name]).await?;
    }
    Ok(())
}
