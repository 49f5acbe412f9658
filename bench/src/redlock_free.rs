//! Acquire and release of free names on a Redlock. leasehold is compared with the crate `rslock` on the same nodes. In
//! addition, leasehold with one node that hangs is compared with leasehold on nodes that all answer.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Connect, Keeper, Locks};
use leasehold_testkit::server::RedisServer;
use tokio::runtime::Runtime;

use crate::{Failure, comparison::Comparison, pairs::pairs, redis_free::rslock_pairs};

const TASKS: usize = 64;
const MEASUREMENT_TIME: Duration = Duration::from_millis(150);
const ROUNDS: usize = 15;
/// By how many seconds the clocks of the nodes are ahead. So each node seems to have run for so long that it has its
/// vote from the start.
const CLOCK_AHEAD: i64 = 1_000_000;
/// How long leasehold works with a node that hangs before the measurement begins. After this time leasehold knows that
/// the node answers late.
const SETTLE_TIME: Duration = Duration::from_millis(500);

pub(crate) fn bench() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let three = nodes(3);
    let (locks_on_thread, locks_on_runtime) =
        (Locks::connect(&url(&three))?, locks_on_runtime(&runtime, &three)?);
    let urls = three.iter().map(|node| format!("redis://127.0.0.1:{}", node.port())).collect();
    let rslock_manager = Arc::new(runtime.block_on(async { rslock::LockManager::new(urls) }));
    println!("  three nodes, {TASKS} tasks of one thread, a name each");
    Comparison::new("pairs/s")
        .rounds(ROUNDS)
        .candidate("rslock", || rslock_pairs(&runtime, &rslock_manager, TASKS))
        .candidate("leasehold", || pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_thread))
        .candidate("leasehold, keeper on the tasks' runtime", || {
            pairs(&runtime, MEASUREMENT_TIME, TASKS, &locks_on_runtime)
        })
        .run()?;
    drop((locks_on_thread, locks_on_runtime, rslock_manager, three));
    for count in [3, 5] {
        let nodes = nodes(count);
        let (whole, hung) = (Locks::connect(&url(&nodes))?, Locks::connect(&url(&nodes))?);
        for (title, tasks) in [("1 task", 1), ("64 tasks", TASKS)] {
            println!("  {count} nodes, {title}");
            let micros_per_pair = |pairs: Result<f64, Failure>| pairs.map(|pairs| tasks as f64 * 1e6 / pairs);
            Comparison::new("us a pair")
                .rounds(ROUNDS)
                .candidate("all nodes answer", || {
                    micros_per_pair(pairs(&runtime, MEASUREMENT_TIME, tasks, &whole))
                })
                .candidate("one node hangs", || {
                    nodes[0].pause();
                    settle(&runtime, tasks, &hung)?;
                    let measured = micros_per_pair(pairs(&runtime, MEASUREMENT_TIME, tasks, &hung));
                    nodes[0].resume();
                    measured
                })
                .run()?;
        }
    }
    Ok(())
}

/// Uses the locks until leasehold knows that the node that hangs answers late.
fn settle(runtime: &Runtime, tasks: usize, locks: &Locks) -> Result<(), Failure> {
    let begin = Instant::now();
    while begin.elapsed() < SETTLE_TIME {
        pairs(runtime, MEASUREMENT_TIME, tasks, locks)?;
    }
    Ok(())
}

pub(crate) fn nodes(count: usize) -> Vec<RedisServer> {
    let nodes: Vec<_> = (0..count).map(|_| RedisServer::with_clock(&[])).collect();
    for node in &nodes {
        node.set_clock(CLOCK_AHEAD);
        node.command(&["SET", "leasehold:{}B", "1 1000"]);
    }
    nodes
}

fn url(nodes: &[RedisServer]) -> String {
    let nodes: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    format!("redlock://{}", nodes.join(","))
}

fn locks_on_runtime(runtime: &Runtime, nodes: &[RedisServer]) -> Result<Locks, Failure> {
    Ok(Connect::default().keeper(Keeper::on(runtime.handle().clone())).connect(&url(nodes))?)
}
