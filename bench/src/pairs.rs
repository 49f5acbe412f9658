//! Measures how many times a second tasks complete an operation that they repeat, such as acquire and release.

use std::time::{Duration, Instant};

use leasehold_core::Request;
use tokio::runtime::Runtime;

use crate::Failure;

/// Locks of the crate `leasehold`, or of its core.
pub(crate) trait Mutexes {
    fn request(&self, name: String) -> Request;
}

impl Mutexes for leasehold::Locks {
    fn request(&self, name: String) -> Request {
        self.mutex(name)
    }
}

impl Mutexes for leasehold_core::Locks {
    fn request(&self, name: String) -> Request {
        self.mutex(name)
    }
}

/// Repeats acquire and release in `tasks` tasks for `measurement_time`; each task uses its own name. Returns how many
/// pairs (an acquire and its release) all tasks together complete in a second.
pub(crate) fn pairs(
    runtime: &Runtime,
    measurement_time: Duration,
    tasks: usize,
    locks: &impl Mutexes,
) -> Result<f64, Failure> {
    per_second(runtime, measurement_time, tasks, move |task| {
        let request = locks.request(format!("bench-{task}"));
        move || {
            let acquire = request.acquire();
            async move { Ok(acquire.await?.release().await?) }
        }
    })
}

/// How many times a second all tasks together complete their operation. `make_operation` returns the operation of each
/// task.
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
