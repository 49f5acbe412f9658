//! Moves a slot of a Redis Cluster. During the move, holds on names of the slot are released to waiters, one after the
//! other.

use std::{
    thread,
    time::{Duration, Instant},
};

use leasehold::{Guard, Locks};
use leasehold_testkit::server::{RedisCluster, RedisClusterOptions};
use tokio::runtime::Runtime;

use crate::{Failure, comparison::quantile};

const NAMES: usize = 100;
/// The time between two releases.
const RELEASE_INTERVAL: Duration = Duration::from_millis(10);
/// How long the slot stays open (its keys are being moved) in [`Move::Slowly`].
const OPEN_TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 9;

#[derive(Clone, Copy, PartialEq)]
enum Move {
    None,
    /// The commands of the move follow each other without a pause.
    AtOnce,
    /// The slot is open for [`OPEN_TIME`], and its keys move during this time.
    Slowly,
}

/// The results of one round.
#[derive(Default)]
struct RoundFigures {
    /// The time from each release to the grant of the same name to its waiter, in ms.
    waits: Vec<f64>,
    /// The times of `waits`, except that the time of a release while the slot was open counts from the closing of the
    /// slot.
    waits_after_closing: Vec<f64>,
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
    let candidates = [
        ("the slot stays", Move::None),
        ("it moves at once", Move::AtOnce),
        ("it is open for 2 s", Move::Slowly),
    ];
    let mut figures = [(); 3].map(|()| Vec::new());
    for round in 0..ROUNDS {
        for (figures, (_, kind)) in figures.iter_mut().zip(candidates) {
            figures.push(run_round(&runtime, &mut cluster, kind, round, [&holder, &other])?);
        }
    }
    println!("  {ROUNDS} rounds of {NAMES} holds and as many waiters; ms");
    for ((about, _), figures) in candidates.iter().zip(&figures) {
        let all = |of: fn(&RoundFigures) -> &[f64]| figures.iter().flat_map(of).copied().collect::<Vec<_>>();
        let (mut waits, mut waits_after_closing) =
            (all(|figures| &figures.waits), all(|figures| &figures.waits_after_closing));
        let mut open: Vec<f64> = figures.iter().map(|figures| figures.open).collect();
        println!(
            "  {about:20} open {:6.1}; from release to grant: p50 {:6.1}, longest {:7.1}; from when both are over: longest {:6.1}; {} lost",
            quantile(&mut open, 0.5),
            quantile(&mut waits, 0.5),
            quantile(&mut waits, 1.0),
            quantile(&mut waits_after_closing, 1.0),
            figures.iter().map(|figures| figures.lost).sum::<usize>(),
        );
    }
    Ok(())
}

fn run_round(
    runtime: &Runtime,
    cluster: &mut RedisCluster,
    kind: Move,
    round: usize,
    [holder, other]: [&Locks; 2],
) -> Result<RoundFigures, Failure> {
    let name = |number: usize| format!("{{moves}}{round}-{number}");
    let slot = cluster.slot("lock:{moves}");
    let new_owner = (cluster.owner(slot) + 1) % 3;
    let held_guards = async {
        let mut guards = Vec::new();
        for number in 0..NAMES {
            guards.push(holder.mutex(name(number)).acquire().await?);
        }
        Ok::<_, Failure>(guards)
    };
    let guards = runtime.block_on(held_guards)?;
    let waiting: Vec<_> = (0..NAMES)
        .map(|number| {
            let acquire = other.mutex(name(number)).acquire();
            runtime.spawn(async move { (acquire.await, Instant::now()) })
        })
        .collect();
    // After this time all waiters are in the queue, and have push listeners.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(500)).await });
    let begin = Instant::now();
    let lost = guards.iter().filter(|guard| !guard.check()).count();
    let (moved, granted) = thread::scope(|scope| {
        let moving = scope.spawn(move || move_slot(cluster, kind, slot, new_owner));
        let granted = runtime.block_on(release_all(begin, guards, waiting));
        (moving.join(), granted)
    });
    let (opened, closed) = moved.map_err(|_| "the slot could not be moved")??;
    let mut figures = RoundFigures {
        lost,
        open: closed.duration_since(opened).as_secs_f64() * 1e3,
        ..RoundFigures::default()
    };
    for (released, granted) in granted? {
        let ms = |since: Instant| granted.saturating_duration_since(since).as_secs_f64() * 1e3;
        figures.waits.push(ms(released));
        let was_open = kind != Move::None && released < closed;
        figures.waits_after_closing.push(ms(if was_open { released.max(closed) } else { released }));
    }
    Ok(figures)
}

/// Moves the slot. Returns the times at which it was opened and closed.
fn move_slot(
    cluster: &mut RedisCluster,
    kind: Move,
    slot: u16,
    new_owner: usize,
) -> Result<(Instant, Instant), Failure> {
    if kind != Move::None {
        thread::sleep(RELEASE_INTERVAL * NAMES as u32 / 4);
    }
    let opened = Instant::now();
    match kind {
        Move::None => return Ok((opened, opened)),
        Move::AtOnce => cluster.migrate_slot(slot, new_owner)?,
        Move::Slowly => {
            cluster.open_slot(slot, new_owner)?;
            while opened.elapsed() < OPEN_TIME {
                cluster.move_keys(slot, 10)?;
                thread::sleep(OPEN_TIME / 50);
            }
            while cluster.move_keys(slot, usize::MAX)? > 0 {}
            cluster.close_slot(slot)?;
        }
    }
    Ok((opened, Instant::now()))
}

type Waiting = tokio::task::JoinHandle<(Result<Guard, leasehold::Error>, Instant)>;

/// Releases one hold after the other. Returns for each hold when its release began and when its waiter was granted the
/// name.
async fn release_all(
    begin: Instant,
    guards: Vec<Guard>,
    waiting: Vec<Waiting>,
) -> Result<Vec<(Instant, Instant)>, Failure> {
    let releasing: Vec<_> = guards
        .into_iter()
        .enumerate()
        .map(|(number, guard)| {
            tokio::spawn(async move {
                tokio::time::sleep_until((begin + RELEASE_INTERVAL * number as u32).into()).await;
                let released = Instant::now();
                // While the slot is open, the outcome of a release may be unknown. That is no error here.
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
