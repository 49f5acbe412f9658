//! Names on Redis for which many tasks contend.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use leasehold::Locks;
use leasehold_testkit::server::RedisServer;

use crate::{Failure, child, comparison::Comparison};

const TASKS: usize = 32;
/// How long one measurement of a contended name takes.
const MEASUREMENT_TIME: Duration = Duration::from_millis(500);
const CROWD: usize = 10_000;

/// Measures how many times a second two processes together hold and release one name.
pub(crate) fn contended() -> Result<(), Failure> {
    let server = RedisServer::start(&[]);
    let url = format!("redis://127.0.0.1:{}", server.port());
    let both = |candidate: &str| -> Result<f64, Failure> {
        let children =
            [child::start(&["contend", candidate, &url])?, child::start(&["contend", candidate, &url])?];
        let mut sum = 0.0;
        for child in children {
            sum += child::output(child)?.trim().parse::<f64>()?;
        }
        Ok(sum)
    };
    Comparison::new("sections/s")
        .rounds(7)
        .candidate("rslock", || both("rslock"))
        .candidate("leasehold", || both("leasehold"))
        .run()
}

pub(crate) fn contend(candidate: &str, url: &str) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let completed = Arc::new(AtomicU64::new(0));
    let rslock_manager =
        (candidate == "rslock").then(|| runtime.block_on(async { rslock::LockManager::new(vec![url]) }));
    let locks = Locks::connect(url)?;
    let begin = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (completed, rslock_manager, request) =
                (Arc::clone(&completed), rslock_manager.clone(), locks.mutex("contended"));
            runtime.spawn(async move {
                while begin.elapsed() < MEASUREMENT_TIME {
                    match &rslock_manager {
                        Some(rslock_manager) => {
                            // The crate `rslock` gives up after some tries. Then the loop tries again.
                            if let Ok(lock) =
                                rslock_manager.lock("contended-rslock", Duration::from_secs(30)).await
                            {
                                completed.fetch_add(1, Relaxed);
                                rslock_manager.unlock(&lock).await;
                            }
                        }
                        None => {
                            let guard = request.acquire().await?;
                            completed.fetch_add(1, Relaxed);
                            drop(guard);
                        }
                    }
                }
                Ok::<_, Failure>(())
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)??;
    }
    println!("{}", completed.load(Relaxed) as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

/// Prints how many calls of scripts the server serves for each hand-over between two processes, with few and with many
/// waiting tasks in each process.
pub(crate) fn crowds() -> Result<(), Failure> {
    for tasks in [10, 100, 1000, CROWD] {
        let server = RedisServer::start(&[]);
        let url = format!("redis://127.0.0.1:{}?tasks={tasks}", server.port());
        let children = (0..4).map(|_| child::start(&["crowd", &url])).collect::<Result<Vec<_>, _>>()?;
        let mut sections = 0;
        for child in children {
            sections += child::output(child)?.trim().parse::<u64>()?;
        }
        let stats = server.command(&["INFO", "commandstats"]);
        let calls = |name: &str| -> u64 {
            let line = stats.iter().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
            line.and_then(|line| line.split(',').next()).and_then(|calls| calls.parse().ok()).unwrap_or(0)
        };
        let (scripts, pushes) = (calls("evalsha"), calls("publish"));
        println!(
            "  4 processes with {tasks:6} tasks each: {sections} sections, {pushes} hand-overs between processes, {:.2} calls each",
            scripts as f64 / pushes as f64
        );
    }
    Ok(())
}

pub(crate) fn crowd(url: &str) -> Result<(), Failure> {
    let (url, tasks) = url.split_once("?tasks=").ok_or("no number of tasks")?;
    let tasks: usize = tasks.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let locks = Locks::connect(url)?;
    let sections = runtime.block_on(async {
        let requests: Vec<_> = (0..tasks)
            .map(|_| {
                let request = locks.mutex("crowd");
                tokio::spawn(async move {
                    for _ in 0..(CROWD / 10 / tasks).max(1) {
                        drop(request.acquire().await?);
                    }
                    Ok::<_, leasehold::Error>((CROWD / 10 / tasks).max(1))
                })
            })
            .collect();
        let mut sections = 0;
        for request in requests {
            sections += request.await??;
        }
        Ok::<_, Failure>(sections)
    })?;
    println!("{sections}");
    Ok(())
}
