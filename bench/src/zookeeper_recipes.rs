//! Common lock recipes on ZooKeeper, beside leasehold on the same server: Curator's mutex and kazoo's lock. In each,
//! every client has its own session, and all clients of one kind are in one process.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use leasehold_core::{Keeper, Locks};
use leasehold_testkit::server::{ZookeeperServer, java_program};
use tokio::runtime::Runtime;

use crate::{
    Failure,
    contest::Contest,
    foreign::{Foreign, recipe},
    pairs::per_second,
    zookeeper_free::locks,
};

/// Long enough for the first of sixteen Python threads to notice that the time is over.
const SLICE: Duration = Duration::from_millis(1000);
const ROUNDS: usize = 9;
/// How often each way runs before it is measured, because Java compiles code that runs often.
const WARMING: usize = 4;
/// The options of a production server, in place of the testkit's options for a quick start.
const FULL_JAVA: &str = "-XX:TieredStopAtLevel=4 -Xmx512m";

pub(crate) fn bench() -> Result<(), Failure> {
    let server = ZookeeperServer::durable(&[]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let compiled = tempfile::tempdir()?;
    let (mut curator, mut kazoo) = (curator(&server, compiled.path())?, kazoo(&server)?);
    let separate = || locks(server.port(), Keeper::thread());
    for (what, clients) in [("free", 1), ("free", 16), ("contended", 8)] {
        let own: Arc<[Locks]> = (0..clients).map(|_| separate()).collect::<Result<_, _>>()?;
        let one: Arc<[Locks]> = [separate()?].into();
        for _ in 0..WARMING {
            theirs(&mut curator, what, clients)?;
        }
        theirs(&mut kazoo, what, clients)?;
        ours(&runtime, what, clients, &own)?;
        ours(&runtime, what, clients, &one)?;
        println!("  {clients} clients, {what}");
        let mut contest = Contest::new("pairs/s")
            .rounds(ROUNDS)
            .way("Curator 5.4, InterProcessMutex", || theirs(&mut curator, what, clients))
            .way("kazoo 2.8, Lock", || theirs(&mut kazoo, what, clients))
            .way("leasehold", || ours(&runtime, what, clients, &own));
        if clients > 1 {
            contest =
                contest.way("leasehold, as many tasks of one client", || ours(&runtime, what, clients, &one));
        }
        contest.run()?;
    }
    Ok(())
}

/// Repeats acquire and release in `tasks` tasks, which share the clients.
fn ours(runtime: &Runtime, what: &'static str, tasks: usize, clients: &Arc<[Locks]>) -> Result<f64, Failure> {
    per_second(runtime, SLICE, tasks, |task| {
        let name = if what == "free" { format!("bench-{task}") } else { "contended".to_owned() };
        let request = clients[task % clients.len()].mutex(name);
        move || {
            let acquire = request.acquire();
            async move { Ok(acquire.await?.release().await?) }
        }
    })
}

fn theirs(program: &mut Foreign, what: &str, clients: usize) -> Result<f64, Failure> {
    program.figure(&format!("{what} {clients} {}", SLICE.as_millis()))
}

pub(crate) fn curator(server: &ZookeeperServer, compiled: &Path) -> Result<Foreign, Failure> {
    let libraries = ["curator-recipes", "curator-framework", "curator-client", "zookeeper", "netty-resolver"];
    let mut command = java_program(&recipe("CuratorPairs.java"), &libraries, compiled);
    command.env("_JAVA_OPTIONS", FULL_JAVA);
    command.arg(format!("127.0.0.1:{}", server.port()));
    Foreign::start(command)
}

fn kazoo(server: &ZookeeperServer) -> Result<Foreign, Failure> {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(recipe("kazoo_pairs.py"));
    command.arg(format!("127.0.0.1:{}", server.port()));
    Foreign::start(command)
}
