//! Moves a slot of a Redis Cluster, key by key, under holds that are released one after another to waiters.

use std::{
    thread,
    time::{Duration, Instant},
};

use leasehold::{Guard, Locks};
use leasehold_testkit::server::{RedisCluster, RedisClusterOptions};
use tokio::runtime::Runtime;

use crate::{Failure, contest::quantile};

const NAMES: usize = 100;
/// The time between two releases.
const PACE: Duration = Duration::from_millis(10);
/// How long the slot stays open in the slow move.
const OPEN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 9;

#[derive(Clone, Copy, PartialEq)]
enum Move {
    None,
    /// As fast as commands follow each other.
    AtOnce,
    /// The slot is open for [`OPEN`], and its keys move meanwhile.
    Slowly,
}

/// The results of one round.
#[derive(Default)]
struct Found {
    /// The time from each release to the next grant, in ms.
    waits: Vec<f64>,
    /// The same; for a release while the slot was open it counts from the closing of the slot.
    after: Vec<f64>,
    /// How long the slot was open, in ms.
    open: f64,
    lost: usize,
}

pub(crate) fn bench() -> Result<(), Failure> {
    let node_timeout = Duration::from_secs(15);
    let options = RedisClusterOptions { masters: 3, replicas: 0, node_timeout, ..Default::default() };
    let mut cluster = RedisCluster::start_with(options);
    let (holder, other) = (Locks::connect(&cluster.url())?, Locks::connect(&cluster.url())?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ways = [
        ("the slot stays", Move::None),
        ("it moves at once", Move::AtOnce),
        ("it is open for 2 s", Move::Slowly),
    ];
    let mut figures = [(); 3].map(|()| Vec::new());
    for round in 0..ROUNDS {
        for (figures, (_, how)) in figures.iter_mut().zip(ways) {
            figures.push(once(&runtime, &mut cluster, how, round, [&holder, &other])?);
        }
    }
    println!("  {ROUNDS} rounds of {NAMES} holds and as many waiters; ms");
    for ((about, _), figures) in ways.iter().zip(&figures) {
        let all = |of: fn(&Found) -> &[f64]| figures.iter().flat_map(of).copied().collect::<Vec<_>>();
        let (mut waits, mut after) = (all(|found| &found.waits), all(|found| &found.after));
        let mut open: Vec<f64> = figures.iter().map(|found| found.open).collect();
        println!(
            "  {about:20} open {:6.1}; from release to grant: p50 {:6.1}, longest {:7.1}; from when both are over: longest {:6.1}; {} lost",
            quantile(&mut open, 0.5),
            quantile(&mut waits, 0.5),
            quantile(&mut waits, 1.0),
            quantile(&mut after, 1.0),
            figures.iter().map(|found| found.lost).sum::<usize>(),
        );
    }
    Ok(())
}

fn once(
    runtime: &Runtime,
    cluster: &mut RedisCluster,
    how: Move,
    round: usize,
    [holder, other]: [&Locks; 2],
) -> Result<Found, Failure> {
    let name = |number: usize| format!("{{moves}}{round}-{number}");
    let slot = cluster.slot("lock:{moves}");
    let to = (cluster.owner(slot) + 1) % 3;
    let held = async {
        let mut guards = Vec::new();
        for number in 0..NAMES {
            guards.push(holder.mutex(name(number)).acquire().await?);
        }
        Ok::<_, Failure>(guards)
    };
    let guards = runtime.block_on(held)?;
    let waiting: Vec<_> = (0..NAMES)
        .map(|number| {
            let acquire = other.mutex(name(number)).acquire();
            runtime.spawn(async move { (acquire.await, Instant::now()) })
        })
        .collect();
    // By then all are in the queue, with push listeners.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(500)).await });
    let begin = Instant::now();
    let lost = guards.iter().filter(|guard| !guard.check()).count();
    let (moved, granted) = thread::scope(|scope| {
        let moving = scope.spawn(move || shift(cluster, how, slot, to));
        let granted = runtime.block_on(let_go(begin, guards, waiting));
        (moving.join(), granted)
    });
    let (opened, closed) = moved.map_err(|_| "the slot could not be moved")??;
    let mut found =
        Found { lost, open: closed.duration_since(opened).as_secs_f64() * 1e3, ..Found::default() };
    for (released, granted) in granted? {
        let ms = |since: Instant| granted.saturating_duration_since(since).as_secs_f64() * 1e3;
        found.waits.push(ms(released));
        let was_open = how != Move::None && released < closed;
        found.after.push(ms(if was_open { released.max(closed) } else { released }));
    }
    Ok(found)
}

/// Moves the slot. Returns when it was opened and when it was closed.
fn shift(cluster: &mut RedisCluster, how: Move, slot: u16, to: usize) -> Result<(Instant, Instant), Failure> {
    if how != Move::None {
        thread::sleep(PACE * NAMES as u32 / 4);
    }
    let opened = Instant::now();
    match how {
        Move::None => return Ok((opened, opened)),
        Move::AtOnce => cluster.migrate_slot(slot, to)?,
        Move::Slowly => {
            cluster.open_slot(slot, to)?;
            while opened.elapsed() < OPEN {
                cluster.move_keys(slot, 10)?;
                thread::sleep(OPEN / 50);
            }
            while cluster.move_keys(slot, usize::MAX)? > 0 {}
            cluster.close_slot(slot)?;
        }
    }
    Ok((opened, Instant::now()))
}

type Waiting = tokio::task::JoinHandle<(Result<Guard, leasehold::Error>, Instant)>;

/// Releases one hold after another. Returns when each was released, and when its waiter was granted.
async fn let_go(
    begin: Instant,
    guards: Vec<Guard>,
    waiting: Vec<Waiting>,
) -> Result<Vec<(Instant, Instant)>, Failure> {
    let releasing: Vec<_> = guards
        .into_iter()
        .enumerate()
        .map(|(number, guard)| {
            tokio::spawn(async move {
                tokio::time::sleep_until((begin + PACE * number as u32).into()).await;
                let released = Instant::now();
                // While the slot is open, a release may end without a certain answer.
                let _ = guard.release().await;
                released
            })
        })
        .collect();
    let mut times = Vec::new();
    for (released, waiting) in releasing.into_iter().zip(waiting) {
        let (guard, granted) = waiting.await?;
        times.push((released.await?, granted));
        let _ = guard?.release().await;
    }
    Ok(times)
}
