//! Common lock recipes on ZooKeeper (Curator's mutex and kazoo's lock), compared with leasehold on the same server. In
//! each candidate, every client has its own session, and all clients of one kind are in one process.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use leasehold_core::{Keeper, Locks};
use leasehold_testkit::server::{ZookeeperServer, java_program};
use tokio::runtime::Runtime;

use crate::{
    Failure,
    comparison::Comparison,
    foreign::{ForeignProgram, recipe_path},
    pairs::per_second,
    zookeeper_free::locks,
};

/// How long one measurement takes: long enough that the first of sixteen Python threads notices that this time is over.
const MEASUREMENT_TIME: Duration = Duration::from_millis(1000);
const ROUNDS: usize = 9;
/// How many times each candidate runs before it is measured: Java compiles code that runs often.
const WARMING: usize = 4;
/// The options with which Java runs on a production server. They replace the testkit's options for a quick start.
const JAVA_OPTIONS: &str = "-XX:TieredStopAtLevel=4 -Xmx512m";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = ZookeeperServer::durable(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let compiled = tempfile::tempdir()?;
    let (mut curator, mut kazoo) = (curator(&server, compiled.path())?, kazoo(&server)?);
    let new_client = || locks(server.port(), Keeper::thread());
    for (kind, clients) in [("free", 1), ("free", 16), ("contended", 8)] {
        let separate_clients: Arc<[Locks]> = (0..clients).map(|_| new_client()).collect::<Result<_, _>>()?;
        let shared_client: Arc<[Locks]> = [new_client()?].into();
        for _ in 0..WARMING {
            foreign_pairs(&mut curator, kind, clients)?;
        }
        foreign_pairs(&mut kazoo, kind, clients)?;
        leasehold_pairs(&runtime, kind, clients, &separate_clients)?;
        leasehold_pairs(&runtime, kind, clients, &shared_client)?;
        println!("  {clients} clients, {kind}");
        let mut comparison = Comparison::new("pairs/s")
            .rounds(ROUNDS)
            .candidate("Curator 5.4, InterProcessMutex", || foreign_pairs(&mut curator, kind, clients))
            .candidate("kazoo 2.8, Lock", || foreign_pairs(&mut kazoo, kind, clients))
            .candidate("leasehold", || leasehold_pairs(&runtime, kind, clients, &separate_clients));
        if clients > 1 {
            comparison = comparison.candidate("leasehold, as many tasks of one client", || {
                leasehold_pairs(&runtime, kind, clients, &shared_client)
            });
        }
        comparison.run()?;
    }
    Ok(())
}

/// Repeats acquire and release in `tasks` tasks, which are distributed over the clients. Returns how many pairs (an
/// acquire and its release) all tasks together complete in a second.
fn leasehold_pairs(
    runtime: &Runtime,
    kind: &'static str,
    tasks: usize,
    clients: &Arc<[Locks]>,
) -> Result<f64, Failure> {
    per_second(runtime, MEASUREMENT_TIME, tasks, |task| {
        let name = if kind == "free" { format!("bench-{task}") } else { "contended".to_owned() };
        let request = clients[task % clients.len()].mutex(name);
        move || {
            let acquire = request.acquire();
            async move { Ok(acquire.await?.release().await?) }
        }
    })
}

fn foreign_pairs(program: &mut ForeignProgram, kind: &str, clients: usize) -> Result<f64, Failure> {
    program.figure(&format!("{kind} {clients} {}", MEASUREMENT_TIME.as_millis()))
}

pub(crate) fn curator(server: &ZookeeperServer, compiled: &Path) -> Result<ForeignProgram, Failure> {
    let libraries = ["curator-recipes", "curator-framework", "curator-client", "zookeeper", "netty-resolver"];
    let mut command = java_program(&recipe_path("CuratorPairs.java"), &libraries, compiled);
    command.env("_JAVA_OPTIONS", JAVA_OPTIONS);
    command.arg(format!("127.0.0.1:{}", server.port()));
    ForeignProgram::start(command)
}

fn kazoo(server: &ZookeeperServer) -> Result<ForeignProgram, Failure> {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(recipe_path("kazoo_pairs.py"));
    command.arg(format!("127.0.0.1:{}", server.port()));
    ForeignProgram::start(command)
}
