//! Several tasks in each of several processes contend for one name on etcd or ZooKeeper. leasehold is compared with
//! programs that use the common client of the server: etcd's Go client, and Curator for ZooKeeper.

use std::{
    io::Read,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use leasehold::{Connect, Keeper, Locks};
use leasehold_testkit::server::{EtcdServer, ZookeeperServer, etcd_metric, go_program};

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
    foreign::{ForeignProgram, recipe_path},
    pairs::{pairs, per_second},
    zookeeper_recipes::curator,
};

/// How long one measurement takes.
const MEASUREMENT_TIME: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;
const GO: &str = "Go concurrency.Mutex";
/// The name for which all tasks contend. The foreign programs use the path `/locks/line` for it.
pub(crate) const NAME: &str = "line";
/// The number of tasks of the busy process.
const BUSY: usize = 64;
/// The interval at which the server is asked for the number of its watches.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

/// Measures how many times a second all tasks together hold and release the name, and the longest wait of a task.
pub(crate) fn etcd() -> Result<(), Failure> {
    let server = EtcdServer::durable(&[]);
    let url = format!("etcd://127.0.0.1:{}", server.port());
    let build_dir = tempfile::tempdir()?;
    let program = go_program(&recipe_path("etcd_mutex_pairs.go"), build_dir.path());
    let go = || {
        let mut command = Command::new(&program);
        command.arg(server.port().to_string());
        ForeignProgram::start(command)
    };
    let mut programs = [go()?, go()?];
    compare(&url, GO, &mut programs, "line ")?;
    free(&url, &mut programs[0])?;
    for (processes, tasks) in [(2, 1), (2, 8)] {
        watches(server.port(), &url, processes, tasks)?;
    }
    Ok(())
}

/// Measures the same as [`etcd`], on ZooKeeper.
pub(crate) fn zookeeper() -> Result<(), Failure> {
    let server = ZookeeperServer::durable(&[]);
    let url = format!("zookeeper://127.0.0.1:{}", server.port());
    let compiled = tempfile::tempdir()?;
    let mut programs = [curator(&server, compiled.path())?, curator(&server, compiled.path())?];
    compare(&url, "Curator InterProcessMutex", &mut programs, "line ")
}

/// Compares leasehold with two foreign programs. An order to such a program is `order`, followed by `TASKS MILLIS`.
fn compare(
    url: &str,
    theirs: &'static str,
    programs: &mut [ForeignProgram; 2],
    order: &str,
) -> Result<(), Failure> {
    let ours = |processes, tasks| -> Result<f64, Failure> { Ok(together(url, processes, tasks)?.0) };
    // A first run without a measurement, because Java compiles code that runs often.
    both(programs, order, 8)?;
    for (what, tasks) in [("2 processes, 1 task each", 1), ("2 processes, 8 tasks each", 8)] {
        println!("  {what}");
        Comparison::new("sections/s")
            .rounds(ROUNDS)
            .candidate(theirs, || both(programs, order, tasks))
            .candidate("leasehold", || ours(2, tasks))
            .run()?;
    }
    println!("  leasehold alone");
    Comparison::new("sections/s")
        .rounds(ROUNDS)
        .candidate("1 process, 8 tasks", || ours(1, 8))
        .candidate("2 processes, 2 tasks each", || ours(2, 2))
        .candidate("8 processes, 1 task each", || ours(8, 1))
        .candidate("8 processes, 4 tasks each", || ours(8, 4))
        .run()?;
    let busy = format!("beside a process of {BUSY} busy tasks");
    println!("  the longest wait in {MEASUREMENT_TIME:?}, {busy}");
    Comparison::new("ms")
        .rounds(ROUNDS)
        .candidate("one task of leasehold", || {
            beside_busy(&["busy-name", url], || Ok(together(url, 1, 1)?.1))
        })
        .candidate(theirs, || {
            beside_busy(&["busy-name", url], || Ok(figures(&programs[0].answer(&request(order, 1))?)?.1))
        })
        .run()
}

/// Compares how often tasks of leasehold and of a foreign program acquire and release. Each task has its own name.
fn free(url: &str, program: &mut ForeignProgram) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks_on_thread = Locks::connect(url)?;
    let locks_on_runtime = Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(url)?;
    for tasks in [1, 16, 64] {
        println!("  free names, {tasks} tasks");
        Comparison::new("pairs/s")
            .rounds(2 * ROUNDS)
            .candidate(GO, || Ok(figures(&program.answer(&request("free ", tasks))?)?.0))
            .candidate("leasehold", || pairs(&runtime, MEASUREMENT_TIME, tasks, &locks_on_thread))
            .candidate("leasehold, keeper on the tasks' runtime", || {
                pairs(&runtime, MEASUREMENT_TIME, tasks, &locks_on_runtime)
            })
            .run()?;
    }
    Ok(())
}

/// Starts processes with this number of tasks each. Returns the number of sections that they complete in a second, and
/// the longest wait of a task in milliseconds. A section is one acquire and its release.
pub(crate) fn together(url: &str, processes: usize, tasks: usize) -> Result<(f64, f64), Failure> {
    let children = (0..processes).map(|_| child::start(&["one-name", &tasks.to_string(), url]));
    let children = children.collect::<Result<Vec<_>, _>>()?;
    let (mut sections, mut longest) = (0.0, 0.0_f64);
    for child in children {
        let (of_child, wait) = figures(&child::output(child)?)?;
        sections += of_child;
        longest = longest.max(wait);
    }
    Ok((sections, longest))
}

/// The number of sections that both foreign programs together complete in a second. They work at the same time.
fn both(programs: &mut [ForeignProgram; 2], order: &str, tasks: usize) -> Result<f64, Failure> {
    let order = request(order, tasks);
    programs.iter_mut().try_for_each(|program| program.order(&order))?;
    let mut sum = 0.0;
    for program in programs {
        sum += figures(&program.read_answer()?)?.0;
    }
    Ok(sum)
}

fn request(order: &str, tasks: usize) -> String {
    format!("{order}{tasks} {}", MEASUREMENT_TIME.as_millis())
}

/// Parses an answer: the number of sections in a second, and the longest wait in milliseconds.
fn figures(answer: &str) -> Result<(f64, f64), Failure> {
    let unreadable = || format!("a program answered {answer:?} instead of two figures");
    let (rate, wait) = answer.trim().split_once(' ').ok_or_else(unreadable)?;
    Ok((rate.parse()?, wait.parse()?))
}

/// Calls `measure` beside a busy child process with these arguments.
pub(crate) fn beside_busy(
    arguments: &[&str],
    measure: impl FnOnce() -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    let mut busy = child::start(arguments)?;
    // The first line of the busy process says that its tasks have begun.
    let mut begun = [0];
    busy.stdout.as_mut().ok_or("no output")?.read_exact(&mut begun)?;
    let figure = measure();
    drop(busy.stdin.take());
    busy.wait()?;
    figure
}

/// One of the contending processes.
pub(crate) fn child(tasks: &str, url: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = Locks::connect(url)?;
    let longest = Arc::new(AtomicU64::new(0));
    let sections = per_second(&runtime, MEASUREMENT_TIME, tasks.parse()?, |_| {
        let (request, longest) = (locks.mutex(NAME), Arc::clone(&longest));
        move || {
            let (asked, acquire, longest) = (Instant::now(), request.acquire(), Arc::clone(&longest));
            async move {
                let guard = acquire.await?;
                longest.fetch_max(asked.elapsed().as_nanos() as u64, Ordering::Relaxed);
                Ok(guard.release().await?)
            }
        }
    })?;
    println!("{sections} {}", longest.load(Ordering::Relaxed) as f64 / 1e6);
    Ok(())
}

/// The busy process: many tasks always want the name that `name` gives them. They work until the standard input of the
/// process ends.
pub(crate) fn busy_child(url: &str, name: impl Fn(usize) -> String) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = Locks::connect(url)?;
    let ended = Arc::new(AtomicBool::new(false));
    let watcher = Arc::clone(&ended);
    thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        watcher.store(true, Ordering::Relaxed);
    });
    runtime.block_on(async { locks.mutex(name(0)).acquire().await?.release().await })?;
    println!();
    while !ended.load(Ordering::Relaxed) {
        per_second(&runtime, MEASUREMENT_TIME / 10, BUSY, |task| {
            let request = locks.mutex(name(task));
            move || {
                let acquire = request.acquire();
                async move { Ok(acquire.await?.release().await?) }
            }
        })?;
    }
    Ok(())
}

/// Prints what the watches of contending processes cost etcd: the watch requests, and how many watches lag behind.
fn watches(port: u16, url: &str, processes: usize, tasks: usize) -> Result<(), Failure> {
    let requests = || metric(port, "grpc_server_msg_received_total{grpc_method=\"Watch\"");
    let before = requests()?;
    let (mut behind, done) = (Vec::new(), AtomicBool::new(false));
    let sections = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut samples = Vec::new();
            while !done.load(Ordering::Relaxed) {
                samples.push(metric(port, "etcd_debugging_mvcc_slow_watcher_total ").unwrap_or(f64::NAN));
                thread::sleep(SAMPLE_INTERVAL);
            }
            samples
        });
        let sections = together(url, processes, tasks);
        done.store(true, Ordering::Relaxed);
        behind = sampler.join().unwrap_or_default();
        sections
    })?;
    let made = (requests()? - before) / (sections.0 * MEASUREMENT_TIME.as_secs_f64());
    let above = behind.iter().filter(|&&count| count > 0.0).count();
    println!("  {processes} processes, {tasks} tasks each: {made:.4} watch requests a section");
    println!(
        "  watches behind the newest revision: {above} of {} samples above 0, median {:.0}",
        behind.len(),
        quantile(&mut behind, 0.5)
    );
    Ok(())
}

/// The figure in the line of etcd's metrics that begins with `name`.
pub(crate) fn metric(port: u16, name: &str) -> Result<f64, Failure> {
    Ok(etcd_metric(port, name)?.ok_or("the server has no such metric")?)
}
