//! A master with holds is killed, and Sentinels name another master. Measures how soon the new master grants a name,
//! and how many holds are lost.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use leasehold::{Guard, Locks};
use leasehold_testkit::server::RedisSentinels;
use tokio::runtime::Runtime;

use crate::{Failure, comparison::quantile};

const ROUNDS: usize = 7;
/// The number of holds that are replicated, and the number of holds that the replicas lack.
const REPLICATED: usize = 100;
const UNREPLICATED: usize = 20;
const TTL: Duration = Duration::from_secs(12);

/// The results of one round. Times are in ms.
struct RoundFigures {
    /// From the kill of the master until a majority of Sentinels named another node that reported to be the master.
    until_new_master: f64,
    /// From the naming of the new master until a name was granted.
    until_grant: f64,
    /// From the kill until the last of the holds that the new master lacks was reported as lost.
    until_reported: f64,
    replicated: usize,
    lost: usize,
}

pub(crate) fn bench() -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rounds = (0..ROUNDS).map(|_| run_round(&runtime)).collect::<Result<Vec<_>, _>>()?;
    let figure = |about: &str, of: fn(&RoundFigures) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        println!(
            "  {about:52} median {:7.1} ms, longest {:7.1}",
            quantile(&mut all, 0.5),
            quantile(&mut all, 1.0)
        );
    };
    println!("  {ROUNDS} rounds, down-after 1 s, ttl {TTL:?}");
    figure("from the kill until a majority names another", |round| round.until_new_master);
    figure("from then until that one grants a name", |round| round.until_grant);
    figure("from the kill until all lost holds are reported", |round| round.until_reported);
    println!(
        "  of {} replicated holds {} survived; of {} unreplicated holds {} were reported as lost",
        REPLICATED * ROUNDS,
        rounds.iter().map(|round| round.replicated).sum::<usize>(),
        UNREPLICATED * ROUNDS,
        rounds.iter().map(|round| round.lost).sum::<usize>()
    );
    Ok(())
}

fn run_round(runtime: &Runtime) -> Result<RoundFigures, Failure> {
    let mut group = RedisSentinels::start();
    let locks = Locks::connect(&group.url())?;
    let replicated = runtime.block_on(hold(&locks, "replicated", REPLICATED))?;
    group.command(0, &["SET", "echo", "1", "PX", "60000"]);
    while (1..3).any(|node| group.command(node, &["EXISTS", "echo"]) != ["1"]) {
        thread::sleep(Duration::from_millis(5));
    }
    group.cut_between([0, 1]);
    group.cut_between([0, 2]);
    let unreplicated = runtime.block_on(hold(&locks, "unreplicated", UNREPLICATED))?;
    group.kill(0);
    let killed = Instant::now();
    let losses: Vec<_> = unreplicated
        .iter()
        .map(|guard| {
            let lost = guard.lost();
            runtime.spawn(async move {
                lost.await;
                Instant::now()
            })
        })
        .collect();
    let must_stop = AtomicBool::new(false);
    let (new_master_at, grants) = thread::scope(|scope| {
        let naming = scope.spawn(|| {
            let new_master_at = wait_for_new_master(&group);
            // After this time it is certain that the new master has granted a name.
            thread::sleep(Duration::from_secs(3));
            must_stop.store(true, Relaxed);
            new_master_at
        });
        let grants = runtime.block_on(grant_new_names(&locks, &must_stop));
        (naming.join(), grants)
    });
    let new_master_at = new_master_at.map_err(|_| "no master was named")?;
    let granted_at =
        grants?.into_iter().find(|granted_at| *granted_at >= new_master_at).ok_or("nothing was granted")?;
    let mut last_reported = killed;
    let lost = runtime.block_on(async {
        let mut lost = 0;
        for loss in losses {
            // At the time `killed + TTL` the lease of the hold has certainly ended.
            if let Ok(when) = tokio::time::timeout_at((killed + TTL).into(), loss).await {
                last_reported = last_reported.max(when?);
                lost += 1;
            }
        }
        Ok::<_, Failure>(lost)
    })?;
    // After this pause, a replicated hold is valid only if it was renewed after the kill.
    thread::sleep(TTL.saturating_sub(killed.elapsed()));
    let survived = runtime.block_on(async {
        let mut count = 0;
        for guard in &replicated {
            count += usize::from(guard.check() && guard.confirm().await.is_ok());
        }
        count
    });
    let ms = |since: Instant, until: Instant| until.duration_since(since).as_secs_f64() * 1e3;
    Ok(RoundFigures {
        until_new_master: ms(killed, new_master_at),
        until_grant: ms(new_master_at, granted_at),
        until_reported: ms(killed, last_reported),
        replicated: survived,
        lost,
    })
}

/// The time at which a majority of Sentinels named another node that reported to be the master.
fn wait_for_new_master(group: &RedisSentinels) -> Instant {
    while group.master() == 0 {
        thread::sleep(Duration::from_millis(2));
    }
    Instant::now()
}

async fn hold(locks: &Locks, kind: &str, count: usize) -> Result<Vec<Guard>, Failure> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(locks.mutex(format!("{kind}-{number}")).ttl(TTL).acquire().await?);
    }
    Ok(guards)
}

/// Acquires one new name after the other, also while the servers cannot be reached. Returns when each was granted.
pub(crate) async fn grant_new_names(locks: &Locks, must_stop: &AtomicBool) -> Result<Vec<Instant>, Failure> {
    let mut grants = Vec::new();
    for number in 0.. {
        if must_stop.load(Relaxed) {
            break;
        }
        let pair = async {
            let guard = locks.mutex(format!("new-{number}")).acquire().await?;
            grants.push(Instant::now());
            guard.release().await
        };
        match pair.await {
            Err(error) if !error.is_unreachable() && !error.is_unknown() && !error.is_lost() => {
                return Err(error.into());
            }
            _ => {}
        }
    }
    Ok(grants)
}
