//! The comparing program: runs rounds of each peer from the same seeds, and prints a line of figures for each peer and
//! one example of each violation.

use std::{collections::BTreeMap, path::Path, time::Duration};

use leasehold_e2e::{
    Failure,
    figures::Figures,
    rng::Rng,
    round::{Outcome, PEER, PEER_OF_THREE, Round},
};
use leasehold_testkit::history::History;

use crate::{
    peer::{NAMES, OF_THREE, version},
    unreported,
};

/// The length of a round: several storms.
const ROUND: Duration = Duration::from_secs(38);
/// The invariants that are compared. Most crates promise nothing about the others, such as tokens.
const COMPARED: [&str; 3] = ["I1 exclusion", "I12 limits", "I7 wake-ups"];
/// The column that does not come from the checker.
const UNREPORTED: &str = "unreported losses";

/// The parsed arguments.
struct Typed {
    rounds: usize,
    seed: u64,
    /// The prefix of the engine's name before the name of the peer, and the name of the peer.
    peers: Vec<(&'static str, &'static str)>,
}

/// The results of one peer.
#[derive(Default)]
struct Findings {
    figures: Figures,
    unreported: usize,
    examples: BTreeMap<&'static str, String>,
}

/// Prints a line for each peer, and then the examples.
pub(crate) fn main(args: &[&str]) -> Result<(), Failure> {
    let typed = parse(args)?;
    let program = std::env::current_exe()?;
    println!(
        "{:32} {:>10} {:>7} {:>6} {:>18} {:>15} {:>16} {:>13} {:>15} {:>15}",
        "",
        "operations",
        "grants",
        "faults",
        "exclusion violated",
        UNREPORTED,
        "waits over limit",
        "lost wake-ups",
        "hand-over, p50",
        "p99, us"
    );
    let mut all = Vec::new();
    for (engine, peer) in typed.peers {
        let findings = compare(&format!("{engine}{peer}"), typed.rounds, typed.seed, &program)?;
        let figures = &findings.figures;
        let [exclusion, limits, wake_ups] =
            COMPARED.map(|kind| figures.violations.get(kind).copied().unwrap_or(0));
        println!(
            "{:32} {:>10} {:>7} {:>6} {exclusion:>18} {:>15} {limits:>16} {wake_ups:>13} {:>15} {:>15}",
            title(engine, peer),
            figures.operations,
            figures.grants,
            figures.all_faults(),
            findings.unreported,
            figures.hand_over_p50,
            figures.hand_over_p99,
        );
        all.push((title(engine, peer), findings.examples));
    }
    for (title, examples) in all {
        for (kind, example) in examples {
            println!("\n{title}, {kind}: for example\n{example}");
        }
    }
    Ok(())
}

fn title(engine: &str, peer: &str) -> String {
    let servers = if engine == PEER_OF_THREE { ", 3 masters" } else { "" };
    format!("{peer} {}{servers}", version(peer).unwrap_or_default())
}

fn parse(args: &[&str]) -> Result<Typed, Failure> {
    let mut typed = Typed { rounds: 1, seed: Rng::random_seed(), peers: peers() };
    for pair in args.chunks(2) {
        match *pair {
            ["--rounds", value] => typed.rounds = value.parse()?,
            ["--seed", value] => typed.seed = value.parse()?,
            ["--peer", value] if NAMES.contains(&value) => typed.peers.retain(|(_, peer)| *peer == value),
            _ => {
                return Err(format!("--rounds N, --seed S and --peer {} are known", NAMES.join("|")).into());
            }
        }
    }
    Ok(typed)
}

fn peers() -> Vec<(&'static str, &'static str)> {
    let of_one = NAMES.into_iter().map(|peer| (PEER, peer));
    of_one.chain(OF_THREE.into_iter().map(|peer| (PEER_OF_THREE, peer))).collect()
}

fn compare(engine: &str, rounds: usize, seed: u64, program: &Path) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    // Seeds of rounds whose server loses nothing that it acknowledged: no crate is responsible for the locks that a
    // server loses.
    for seed in (seed..).filter(|seed| seed % 4 < 2).take(rounds) {
        let round = Round { engine, seed, time: ROUND, program };
        findings.add(&round.run(|_| ())?)?;
    }
    Ok(findings)
}

impl Findings {
    fn add(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        self.figures.add(&outcome.figures);
        for complaint in &outcome.complaints {
            let kind = COMPARED.into_iter().find(|kind| complaint.starts_with(&format!("{kind}\n")));
            if let (Some(kind), Some((_, example))) = (kind, complaint.split_once('\n')) {
                self.examples.entry(kind).or_insert_with(|| example.to_owned());
            }
        }
        // The history is stored if there is a complaint. An unreported loss is one, because two clients then hold at
        // once.
        let history = outcome.dir.path().join("history.jsonl");
        if history.exists() {
            let unreported = unreported::losses(History::merge([history])?.events());
            self.unreported += unreported.len();
            if let Some(example) = unreported.into_iter().next() {
                self.examples.entry(UNREPORTED).or_insert(example);
            }
        }
        Ok(())
    }
}
