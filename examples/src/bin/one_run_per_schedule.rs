//! One run per schedule: the same job on five nodes, with one tick each second. The nodes' clocks differ by up to 300
//! ms and the job takes 20 ms, so a plain lock would be free again before the last node tries it. `release_at_least`
//! keeps the name taken for 600 ms from the grant, so only one node runs the job at each tick. One node is killed
//! half-way; the others do its work.
//!
//! On etcd there is a tick every four seconds and not every second. If a killed node has blocked the name, the server
//! frees the name only when the node's lease has ended, and the shortest lease is two seconds.
//!
//! With `--textbook` the lock is a key in Redis that is deleted as soon as the job has ended. With this lock, and
//! without a lock, a node looks at a tick only after the node with the previous number has looked at it: its clock is
//! behind the clock of that node.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use leasehold_examples::{
    Data, Failure, Floor, Owner, Protection, Release, Scenario, TTL, Textbook, TextbookPlace, WorkerLocks,
    check, failures, run, wait_until,
};

const NODES: usize = 5;
const TICKS: u64 = 6;
const TICK: Duration = Duration::from_secs(1);
const TICK_ON_ETCD: Duration = Duration::from_secs(4);
/// By how much the clock of each node is behind the clock of the previous node.
const SKEW: Duration = Duration::from_millis(75);
const JOB: Duration = Duration::from_millis(20);
const AT_LEAST: Duration = Duration::from_millis(600);
/// A node that wakes up later than this after a tick has missed the tick, as with any scheduler.
const TOO_LATE: Duration = Duration::from_millis(100);
/// The last tick of node 0, which is killed between two jobs.
const LAST_OF_NODE_0: u64 = TICKS / 2;

fn main() -> ExitCode {
    run(&Scenario { data: Data::Files, textbook: TextbookPlace::Redis }, boss, worker)
}

fn boss(floor: &Floor) -> Result<(), Failure> {
    // The first tick is so late that all nodes have started by then.
    let first = (now() + Duration::from_secs(2)).as_secs() + 1;
    floor.replace("first", &first.to_string())?;
    let mut nodes: Vec<_> = (0..NODES).map(|node| floor.start(node)).collect::<Result<_, _>>()?;
    // Node 0 is killed between two jobs. If it were killed during a job, another node would be right to run the job of
    // that tick again, but the check below allows one run for each tick.
    wait_until("node 0 to be half-way", || Ok(floor.file("half-way").exists()))?;
    nodes[0].kill()?;
    println!("node 0 killed");
    check(failures(nodes)? == 0, "a node failed")?;

    let mut ticks: BTreeMap<u64, Tick> = BTreeMap::new();
    for line in floor.lines("schedule.log")? {
        let (tick, what) = line.split_once(' ').ok_or("a torn line")?;
        let tick = ticks.entry(tick.parse()?).or_default();
        match what.split_once(' ') {
            Some(("ran", node)) => tick.ran.push(node.to_owned()),
            Some(("left", _)) => tick.left += 1,
            _ => tick.late += 1,
        }
    }
    for (number, Tick { ran, left, late }) in &ticks {
        println!(
            "tick {number}: ran {}, {left} nodes left it to others, {late} were late",
            ran.join(" and ")
        );
        check(!ran.is_empty() || *late > 0, format!("tick {number} did not run"))?;
    }
    let again: usize = ticks.values().map(|tick| tick.ran.len().saturating_sub(1)).sum();
    floor.judge(again, "runs of a tick that had run already")?;
    check(ticks.len() as u64 == TICKS, "some ticks were not looked at")
}

/// The result of one tick.
#[derive(Default)]
struct Tick {
    ran: Vec<String>,
    left: usize,
    late: usize,
}

fn worker(floor: &Floor) -> Result<(), Failure> {
    let node = floor.worker.unwrap_or_default();
    let first = floor.number("first")?;
    let locks = WorkerLocks::connect(floor, |url| Textbook::connect(url, Owner::Unique, Release::Compare))?;
    for tick in 0..TICKS {
        let due = Duration::from_secs(first) + tick_of(floor) * tick as u32 + SKEW * node as u32;
        thread::sleep(due.saturating_sub(now()));
        if floor.protection != Protection::Leasehold {
            wait_for_node_before(floor, tick, node)?;
        }
        look(floor, &locks, tick, node, due)?;
        floor.append("looked.log", &format!("{tick} {node}"))?;
        if node == 0 && tick == LAST_OF_NODE_0 {
            floor.replace("half-way", "")?;
            thread::park_timeout(tick_of(floor) * TICKS as u32);
            return Err("node 0 was not killed".into());
        }
    }
    Ok(())
}

/// Waits until the node with the previous number has looked at this tick. The clocks of the nodes differ by more than
/// that takes, but a busy machine can delay a node for longer than the clocks differ.
fn wait_for_node_before(floor: &Floor, tick: u64, node: usize) -> Result<(), Failure> {
    let first_node = usize::from(tick > LAST_OF_NODE_0);
    if node <= first_node {
        return Ok(());
    }
    let before = format!("{tick} {}", node - 1);
    wait_until("the node before", || Ok(floor.lines("looked.log")?.contains(&before)))
}

fn tick_of(floor: &Floor) -> Duration {
    if floor.is_on("etcd") { TICK_ON_ETCD } else { TICK }
}

/// What a node does at a tick.
fn look(floor: &Floor, locks: &WorkerLocks, tick: u64, node: usize, due: Duration) -> Result<(), Failure> {
    let locks = match locks {
        WorkerLocks::Leasehold(locks) => locks,
        WorkerLocks::Textbook(textbook) => {
            let Some(hold) = textbook.try_acquire("nightly")? else {
                return log(floor, &format!("{tick} left by node {node}"));
            };
            job(floor, tick, node)?;
            return hold.release();
        }
        WorkerLocks::None => return job(floor, tick, node),
    };
    let guard = match locks.mutex("nightly").ttl(TTL).blocking().try_acquire() {
        Ok(guard) => guard,
        Err(error) if error.is_taken() => return log(floor, &format!("{tick} left by node {node}")),
        Err(error) => return Err(error.into()),
    };
    // The clock is read after the grant, because the node may have been delayed before the grant. Then another node may
    // have run the job of this tick already.
    if now() > due + TOO_LATE {
        guard.release_blocking()?;
        return log(floor, &format!("{tick} late on node {node}"));
    }
    job(floor, tick, node)?;
    release(guard)
}

fn job(floor: &Floor, tick: u64, node: usize) -> Result<(), Failure> {
    log(floor, &format!("{tick} ran on node {node}"))?;
    thread::sleep(JOB);
    Ok(())
}

fn release(guard: leasehold::Guard) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(guard.release_at_least(AT_LEAST))?)
}

/// The time of this machine. The clock of a node differs from it: see [`SKEW`].
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn log(floor: &Floor, line: &str) -> Result<(), Failure> {
    Ok(floor.append("schedule.log", line)?)
}
