//! Two processes acquire one lock on PostgreSQL in turns. Measures the time from the sending of the release in one
//! process to the grant in the other. This time is compared with that of a bare client that commits a notification,
//! while a bare client in another process receives the notification.

use std::{future::poll_fn, time::Duration};

use leasehold_core::Env;
use leasehold_sql::postgres::{Config, engine};
use leasehold_testkit::server::PostgresServer;
use tokio_postgres::{AsyncMessage, NoTls};

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
    handover::{handover_time, now},
    stamped::{Turns, take_turns},
};

pub(crate) const TURNS: usize = 50;
/// How long a process holds the lock, and how long it pauses after the release: several times the duration of a commit.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// A notification without a row. Its commit writes nothing to the disk.
pub(crate) const ALONE: &str = "NOTIFY bare";
const WITH_ROW: &str = "BEGIN; INSERT INTO turns VALUES (1); NOTIFY bare; COMMIT";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = PostgresServer::durable(&[]);
    for (unit, fraction) in [("us, p50", 0.5), ("us, p99", 0.99)] {
        let handovers = |keeper: &str, release_point: &str| {
            let start =
                || child::start(&["postgres-handover", keeper, release_point, &server.port().to_string()]);
            handover_time([start()?, start()?], TURNS, fraction)
        };
        Comparison::new(unit)
            .rounds(7)
            .candidate("bare NOTIFY, committed -> listener", || notify_time(server.port(), ALONE, fraction))
            .candidate("the same with a row that changes", || notify_time(server.port(), WITH_ROW, fraction))
            .candidate("leasehold, from the release that leaves", || handovers("thread", "sent"))
            .candidate("the same, keeper on the caller's runtime", || handovers("on_runtime", "sent"))
            .candidate("leasehold, from before the drop", || handovers("thread", "dropped"))
            .run()?;
    }
    Ok(())
}

fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/postgres")
}

/// Acquires and releases the lock repeatedly.
pub(crate) fn child(keeper: &str, release_point: &str, port: &str) -> Result<(), Failure> {
    let env = Env::system();
    let config = Config::from_url(&format!("//postgres@127.0.0.1:{port}/postgres"))?;
    take_turns(engine(config, &env), keeper, release_point, Turns { count: TURNS, hold: PAUSE, pause: PAUSE })
}

pub(crate) fn notify_time(port: u16, words: &str, fraction: f64) -> Result<f64, Failure> {
    let listener = child::start(&["postgres-notified", &port.to_string()])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let sent = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&url(port), NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute("CREATE TABLE IF NOT EXISTS turns (at int)").await?;
        let ready = "SELECT count(*) FROM pg_stat_activity WHERE query = 'LISTEN bare'";
        while client.query_one(ready, &[]).await?.get::<_, i64>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let mut sent = Vec::new();
        for _ in 0..2 * TURNS {
            tokio::time::sleep(PAUSE).await;
            sent.push(now()?);
            client.batch_execute(words).await?;
        }
        Ok::<_, Failure>(sent)
    })?;
    let mut times = Vec::new();
    for (line, sent) in child::output(listener)?.lines().zip(sent) {
        times.push(line.parse::<u64>()?.saturating_sub(sent) as f64 / 1000.0);
    }
    Ok(quantile(&mut times, fraction))
}

/// The process of the bare client that listens. Prints when each notification arrived.
pub(crate) fn print_arrivals(port: &str) -> Result<(), Failure> {
    let port = port.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let times = runtime.block_on(async {
        let (client, mut connection) = tokio_postgres::connect(&url(port), NoTls).await?;
        let (sender, mut times) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(_) = message {
                    let _ = sender.send(now());
                }
            }
        });
        client.batch_execute("LISTEN bare").await?;
        let mut all = Vec::new();
        while all.len() < 2 * TURNS {
            all.push(times.recv().await.ok_or("the connection ended")??);
        }
        Ok::<_, Failure>(all)
    })?;
    times.iter().for_each(|time| println!("{time}"));
    Ok(())
}
