//! The seeded simulation: `cargo run --release -p leasehold-sim -- --seeds 1000 --from 1`.

mod args;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use args::Args;
use leasehold_sim::{Outcome, Plan, Tally, reduce, run};

/// How often the progress line is written anew.
const PROGRESS: Duration = Duration::from_secs(1);
/// Failing seeds that are told in full; the others are named.
const SHOWN: usize = 3;

fn main() -> ExitCode {
    match Args::parse(std::env::args().skip(1)) {
        Ok(args) => {
            let violated = match args.replay {
                Some(seed) => replay(&args, seed),
                None => explore(&args),
            };
            if violated { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(usage) => {
            eprintln!("{usage}");
            ExitCode::from(64)
        }
    }
}

/// Runs many seeds; true if something was violated.
fn explore(args: &Args) -> bool {
    let (begin, mut told) = (Instant::now(), Instant::now());
    let (mut total, mut failed) = (Tally::default(), Vec::new());
    for seed in args.from..args.from + args.seeds {
        let outcome = run(&args.plan(seed), false);
        total.add(&outcome.tally);
        if !outcome.complaints.is_empty() {
            if failed.len() < SHOWN {
                complain(seed, &outcome);
            }
            failed.push(seed);
        }
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            let pace = total.runs as f64 / begin.elapsed().as_secs_f64() * 60.0;
            eprint!(
                "\r{}/{} seeds, {pace:.0} a minute, {:.1} simulated hours, {} violated ",
                total.runs,
                args.seeds,
                total.simulated.as_secs_f64() / 3600.0,
                failed.len()
            );
        }
    }
    eprintln!();
    print!("{total}");
    println!("{:<28} {:.1} s", "real time", begin.elapsed().as_secs_f64());
    if !failed.is_empty() {
        println!("seeds that violated: {failed:?}; `--replay SEED` tells one of them");
    }
    !failed.is_empty()
}

/// Tells what happens in one seed, and what is left of it when it is reduced.
fn replay(args: &Args, seed: u64) -> bool {
    let plan = args.plan(seed);
    let Some(small) = reduce(&plan) else {
        tell(seed, &plan);
        println!("seed {seed}: nothing is violated");
        return false;
    };
    tell(seed, &plan);
    println!("\nreduced from {} acquisitions to {}:\n", plan.ops(), small.ops());
    tell(seed, &small);
    true
}

/// What is planned, what happens, and what is violated.
fn tell(seed: u64, plan: &Plan) {
    println!("{plan}");
    let outcome = run(plan, true);
    let tells = |line: &&String| !line.ends_with(" goes on") && !line.contains(" Truth {");
    outcome.trace.iter().filter(tells).for_each(|line| println!("{line}"));
    complain(seed, &outcome);
}

fn complain(seed: u64, outcome: &Outcome) {
    for complaint in &outcome.complaints {
        println!("seed {seed}: {complaint}");
    }
}
