//! Looks at each engine once a second, for all pages together, and asks once a minute what the engine promises.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold_ops::{Looks, waits::Finder};
use tokio::{runtime::Handle, task::spawn_blocking, time::sleep};

use crate::{
    row::rows,
    state::{Health, Look, Shared},
    time::now_ms,
};

/// The time between two looks at an engine that answers at once.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// The pause after a look is at least this many times as long as the look took, so that looks at very many names are
/// not the main load of a server.
const PAUSE_FACTOR: u32 = 3;
/// The longest pause between two looks.
const MAX_PAUSE: Duration = Duration::from_secs(15);
/// The time between two questions for the guarantee and the diagnostics, which change rarely and cost more.
const HEALTH_PERIOD: Duration = Duration::from_secs(60);

/// The time between two searches for deadlocks and long waits, which last.
const WAITS_PERIOD: Duration = Duration::from_secs(2);

/// Looks at an engine until the server stops.
pub(crate) async fn look(shared: Arc<Shared>, engine: usize) {
    let mut looks = Looks::new();
    until_stopped(&shared, async {
        loop {
            let begin = Instant::now();
            look_once(&shared, engine, &mut looks).await;
            shared.looks.send_modify(|number| *number += 1);
            let took = begin.elapsed();
            let pause = LOOK_PERIOD.saturating_sub(took).max(took.saturating_mul(PAUSE_FACTOR));
            sleep(pause.min(MAX_PAUSE)).await;
        }
    })
    .await;
}

async fn look_once(shared: &Shared, engine: usize, looks: &mut Looks) {
    let state = &shared.engines[engine];
    let locks = state.locks.clone();
    // Engines without a server answer on the thread that asks, which must not be one that serves requests.
    let handle = Handle::current();
    let answer = spawn_blocking(move || handle.block_on(locks.list(""))).await;
    let (before, now) = (state.look(), now_ms());
    let views = match answer {
        Ok(Ok(views)) => views,
        Ok(Err(error)) => return state.set_look(failed(&before, error.to_string())),
        Err(error) => return state.set_look(failed(&before, error.to_string())),
    };
    let changes = looks.next(&views, Instant::now());
    shared.history().add(engine, &changes, now);
    state.totals().count(changes.iter().map(|(_, change)| change));
    let rows = rows(&views, now, &before.rows);
    state.set_look(Look { rows, views: Arc::new(views), at: Some(now), error: None });
}

/// The look after one that failed: the rows of the last one that succeeded.
fn failed(before: &Look, error: String) -> Look {
    Look { rows: before.rows.clone(), views: Arc::clone(&before.views), at: before.at, error: Some(error) }
}

/// Looks for deadlocks and long waits over all engines until the server stops.
pub(crate) async fn look_at_waits(shared: Arc<Shared>) {
    let mut finder = Finder::new();
    until_stopped(&shared, async {
        loop {
            sleep(WAITS_PERIOD).await;
            let looks: Vec<_> = shared.engines.iter().map(|engine| engine.look()).collect();
            // With an engine that is away, a cycle could be one that has ended.
            if looks.iter().all(|look| look.error.is_none() && look.at.is_some()) {
                let each = shared.engines.iter().zip(&looks);
                let looks: Vec<_> = each.map(|(engine, look)| engine.wait_look(look)).collect();
                shared.set_waits(finder.next(&looks, Instant::now()));
            }
        }
    })
    .await;
}

/// Asks an engine for its guarantee and its diagnostics until the server stops.
pub(crate) async fn look_at_health(shared: Arc<Shared>, engine: usize) {
    until_stopped(&shared, async {
        loop {
            let state = &shared.engines[engine];
            let (locks, handle) = (state.locks.clone(), Handle::current());
            let answer = spawn_blocking(move || {
                handle.block_on(async { (locks.guarantee().await, locks.diagnose().await) })
            });
            if let Ok((guarantee, diagnostics)) = answer.await {
                state.set_health(Health {
                    guarantee: Some(guarantee.map_err(|error| error.to_string())),
                    diagnostics: Some(diagnostics.map_err(|error| error.to_string())),
                });
            }
            sleep(HEALTH_PERIOD).await;
        }
    })
    .await;
}

/// Runs work until the server stops.
async fn until_stopped(shared: &Shared, work: impl Future<Output = ()>) {
    let mut stopping = shared.stopping.subscribe();
    tokio::select! {
        () = work => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}
