//! The same faults and the same checker on another crate: `rslock`, beside leasehold under the same plain workload: mutexes only,
//! waits with a limit, sections within a lease.
//!
//! It is set up as its documentation advises for one server, with our lease time. What it believes is what its API tells the
//! user: a validity time.

mod ours;
mod rslock;

use std::{path::Path, process::ExitCode, sync::Arc, time::Duration};

use leasehold_core::{Lineage, Mode, Token};
use leasehold_testkit::history::{Granted, Recorder, now_nanos};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Failure,
    client::{Orders, THREADS},
    dice::Dice,
    figures::Figures,
    pulse::Pulse,
    round::{PEER, Round},
    task::TTL,
};

/// Each as the figures name it; started again with this word, the program is a client of it.
pub const PEERS: [&str; 2] = ["leasehold", "rslock"];

/// How many tasks each client has.
const TASKS: u64 = 10;
/// How long an acquire waits at most.
const LIMIT: Duration = Duration::from_millis(1500);
/// The pause between two tries of a crate that knows no waiting, at most: ten times what it takes to hand over.
const RETRY: Duration = Duration::from_millis(10);
/// How long a release, or a connection, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a section looks whether it is still alone.
const LOOK: Duration = Duration::from_millis(5);
/// The names.
const NAMES: [&str; 4] = ["m0", "m1", "m2", "m3"];

/// A crate that locks.
pub trait Peer: Send + Sync + Sized + 'static {
    /// What its user owns while it holds.
    type Hold: Send;

    /// A client of the server at `url`.
    fn connect(url: &str) -> impl Future<Output = Result<Self, Failure>> + Send;

    /// Waits for at most `limit`; `None`: it is held by another.
    fn acquire(
        &self,
        name: &str,
        limit: Duration,
    ) -> impl Future<Output = Result<Option<Self::Hold>, Failure>> + Send;

    /// For how long the hold may be believed, as the crate told; `None`: it tells no time.
    fn left(hold: &Self::Hold) -> Option<Duration>;

    /// Whether it says that the hold is still there.
    fn is_held(hold: &Self::Hold) -> bool;

    /// Lets it go.
    fn release(&self, hold: Self::Hold) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The program as a client of one of them.
///
/// # Errors
/// What keeps it from working.
pub fn client(peer: &str, orders: &[&str]) -> Result<(), Failure> {
    let orders = Orders::parse(orders)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    match peer {
        "leasehold" => runtime.block_on(work::<ours::Ours>(orders)),
        _ => runtime.block_on(work::<rslock::Rslock>(orders)),
    }
}

/// The program that compares: rounds of each, from the same seeds.
///
/// # Errors
/// What keeps a round from being done.
pub fn main(args: &[&str]) -> Result<ExitCode, Failure> {
    let (mut rounds, mut seed, mut peers) = (1, Dice::random_seed(), PEERS.to_vec());
    for pair in args.chunks(2) {
        match *pair {
            ["--rounds", value] => rounds = value.parse()?,
            ["--seed", value] => seed = value.parse()?,
            ["--peer", value] => peers.retain(|peer| *peer == value),
            _ => return Err("--rounds, --seed and --peer are known, each with a value".into()),
        }
    }
    let program = std::env::current_exe()?;
    println!(
        "{:17} {:>10} {:>7} {:>18} {:>14} {:>13} {:>17} {:>9}",
        "",
        "operations",
        "faults",
        "exclusion violated",
        "waits too long",
        "lost wake-ups",
        "hand-over p50, us",
        "p99, us"
    );
    for peer in peers {
        let figures = compare(peer, rounds, seed, &program)?;
        let of = |invariant: &str| figures.violations.get(invariant).copied().unwrap_or(0);
        println!(
            "{peer:17} {:>10} {:>7} {:>18} {:>14} {:>13} {:>17} {:>9}",
            figures.operations,
            figures.all_faults(),
            of("I1 exclusion"),
            of("I12 limits"),
            of("I7 wake-ups"),
            figures.hand_over_p50,
            figures.hand_over_p99,
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn compare(peer: &str, rounds: u64, seed: u64, program: &Path) -> Result<Figures, Failure> {
    let mut sum = Figures::default();
    // Seeds of a server that keeps what it acknowledged: what forgets is nobody's fault.
    for seed in (seed..).filter(|seed| seed % 4 < 2).take(rounds as usize) {
        let engine = format!("{PEER}{peer}");
        let round = Round { engine: &engine, seed, time: Duration::from_secs(38), program };
        sum.add(&round.run(|_| ())?.figures);
    }
    Ok(sum)
}

async fn work<P: Peer>(orders: Orders) -> Result<(), Failure> {
    let recorder = Arc::new(Recorder::to_file(orders.run, &orders.history)?);
    let _pulse = Pulse::begin(Arc::clone(&recorder), std::process::id());
    let peer = loop {
        match timeout(PATIENCE, P::connect(&orders.url)).await {
            Ok(Ok(peer)) => break Arc::new(peer),
            // Its server may be away just now.
            _ if now_nanos() < orders.until => sleep(RETRY).await,
            _ => return Ok(()),
        }
    };
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (peer, recorder) = (Arc::clone(&peer), Arc::clone(&recorder));
            let (mut dice, until) = (Dice::new(orders.seed, task + 1), orders.until);
            tokio::spawn(async move {
                while now_nanos() < until {
                    once(&*peer, &recorder, task as u32, &mut dice).await;
                    sleep(dice.millis(1..4)).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    Ok(())
}

async fn once<P: Peer>(peer: &P, recorder: &Recorder, task: u32, dice: &mut Dice) {
    let name = *dice.pick(&NAMES);
    let limit = Some(LIMIT.as_nanos() as u64);
    let attempt = recorder.attempt(task, name, Mode::Exclusive, limit);
    let hold = match peer.acquire(name, LIMIT).await {
        Ok(Some(hold)) => hold,
        Ok(None) => return attempt.taken(),
        Err(_) => return attempt.unknown("Unreachable"),
    };
    let left = |hold: &P::Hold| P::left(hold).map(|left| left.as_nanos() as u64);
    // The crates have no tokens: the time tells the order as well as they would.
    let token = Token { lineage: Lineage::new(0), number: now_nanos() };
    let ttl_nanos = Some(TTL.as_nanos() as u64);
    let belief = attempt.granted(Granted { token, ttl_nanos, watched: false, fixed: false }, || left(&hold));
    let end = Instant::now() + if dice.percent(1) { dice.millis(100..600) } else { dice.millis(0..8) };
    loop {
        if !belief.check(|| P::is_held(&hold), || left(&hold)) {
            belief.lost("told");
            break;
        }
        let rest = end.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break;
        }
        sleep(rest.min(LOOK)).await;
    }
    let leaving = belief.releasing(None);
    // A crate that bounds no request would wait for ever on a connection that fell silent.
    match timeout(PATIENCE, peer.release(hold)).await {
        Ok(Ok(())) => leaving.freed(),
        _ => leaving.unknown("Unreachable"),
    }
}
