//! 64 tasks of one process contend for one name. Measures how many times a second the name is handed over, alone and
//! with another process in the queue.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use leasehold::Locks;

use crate::{
    Failure, child,
    comparison::{Comparison, quantile},
};

const TASKS: usize = 64;
const TIME: Duration = Duration::from_millis(20);
/// How long the other process runs. Meanwhile this process repeats its measurement.
const LONGER: Duration = Duration::from_millis(300);
const NAME: &str = "contended";

pub(crate) fn bench() -> Result<(), Failure> {
    let dir = tempfile::tempdir()?;
    let url = format!("file://{}", dir.path().display());
    let file = Locks::connect(&url)?;
    let memory = Locks::connect("memory:bench-contended")?;
    let mut turns = Vec::new();
    Comparison::new("hand-overs/s")
        .candidate("tokio::sync::Mutex", || {
            let mutex = Arc::new(tokio::sync::Mutex::new(()));
            per_second(move || {
                let lock = Arc::clone(&mutex).lock_owned();
                async move {
                    drop(lock.await);
                    Ok(())
                }
            })
        })
        .candidate("leasehold, memory", || locked(&memory))
        .candidate("leasehold, file", || locked(&file))
        .run()?;
    let mut figures = Vec::new();
    for _ in 0..5 {
        let neighbour = child::start(&["neighbour", &url])?;
        let begin = Instant::now();
        while begin.elapsed() < LONGER {
            figures.push(locked(&file)?);
        }
        for line in child::output(neighbour)?.lines() {
            turns.push(line.parse()?);
        }
    }
    let figure = quantile(&mut figures, 0.5);
    println!("  leasehold, file, another process queued: {figure:.0} hand-overs/s (median)");
    let count = turns.len();
    let (middle, late) = (quantile(&mut turns, 0.5), quantile(&mut turns, 0.99));
    println!("  the other process got {count} turns, after {middle:.2} ms (p50), {late:.2} ms (p99)");
    Ok(())
}

fn locked(locks: &Locks) -> Result<f64, Failure> {
    let request = locks.mutex(NAME);
    per_second(move || {
        let acquire = request.acquire();
        async move {
            drop(acquire.await?);
            Ok(())
        }
    })
}

/// How many times a second all tasks together complete `operation`.
fn per_second<F>(operation: impl Fn() -> F + Send + Sync + 'static) -> Result<f64, Failure>
where
    F: Future<Output = Result<(), Failure>> + Send,
{
    let (operation, completed) = (Arc::new(operation), Arc::new(AtomicU32::new(0)));
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let begin = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (operation, completed) = (Arc::clone(&operation), Arc::clone(&completed));
            runtime.spawn(async move {
                // The clock is read only after every 64 hand-overs, because a reading costs as much as a hand-over.
                while completed.load(Relaxed) % 64 != 0 || begin.elapsed() < TIME {
                    operation().await?;
                    completed.fetch_add(1, Relaxed);
                }
                Ok::<_, Failure>(())
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    Ok(f64::from(completed.load(Relaxed)) / begin.elapsed().as_secs_f64())
}

/// The other process. It acquires the name at most a thousand times a second, and prints how many milliseconds each
/// acquire took.
pub(crate) fn neighbour(url: &str) -> Result<(), Failure> {
    let locks = Locks::connect(url)?;
    let request = locks.mutex(NAME);
    let mut out = std::io::stdout().lock();
    let begin = Instant::now();
    while begin.elapsed() < LONGER {
        let asked = Instant::now();
        drop(pollster::block_on(request.acquire())?);
        writeln!(out, "{}", asked.elapsed().as_secs_f64() * 1000.0)?;
        sleep(Duration::from_millis(1));
    }
    Ok(())
}
