//! The work of a client with a peer: takes names in turns, and records what the peer reports.

use std::{sync::Arc, time::Duration};

use leasehold_core::{Lineage, Mode, Token};
use leasehold_e2e::{
    Failure,
    client::{ClientArguments, THREADS},
    heartbeat::Heartbeat,
    rng::Rng,
    task::TTL,
};
use leasehold_testkit::history::{Granted, Recorder, now_nanos};
use tokio::time::{Instant, sleep, timeout};

use crate::peer::{Distributed, Ours, Peer, Rslock};

/// The number of tasks in each client.
const TASKS: u64 = 10;
/// The time limit of an acquire.
const LIMIT: Duration = Duration::from_millis(1500);
/// The time limit of a release or a connection.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause before the next attempt to connect to a server that is down.
const REDIAL: Duration = Duration::from_millis(10);
/// How often a section checks whether it still holds the lock.
const LOOK: Duration = Duration::from_millis(5);
/// The names.
const NAMES: [&str; 4] = ["m0", "m1", "m2", "m3"];

/// Runs the program as a client of the peer `role`.
pub(crate) fn client(role: &str, arguments: &[&str]) -> Result<(), Failure> {
    let arguments = ClientArguments::parse(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    match role {
        "leasehold" => runtime.block_on(work::<Ours>(arguments)),
        "rslock" => runtime.block_on(work::<Rslock>(arguments)),
        _ => runtime.block_on(work::<Distributed>(arguments)),
    }
}

async fn work<P: Peer>(arguments: ClientArguments) -> Result<(), Failure> {
    let recorder = Arc::new(Recorder::to_file(arguments.run, &arguments.history)?);
    let _pulse = Heartbeat::of_process(Arc::clone(&recorder), Some(std::process::id()));
    let peer = loop {
        match timeout(PATIENCE, P::connect(&arguments.url)).await {
            Ok(Ok(peer)) => break Arc::new(peer),
            // The server may be down at the moment.
            _ if now_nanos() < arguments.until => sleep(REDIAL).await,
            _ => return Ok(()),
        }
    };
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (peer, recorder) = (Arc::clone(&peer), Arc::clone(&recorder));
            let (mut rng, until) = (Rng::new(arguments.seed, task + 1), arguments.until);
            tokio::spawn(async move {
                while now_nanos() < until {
                    once(&*peer, &recorder, task as u32, &mut rng).await;
                    sleep(rng.millis(1..4)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    Ok(())
}

async fn once<P: Peer>(peer: &P, recorder: &Recorder, task: u32, rng: &mut Rng) {
    let name = *rng.pick(&NAMES);
    let limit = Some(LIMIT.as_nanos() as u64);
    let attempt = recorder.attempt(task, name, Mode::Exclusive, limit);
    let hold = match peer.acquire(name, LIMIT).await {
        Ok(Some(hold)) => hold,
        Ok(None) => return attempt.taken(),
        Err(_) => return attempt.unknown("Unreachable"),
    };
    let left = |hold: &P::Hold| P::left(hold).map(|left| left.as_nanos() as u64);
    // The other crates have no tokens: the time shows the order as well as tokens would.
    let token = Token { lineage: Lineage::new(0), number: now_nanos() };
    let ttl_nanos = Some(TTL.as_nanos() as u64);
    let active = attempt.granted(Granted { token, ttl_nanos, watched: false, fixed: false }, || left(&hold));
    // Some sections are so long that faults hit holds; none is as long as a lease.
    let end = Instant::now() + if rng.percent(10) { rng.millis(100..600) } else { rng.millis(0..8) };
    loop {
        if !active.check(|| P::is_held(&hold), || left(&hold)) {
            active.lost("reported");
            break;
        }
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        sleep(rest.min(LOOK)).await;
    }
    let leaving = active.releasing(None);
    // A crate without request limits would wait forever on a silent connection.
    match timeout(PATIENCE, peer.release(hold)).await {
        Ok(Ok(())) => leaving.freed(),
        _ => leaving.unknown("Unreachable"),
    }
}
