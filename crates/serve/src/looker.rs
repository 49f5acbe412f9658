//! Looks at each engine once a second, and at once when the engine tells that something changed, for all pages
//! together. Asks once a minute what the engine promises.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use leasehold::{Notices, engine::Watched};
use leasehold_ops::{FirstSeen, Leases, Looks, pause_after_look, pause_before_noticed_look, waits::Finder};
use tokio::{runtime::Handle, task::spawn_blocking, time::sleep};

use crate::{
    row::rows,
    state::{Health, Look, Search, Shared},
    time::{millis, now_ms},
};

/// The time between two looks at an engine that answers at once.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// The time between two questions for the guarantee and the diagnostics, which change rarely and cost more.
const HEALTH_PERIOD: Duration = Duration::from_secs(60);

/// The time between two searches for deadlocks and long waits, which last.
const WAITS_PERIOD: Duration = Duration::from_secs(2);

/// Looks at an engine until the server stops.
pub(crate) async fn look(shared: Arc<Shared>, engine: usize) {
    let (looks, leases, start) = (Looks::new(), Leases::new(), Instant::now());
    let mut seen = Seen { looks, leases, first_seen: FirstSeen::new(), start, notices: None };
    until_stopped(&shared, async {
        loop {
            let pause = look_once(&shared, engine, &mut seen).await;
            shared.looks.send_modify(|number| *number += 1);
            tokio::select! {
                () = sleep(pause.longest) => {}
                () = noticed(pause.shortest, seen.notices.as_mut()) => {}
            }
        }
    })
    .await;
}

/// The pause before the next look: at least `shortest`, and then until something changed, or `longest` has passed.
struct Pause {
    shortest: Duration,
    longest: Duration,
}

/// Waits for a notice of a change, after a pause.
async fn noticed(pause: Duration, notices: Option<&mut Notices>) {
    sleep(pause).await;
    match notices {
        Some(notices) => notices.changed().await,
        None => std::future::pending().await,
    }
}

/// What is remembered of an engine from look to look.
struct Seen {
    looks: Looks,
    leases: Leases,
    first_seen: FirstSeen,
    start: Instant,
    /// Tells of changes, from the first look on that succeeded.
    notices: Option<Notices>,
}

/// Returns the pause before the next look. An engine that does not answer has no load by looks, and is looked at again
/// soon.
async fn look_once(shared: &Shared, engine: usize, seen: &mut Seen) -> Pause {
    let begin = Instant::now();
    let state = &shared.engines[engine];
    if let Some(notices) = &mut seen.notices {
        notices.take();
    }
    let locks = state.locks.clone();
    // Engines without a server answer on the thread that asks, which must not be one that serves requests.
    let handle = Handle::current();
    let sent = seen.start.elapsed();
    let answer = spawn_blocking(move || handle.block_on(locks.list(""))).await;
    let (before, now) = (state.look(), now_ms());
    let answer = answer.map_err(|error| error.to_string());
    let mut views = match answer.and_then(|answer| answer.map_err(|error| error.to_string())) {
        Ok(views) => views,
        Err(error) => {
            state.set_look(failed(&before, error));
            return Pause { shortest: LOOK_PERIOD, longest: LOOK_PERIOD };
        }
    };
    let took = begin.elapsed();
    let pause = pause_after_look(LOOK_PERIOD.saturating_sub(took), took);
    let notices = seen.notices.get_or_insert_with(|| state.locks.notices(Watched::Prefix(String::new())));
    let is_pushed = notices.are_pushed();
    let answered = seen.start.elapsed();
    seen.leases.next(&mut views, sent, answered);
    seen.first_seen.next(&mut views, sent, answered);
    let changes = seen.looks.next(&views, Instant::now());
    shared.history().add(engine, &changes, now);
    state.totals().count(changes.iter().map(|(_, change)| change));
    let rows = rows(&views, now, &before.rows);
    let next_ms = millis(pause + took);
    state.set_look(Look { rows, views: Arc::new(views), at: Some(now), next_ms, is_pushed, error: None });
    Pause { shortest: pause_before_noticed_look(took), longest: pause }
}

/// The look after one that failed: the rows of the last one that succeeded.
fn failed(before: &Look, error: String) -> Look {
    let (rows, views) = (before.rows.clone(), Arc::clone(&before.views));
    Look { rows, views, at: before.at, next_ms: before.next_ms, is_pushed: false, error: Some(error) }
}

/// Looks for deadlocks and long waits over all engines until the server stops.
pub(crate) async fn look_at_waits(shared: Arc<Shared>) {
    let mut finder = Finder::new();
    until_stopped(&shared, async {
        loop {
            sleep(WAITS_PERIOD).await;
            let looks: Vec<_> = shared.engines.iter().map(|engine| engine.look()).collect();
            if looks.iter().any(|look| look.error.is_none() && look.at.is_none()) {
                // The first answer of an engine is still to come.
                continue;
            }
            // The rows of an engine that is away could show a cycle that has ended.
            let each = shared.engines.iter().zip(&looks).filter(|(_, look)| look.error.is_none());
            let looks: Vec<_> = each.map(|(engine, look)| engine.wait_look(look)).collect();
            let findings = finder.next(&looks, Instant::now());
            if !looks.is_empty() {
                shared.set_search(Search { findings, at: Some(now_ms()) });
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
            // What is shown is at least as new as this.
            let at = Some(now_ms());
            let answer = spawn_blocking(move || {
                handle.block_on(async { (locks.guarantee().await, locks.diagnose().await) })
            });
            if let Ok((guarantee, diagnostics)) = answer.await {
                state.set_health(Health {
                    at,
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
