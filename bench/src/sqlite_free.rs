//! Acquire and release of free names in an SQLite file: by leasehold in one process and in four processes, compared
//! with a single bare writer that makes as many commits for each acquire and release.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_core::{Env, Locks};
use leasehold_sql::sqlite::engine;
use tokio::runtime::Runtime;

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
    sqlite_bare::Bare,
};

/// The approximate length of one measurement. It is longer than the phases of a tenth of a second in which the speed of
/// a disk varies.
const MEASUREMENT_TIME: Duration = Duration::from_millis(400);
const ROUNDS: usize = 11;
const PROCESSES: usize = 4;

/// How long each pair (an acquire and its release) of each task took, in nanoseconds.
type Times = Result<Vec<u64>, Failure>;
/// The unit of a figure, and how the figure is computed from the times.
type Figure = (&'static str, fn(Vec<u64>) -> f64);

pub(crate) fn bench() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("locks.db");
    let bare = Bare::open(&path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = locks(&path)?;
    let figures: [Figure; 3] =
        [("pairs/s", rate), ("us, p50", |times| at(times, 0.5)), ("us, p99", |times| at(times, 0.99))];
    for (unit, figure) in figures {
        let measured = |times: Times| times.map(figure);
        Comparison::new(unit)
            .rounds(ROUNDS)
            .candidate("one bare writer", || measured(bare.pairs(MEASUREMENT_TIME)))
            .candidate("leasehold, 1 task", || measured(pairs(&runtime, &locks, 1)))
            .candidate("leasehold, 16 tasks", || measured(pairs(&runtime, &locks, 16)))
            .candidate("leasehold, 4 processes of 1 task", || measured(processes(&path, 1)))
            .candidate("leasehold, 4 processes of 4 tasks", || measured(processes(&path, 4)))
            .run()?;
    }
    Ok(())
}

fn rate(times: Vec<u64>) -> f64 {
    times.len() as f64 / MEASUREMENT_TIME.as_secs_f64()
}

fn at(times: Vec<u64>, at: f64) -> f64 {
    let mut times: Vec<f64> = times.into_iter().map(|time| time as f64 / 1000.0).collect();
    quantile(&mut times, at)
}

fn locks(path: &Path) -> Result<Locks, Failure> {
    Ok(Locks::new(Arc::new(engine(path, &Env::system())?)))
}

fn pairs(runtime: &Runtime, locks: &Locks, tasks: usize) -> Times {
    let begin = Instant::now();
    let once = |task: usize| {
        let request = locks.mutex(format!("bench-{}-{task}", std::process::id()));
        async move {
            let mut times = Vec::new();
            while begin.elapsed() < MEASUREMENT_TIME {
                let from = Instant::now();
                request.acquire().await?.release().await?;
                times.push(from.elapsed().as_nanos() as u64);
            }
            Ok::<_, Failure>(times)
        }
    };
    let tasks: Vec<_> = (0..tasks).map(|task| runtime.spawn(once(task))).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(runtime.block_on(task)??);
    }
    Ok(all)
}

/// Measures what [`pairs`] measures, in several processes that work at the same time.
fn processes(path: &Path, tasks: usize) -> Times {
    let what = ["sqlite-free", &path.display().to_string(), &tasks.to_string()];
    let mut children = (0..PROCESSES).map(|_| child::start(&what)).collect::<Result<Vec<_>, _>>()?;
    let mut outputs = Vec::new();
    for child in &mut children {
        let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
        output.read_line(&mut String::new())?;
        outputs.push(output);
    }
    // All children are ready and wait for a line. This line lets them begin at the same time.
    for child in &mut children {
        child.stdin.take().ok_or("no input")?.write_all(b"\n")?;
    }
    let mut all = Vec::new();
    for (child, output) in children.iter_mut().zip(outputs) {
        for line in output.lines() {
            all.push(line?.parse()?);
        }
        child.wait()?;
    }
    Ok(all)
}

pub(crate) fn child(path: &str, tasks: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = locks(Path::new(path))?;
    runtime.block_on(async { locks.mutex("warm").acquire().await?.release().await })?;
    println!("ready");
    std::io::stdin().read_exact(&mut [0])?;
    let times = pairs(&runtime, &locks, tasks.parse()?)?;
    let mut out = std::io::stdout().lock();
    times.iter().try_for_each(|time| writeln!(out, "{time}"))?;
    Ok(())
}
