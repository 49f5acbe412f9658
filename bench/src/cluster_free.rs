//! Acquire and release of free names on a Redis Cluster: beside one server on the same processors, and with more
//! masters.

use std::time::Duration;

use leasehold::{Connect, Keeper, Locks};
use tokio::runtime::Runtime;

use crate::{Failure, contest::Contest, pairs::pairs, redis_holds::cpu_seconds, redis_site::Site};

const TASKS: usize = 256;
/// The approximate length of one measurement.
const SLICE: Duration = Duration::from_millis(150);
const ROUNDS: usize = 31;
/// The length of a measurement that counts: long, so that requests that are missed at its ends do not matter.
const COUNTED: Duration = Duration::from_secs(2);

/// A site and its clients.
struct Way {
    about: &'static str,
    on_runtime_about: &'static str,
    site: Site,
    own: Locks,
    on_runtime: Locks,
}

pub(crate) fn bench() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let way = |about, on_runtime_about, site: Site| -> Result<Way, Failure> {
        let own = Locks::connect(&site.url())?;
        let on_runtime =
            Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&site.url())?;
        Ok(Way { about, on_runtime_about, site, own, on_runtime })
    };
    let ways = [
        way("one server", "one server, keeper on the tasks' runtime", Site::one())?,
        way("3 masters", "3 masters, keeper on the tasks' runtime", Site::cluster(3))?,
        way("1 master", "1 master, keeper on the tasks' runtime", Site::cluster(1))?,
        way("6 masters", "6 masters, keeper on the tasks' runtime", Site::cluster(6))?,
    ];
    // Creates the connections and counters before the measurement.
    for way in &ways {
        pairs(&runtime, SLICE, TASKS, &way.own)?;
        pairs(&runtime, SLICE, TASKS, &way.on_runtime)?;
    }
    println!("  {TASKS} tasks of one thread, a name each");
    let contest = |of: fn(&Way) -> (&'static str, &Locks)| {
        let mut contest = Contest::new("pairs/s").rounds(ROUNDS);
        for way in &ways {
            let (about, locks) = of(way);
            let runtime = &runtime;
            contest = contest.way(about, move || pairs(runtime, SLICE, TASKS, locks));
        }
        contest.run()
    };
    contest(|way| (way.about, &way.own))?;
    contest(|way| (way.on_runtime_about, &way.on_runtime))?;
    for tasks in [TASKS, 1] {
        println!("  a pair of {tasks} tasks costs");
        for way in &ways {
            cost(&runtime, tasks, way)?;
        }
    }
    Ok(())
}

/// Prints what an acquire with its release costs the servers and the client.
fn cost(runtime: &Runtime, tasks: usize, way: &Way) -> Result<(), Failure> {
    let (before, cpu) = (way.site.done()?, cpu_seconds()?);
    let count = pairs(runtime, COUNTED, tasks, &way.own)? * COUNTED.as_secs_f64();
    let (done, cpu) = (way.site.done()?.since(&before), cpu_seconds()? - cpu);
    println!(
        "  {:44} {:.2} requests, {:.2} calls in them, {:.1} us of processors: {:.1} of servers, {:.1} of the client",
        way.about,
        done.requests() as f64 / count,
        done.called() as f64 / count,
        (done.cpu + cpu) / count * 1e6,
        done.cpu / count * 1e6,
        cpu / count * 1e6,
    );
    Ok(())
}
