//! Acquire and release of free names on a ZooKeeper that syncs to its disk: by leasehold, and by a bare client that has
//! as many sessions as leasehold has.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_core::{Env, Keeper, Locks};
use leasehold_testkit::server::ZookeeperServer;
use leasehold_zookeeper::{Config, ZookeeperEngine};
use tokio::runtime::Runtime;

use crate::{
    Failure,
    comparison::Comparison,
    pairs::{pairs, per_second},
    redis_holds::cpu_seconds,
    zookeeper_bare::Bare,
    zookeeper_socket::Socket,
};

/// The approximate length of one measurement: some hundred writes to the disk.
const MEASUREMENT_TIME: Duration = Duration::from_millis(200);
const ROUNDS: usize = 51;
/// The approximate length of one measurement with one task: some dozen writes. There are many such measurements,
/// because a single task waits whenever the machine is busy with something else.
const SINGLE_TASK_TIME: Duration = Duration::from_millis(60);
const SINGLE_TASK_ROUNDS: usize = 151;
/// The number of rounds in which the processor time of a pair (an acquire and its release) is measured. The processor
/// time varies less than the total time, so fewer rounds are enough.
const COST_ROUNDS: usize = 15;
/// The number of measurements during which leasehold can find the best number of sessions. On a busy machine a single
/// measurement is too short for this.
const WARMING: usize = 15;
/// The numbers of names in one transaction of the bare client that handles several names together.
const FEW: usize = 2;
const MANY: usize = 8;

const BARE: &str = "bare client, create, list, delete";
const QUICK: &str = "bare client, create and list at once";
const BY_FEW: &str = "bare client, at once, 2 names in a step";
const BY_MANY: &str = "bare client, at once, 8 names in a step";
const SOCKET: &str = "bare blocking socket, create, list, delete";
const ON_RUNTIME: &str = "leasehold, keeper on the tasks' runtime";

pub(crate) fn bench() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for tasks in [64, 1] {
        // Each load gets a new server, because the sessions are counted: a server that was used before would still have
        // sessions of the earlier load.
        load(&ZookeeperServer::durable(&[]), &runtime, tasks)?;
    }
    Ok(())
}

fn load(server: &ZookeeperServer, runtime: &Runtime, tasks: usize) -> Result<(), Failure> {
    let locks_on_thread = locks(server.port(), Keeper::thread())?;
    let locks_on_runtime = locks(server.port(), Keeper::on(runtime.handle().clone()))?;
    // Under load, the engine finds the best number of sessions.
    let sessions =
        sessions_after_warm_up(server, || pairs(runtime, MEASUREMENT_TIME, tasks, &locks_on_thread))?;
    let both = sessions_after_warm_up(server, || pairs(runtime, MEASUREMENT_TIME, tasks, &locks_on_runtime))?;
    if both != 2 * sessions {
        return Err(format!("{sessions} sessions with one keeper, {} with the other", both - sessions).into());
    }
    let bare = runtime.block_on(Bare::connect(server.port(), usize::try_from(sessions)?))?;
    runtime.block_on(async {
        for task in 0..tasks {
            bare.create_dir(&dir(task)).await?;
        }
        Ok::<_, Failure>(())
    })?;
    println!(
        "  {tasks} tasks of one thread, a name each; {sessions} sessions each of leasehold and the bare client"
    );
    let alone = format!("{}-alone", dir(0));
    runtime.block_on(bare.create_dir(&alone))?;
    let mut socket = (tasks == 1).then(|| Socket::connect(server.port())).transpose()?;
    let (measurement_time, rounds) =
        if tasks == 1 { (SINGLE_TASK_TIME, SINGLE_TASK_ROUNDS) } else { (MEASUREMENT_TIME, ROUNDS) };
    let in_unit = |pairs: f64| if tasks == 1 { 1e6 / pairs } else { pairs };
    let mut comparison = Comparison::new(if tasks == 1 { "us a pair" } else { "pairs/s" })
        .rounds(rounds)
        .candidate(BARE, || bare_pairs(runtime, measurement_time, tasks, &bare).map(in_unit))
        .candidate(QUICK, || quick_pairs(runtime, measurement_time, tasks, &bare).map(in_unit))
        .candidate("leasehold", || pairs(runtime, measurement_time, tasks, &locks_on_thread).map(in_unit))
        .candidate(ON_RUNTIME, || pairs(runtime, measurement_time, tasks, &locks_on_runtime).map(in_unit));
    if let Some(socket) = &mut socket {
        comparison = comparison.candidate(SOCKET, || socket.pairs(measurement_time, &alone).map(in_unit));
    } else {
        comparison = comparison
            .candidate(BY_FEW, || joint_pairs(runtime, tasks, FEW, &bare))
            .candidate(BY_MANY, || joint_pairs(runtime, tasks, MANY, &bare));
    }
    comparison.run()?;
    println!("  what it costs this process");
    Comparison::new("us of a processor")
        .rounds(COST_ROUNDS)
        .candidate(BARE, || cost(|| bare_pairs(runtime, MEASUREMENT_TIME, tasks, &bare)))
        .candidate(QUICK, || cost(|| quick_pairs(runtime, MEASUREMENT_TIME, tasks, &bare)))
        .candidate("leasehold", || cost(|| pairs(runtime, MEASUREMENT_TIME, tasks, &locks_on_thread)))
        .candidate(ON_RUNTIME, || cost(|| pairs(runtime, MEASUREMENT_TIME, tasks, &locks_on_runtime)))
        .run()?;
    // If the number of sessions has changed, the bare client had another number of sessions than the engine with which
    // it was compared.
    if figure(server, "zk_global_sessions")? != 3 * sessions + u64::from(socket.is_some()) {
        return Err("the number of sessions changed while it was measured".into());
    }
    let (before, begin) = (figure(server, "zk_packets_received")?, Instant::now());
    let completed =
        pairs(runtime, MEASUREMENT_TIME, tasks, &locks_on_thread)? * begin.elapsed().as_secs_f64();
    println!("  {:.2} requests a pair", (figure(server, "zk_packets_received")? - before) as f64 / completed);
    Ok(())
}

/// The number of sessions on the server after `work` was done [`WARMING`] times. By then leasehold has found the best
/// number of its sessions.
fn sessions_after_warm_up(
    server: &ZookeeperServer,
    work: impl Fn() -> Result<f64, Failure>,
) -> Result<u64, Failure> {
    for _ in 0..WARMING {
        work()?;
    }
    figure(server, "zk_global_sessions")
}

/// A new leasehold client of the server at this port of this machine.
pub(crate) fn locks(port: u16, keeper: Keeper) -> Result<Locks, Failure> {
    let config = Config::from_url("zookeeper", &format!("//127.0.0.1:{port}"))?;
    let engine = ZookeeperEngine::new(config, &Env::system());
    Ok(Locks::builder(Arc::new(engine)).keeper(keeper).build())
}

/// One of the server's monitoring figures.
pub(crate) fn figure(server: &ZookeeperServer, name: &str) -> Result<u64, Failure> {
    let report = server.four_letter_command("mntr");
    let line = report.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('\t'));
    Ok(line.ok_or_else(|| format!("the server reports no {name}"))?.trim().parse::<f64>()? as u64)
}

/// The processor time that this process uses for one pair (an acquire and its release), in microseconds.
fn cost(measure: impl Fn() -> Result<f64, Failure>) -> Result<f64, Failure> {
    let (before, begin) = (cpu_seconds()?, Instant::now());
    let completed = measure()? * begin.elapsed().as_secs_f64();
    Ok((cpu_seconds()? - before) / completed * 1e6)
}

fn dir(task: usize) -> String {
    format!("/bare/bench-{task}")
}

fn bare_pairs(
    runtime: &Runtime,
    measurement_time: Duration,
    tasks: usize,
    bare: &Bare,
) -> Result<f64, Failure> {
    per_second(runtime, measurement_time, tasks, |task| {
        let (bare, dir) = (bare.clone(), dir(task));
        move || {
            let (bare, dir) = (bare.clone(), dir.clone());
            async move { bare.pair(task, &dir).await }
        }
    })
}

fn quick_pairs(
    runtime: &Runtime,
    measurement_time: Duration,
    tasks: usize,
    bare: &Bare,
) -> Result<f64, Failure> {
    per_second(runtime, measurement_time, tasks, |task| {
        let (bare, dir) = (bare.clone(), dir(task));
        move || {
            let (bare, dir) = (bare.clone(), dir.clone());
            async move { bare.quick_pair(task, &dir).await }
        }
    })
}

/// Measures the bare client that handles several names together. As many names are in flight as in the other
/// measurements, but in fewer tasks, each with several names.
fn joint_pairs(runtime: &Runtime, tasks: usize, names: usize, bare: &Bare) -> Result<f64, Failure> {
    let rate = per_second(runtime, MEASUREMENT_TIME, tasks / names, |task| {
        let dirs: Arc<[String]> = (task * names..(task + 1) * names).map(dir).collect();
        let bare = bare.clone();
        move || {
            let (bare, dirs) = (bare.clone(), Arc::clone(&dirs));
            async move { bare.joint_pairs(task, &dirs).await }
        }
    })?;
    Ok(rate * names as f64)
}
