//! Acquire and release of free names on a MariaDB that syncs to its disk: by leasehold, and by a bare client.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};

use leasehold_core::{Env, Keeper, Locks};
use leasehold_sql::mysql::{Config, engine};
use leasehold_testkit::server::MariadbServer;
use mysql_async::{Conn, params::Params, prelude::Queryable};
use tokio::{runtime::Runtime, sync::Mutex};

use crate::{
    Failure,
    comparison::Comparison,
    pairs::{pairs, per_second},
};

const TASKS: usize = 16;
/// The approximate length of one measurement: some hundred writes to the disk.
const MEASUREMENT_TIME: Duration = Duration::from_millis(500);
const ROUNDS: usize = 15;

const BARE: &str = "bare client, upsert and update, a connection each";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = MariadbServer::durable(&["--innodb-buffer-pool-size=128M"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks_on_thread = Locks::builder(new_engine(&server)?).build();
    let locks_on_runtime =
        Locks::builder(new_engine(&server)?).keeper(Keeper::on(runtime.handle().clone())).build();
    let bare = runtime.block_on(Bare::connect(&server))?;
    println!("  {TASKS} tasks of one thread, a name each");
    Comparison::new("pairs/s")
        .rounds(ROUNDS)
        .candidate(BARE, || bare_pairs(&runtime, TASKS, &bare))
        .candidate("leasehold", || pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_thread))
        .candidate("leasehold, keeper on the tasks' runtime", || {
            pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_runtime)
        })
        .run()?;
    println!("  1 task");
    let micros_per_pair = |pairs: f64| 1e6 / pairs;
    Comparison::new("us a pair")
        .rounds(ROUNDS)
        .candidate(BARE, || bare_pairs(&runtime, 1, &bare).map(micros_per_pair))
        .candidate("leasehold", || {
            pairs(&runtime, MEASUREMENT_TIME, 1, &locks_on_thread).map(micros_per_pair)
        })
        .candidate("leasehold, keeper on the tasks' runtime", || {
            pairs(&runtime, MEASUREMENT_TIME, 1, &locks_on_runtime).map(micros_per_pair)
        })
        .run()
}

/// The engine of a new leasehold client of this server.
pub(crate) fn new_engine(server: &MariadbServer) -> Result<Arc<leasehold_sql::SqlEngine>, Failure> {
    let rest = format!("//root@127.0.0.1:{}/locks", server.port());
    Ok(Arc::new(engine(Config::from_url(&rest)?, &Env::system())))
}

/// A bare client: it sends the statements of a program that locks with a table of its own. Each task has its own
/// connection, with prepared statements.
struct Bare {
    connections: Vec<Arc<Mutex<Conn>>>,
    token: Arc<AtomicI64>,
}

const TAKE: &str = "INSERT INTO bare (name, holder, token, expires) VALUES (?, ?, 1, UNIX_TIMESTAMP() + 30) ON DUPLICATE KEY UPDATE \
    token = IF(holder IS NULL, LAST_INSERT_ID(token + 1), token), \
    expires = IF(holder IS NULL, VALUES(expires), expires), holder = IF(holder IS NULL, VALUES(holder), holder)";
const FREE: &str = "UPDATE bare SET holder = NULL WHERE name = ? AND holder = ?";

impl Bare {
    async fn connect(server: &MariadbServer) -> Result<Self, Failure> {
        server.query(
            "CREATE TABLE bare (name varbinary(512) PRIMARY KEY, holder bigint, token bigint NOT NULL, expires bigint NOT NULL) \
             ENGINE = InnoDB",
        );
        let mut connections = Vec::new();
        for _ in 0..TASKS {
            let url = format!("{}?prefer_socket=false", server.url());
            connections.push(Arc::new(Mutex::new(Conn::from_url(url).await?)));
        }
        Ok(Self { connections, token: Arc::default() })
    }
}

fn bare_pairs(runtime: &Runtime, tasks: usize, bare: &Bare) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, tasks, |task| {
        let (connection, token, name) =
            (Arc::clone(&bare.connections[task]), Arc::clone(&bare.token), format!("bare-{task}"));
        move || {
            let (connection, token, name) = (Arc::clone(&connection), Arc::clone(&token), name.clone());
            async move {
                let mut connection = connection.lock().await;
                let id = token.fetch_add(1, Relaxed) + 1;
                let parameters = Params::Positional;
                connection.exec_drop(TAKE, parameters(vec![name.clone().into(), id.into()])).await?;
                if connection.affected_rows() == 0 {
                    return Err("a free name was not taken".into());
                }
                connection.exec_drop(FREE, parameters(vec![name.into(), id.into()])).await?;
                Ok(())
            }
        }
    })
}
