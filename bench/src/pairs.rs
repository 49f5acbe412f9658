//! Measures how often tasks complete an operation that they repeat, such as acquire and release.

use std::time::{Duration, Instant};

use leasehold_core::Locks;
use tokio::runtime::Runtime;

use crate::Failure;

/// Repeats acquire and release in `tasks` tasks for the time `slice`, each on its own name.
pub(crate) fn pairs(runtime: &Runtime, slice: Duration, tasks: usize, locks: &Locks) -> Result<f64, Failure> {
    let locks = locks.clone();
    per_second(runtime, slice, tasks, move |task| {
        let request = locks.mutex(format!("bench-{task}"));
        move || {
            let acquire = request.acquire();
            async move { Ok(acquire.await?.release().await?) }
        }
    })
}

/// How often a second all tasks together complete the operation that `make` makes for each task.
pub(crate) fn per_second<M, F>(
    runtime: &Runtime,
    slice: Duration,
    tasks: usize,
    make: impl Fn(usize) -> M,
) -> Result<f64, Failure>
where
    M: Fn() -> F + Send + 'static,
    F: Future<Output = Result<(), Failure>> + Send,
{
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let once = make(task);
            runtime.spawn(async move {
                let mut done = 0_u32;
                while begin.elapsed() < slice {
                    once().await?;
                    done += 1;
                }
                Ok::<_, Failure>(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += runtime.block_on(task)??;
    }
    Ok(f64::from(done) / begin.elapsed().as_secs_f64())
}
