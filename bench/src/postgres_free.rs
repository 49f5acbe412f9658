//! Acquire and release of free names on PostgreSQL. leasehold is compared with a bare client that commits one upsert
//! and one update, on a separate connection for each task.

use std::{sync::Arc, time::Duration};

use leasehold::{Connect, Keeper, Locks};
use leasehold_testkit::server::PostgresServer;
use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls, Statement};

use crate::{
    Failure,
    comparison::Comparison,
    pairs::{pairs, per_second},
};

/// The approximate length of one measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(400);
const ROUNDS: usize = 15;

pub(crate) fn bench() -> Result<(), Failure> {
    let server = PostgresServer::durable(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = Locks::connect(&server.url())?;
    let locks_on_runtime =
        Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&server.url())?;
    for tasks in [1, 16, 64] {
        let bare = runtime.block_on(Bare::new(&server.url(), tasks))?;
        println!("  {tasks} tasks, a name each");
        Comparison::new("pairs/s")
            .rounds(ROUNDS)
            .candidate("bare client, upsert and update", || bare.pairs(&runtime))
            .candidate("leasehold", || pairs(&runtime, MEASUREMENT_TIME, tasks, &locks))
            .candidate("leasehold, keeper on the tasks' runtime", || {
                pairs(&runtime, MEASUREMENT_TIME, tasks, &locks_on_runtime)
            })
            .run()?;
    }
    Ok(())
}

/// A bare client, with a connection for each task. It does the least work that a lock in one row costs: an upsert, and
/// an update.
struct Bare(Vec<Arc<(Client, Statement, Statement)>>);

const TABLE: &str = "CREATE TABLE IF NOT EXISTS bare
    (name text PRIMARY KEY, holder bytea, token bigint NOT NULL, expires timestamptz) WITH (fillfactor = 50)";
const CLAIM: &str = "INSERT INTO bare VALUES ($1, $2, 1, clock_timestamp() + interval '30 s')
    ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, token = bare.token + 1, expires = excluded.expires
    WHERE bare.holder IS NULL OR bare.expires < clock_timestamp() RETURNING token";
const RELEASE: &str = "UPDATE bare SET holder = NULL WHERE name = $1 AND holder = $2";

impl Bare {
    async fn new(url: &str, tasks: usize) -> Result<Self, Failure> {
        let mut clients = Vec::new();
        for _ in 0..tasks {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(TABLE).await?;
            let (claim, release) = (client.prepare(CLAIM).await?, client.prepare(RELEASE).await?);
            clients.push(Arc::new((client, claim, release)));
        }
        Ok(Self(clients))
    }

    fn pairs(&self, runtime: &Runtime) -> Result<f64, Failure> {
        per_second(runtime, MEASUREMENT_TIME, self.0.len(), |task| {
            let client = Arc::clone(&self.0[task]);
            move || pair(Arc::clone(&client), format!("bare-{task}"))
        })
    }
}

async fn pair(client: Arc<(Client, Statement, Statement)>, name: String) -> Result<(), Failure> {
    let (client, claim, release) = &*client;
    let id: &[u8] = b"0123456789abcdef";
    client.query_one(claim, &[&name, &id]).await?;
    match client.execute(release, &[&name, &id]).await? {
        1 => Ok(()),
        _ => Err("not ours".into()),
    }
}
