//! Acquire and release of free names on Redis Clusters of one, three and six masters, compared with one server on the
//! same processors.

use std::time::Duration;

use leasehold::{Connect, Keeper, Locks};
use tokio::runtime::Runtime;

use crate::{Failure, comparison::Comparison, pairs::pairs, redis_holds::cpu_seconds, redis_site::Site};

const TASKS: usize = 256;
/// The approximate length of one measurement.
const MEASUREMENT_TIME: Duration = Duration::from_millis(150);
const ROUNDS: usize = 31;
/// The length of a measurement in which requests are counted. It is so long that requests that are missed at the begin
/// and the end of the measurement do not matter.
const COUNTED_TIME: Duration = Duration::from_secs(2);

/// The servers of one candidate, and two clients of these servers. The keeper of the first client is on a thread of its
/// own; the keeper of the second is on the runtime of the tasks.
struct Candidate {
    about: &'static str,
    on_runtime_about: &'static str,
    site: Site,
    locks_on_thread: Locks,
    locks_on_runtime: Locks,
}

pub(crate) fn bench() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let candidate = |about, on_runtime_about, site: Site| -> Result<Candidate, Failure> {
        let locks_on_thread = Locks::connect(&site.url())?;
        let locks_on_runtime =
            Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&site.url())?;
        Ok(Candidate { about, on_runtime_about, site, locks_on_thread, locks_on_runtime })
    };
    let candidates = [
        candidate("one server", "one server, keeper on the tasks' runtime", Site::one())?,
        candidate("3 masters", "3 masters, keeper on the tasks' runtime", Site::cluster(3))?,
        candidate("1 master", "1 master, keeper on the tasks' runtime", Site::cluster(1))?,
        candidate("6 masters", "6 masters, keeper on the tasks' runtime", Site::cluster(6))?,
    ];
    // These runs create the connections and counters, so that no measurement includes their creation.
    for candidate in &candidates {
        pairs(&runtime, MEASUREMENT_TIME, TASKS, &candidate.locks_on_thread)?;
        pairs(&runtime, MEASUREMENT_TIME, TASKS, &candidate.locks_on_runtime)?;
    }
    println!("  {TASKS} tasks of one thread, a name each");
    let comparison = |of: fn(&Candidate) -> (&'static str, &Locks)| {
        let mut comparison = Comparison::new("pairs/s").rounds(ROUNDS);
        for candidate in &candidates {
            let (about, locks) = of(candidate);
            let runtime = &runtime;
            comparison = comparison.candidate(about, move || pairs(runtime, MEASUREMENT_TIME, TASKS, locks));
        }
        comparison.run()
    };
    comparison(|candidate| (candidate.about, &candidate.locks_on_thread))?;
    comparison(|candidate| (candidate.on_runtime_about, &candidate.locks_on_runtime))?;
    for tasks in [TASKS, 1] {
        println!("  a pair of {tasks} tasks costs");
        for candidate in &candidates {
            cost(&runtime, tasks, candidate)?;
        }
    }
    Ok(())
}

/// Prints what a pair (an acquire and its release) costs the servers and the client.
fn cost(runtime: &Runtime, tasks: usize, candidate: &Candidate) -> Result<(), Failure> {
    let (before, cpu) = (candidate.site.work()?, cpu_seconds()?);
    let count = pairs(runtime, COUNTED_TIME, tasks, &candidate.locks_on_thread)? * COUNTED_TIME.as_secs_f64();
    let (work, cpu) = (candidate.site.work()?.since(&before), cpu_seconds()? - cpu);
    println!(
        "  {:44} {:.2} requests, {:.2} calls in them, {:.1} us of processors: {:.1} of servers, {:.1} of the client",
        candidate.about,
        work.requests() as f64 / count,
        work.script_commands() as f64 / count,
        (work.cpu + cpu) / count * 1e6,
        work.cpu / count * 1e6,
        cpu / count * 1e6,
    );
    Ok(())
}
