//! Measures how often tasks complete an operation that they repeat, such as acquire and release.

use std::time::{Duration, Instant};

use leasehold_core::Locks;
use tokio::runtime::Runtime;

use crate::Failure;

/// Repeats acquire and release in `tasks` tasks for `measurement_time`, each on its own name. Returns how many of these
/// pairs a second all tasks together complete.
pub(crate) fn pairs(
    runtime: &Runtime,
    measurement_time: Duration,
    tasks: usize,
    locks: &Locks,
) -> Result<f64, Failure> {
    let locks = locks.clone();
    per_second(runtime, measurement_time, tasks, move |task| {
        let request = locks.mutex(format!("bench-{task}"));
        move || {
            let acquire = request.acquire();
            async move { Ok(acquire.await?.release().await?) }
        }
    })
}

/// How often a second all tasks together complete the operation that `make_operation` returns for each task.
pub(crate) fn per_second<M, F>(
    runtime: &Runtime,
    measurement_time: Duration,
    tasks: usize,
    make_operation: impl Fn(usize) -> M,
) -> Result<f64, Failure>
where
    M: Fn() -> F + Send + 'static,
    F: Future<Output = Result<(), Failure>> + Send,
{
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let operation = make_operation(task);
            runtime.spawn(async move {
                let mut completed = 0_u32;
                while begin.elapsed() < measurement_time {
                    operation().await?;
                    completed += 1;
                }
                Ok::<_, Failure>(completed)
            })
        })
        .collect();
    let mut completed = 0;
    for task in tasks {
        completed += runtime.block_on(task)??;
    }
    Ok(f64::from(completed) / begin.elapsed().as_secs_f64())
}
