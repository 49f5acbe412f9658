//! The seeded simulation: `cargo run --release -p leasehold-sim -- --seeds 1000 --from 1`.

mod args;

use std::{
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use args::Args;
use leasehold_sim::{Outcome, Plan, Tally, reduce, run};

/// How often the progress line is rewritten.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);
/// The number of failing seeds whose violations are printed. Of the other failing seeds only the seed is printed.
const MAX_SHOWN: usize = 3;

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

/// The results of the seeds so far.
struct Results {
    begin: Instant,
    /// When the progress line was last written.
    reported: Instant,
    total: Tally,
    failed: Vec<u64>,
}

/// Runs many seeds, on the number of threads in `args`. Returns whether any seed had a violation.
fn explore(args: &Args) -> bool {
    let next = AtomicU64::new(args.from);
    let begin = Instant::now();
    let results = Mutex::new(Results { begin, reported: begin, total: Tally::default(), failed: Vec::new() });
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= args.from + args.seeds {
                return;
            }
            let outcome = run(&args.plan(seed), false);
            results.lock().unwrap_or_else(PoisonError::into_inner).add(args, seed, &outcome);
        }
    };
    thread::scope(|scope| {
        (1..args.jobs).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner).report()
}

impl Results {
    /// Adds the outcome of a seed.
    fn add(&mut self, args: &Args, seed: u64, outcome: &Outcome) {
        self.total.add(&outcome.tally);
        if !outcome.complaints.is_empty() {
            if self.failed.len() < MAX_SHOWN {
                print_complaints(seed, outcome);
            }
            self.failed.push(seed);
        }
        if self.reported.elapsed() > PROGRESS_INTERVAL {
            self.reported = Instant::now();
            let interval = self.total.runs as f64 / self.begin.elapsed().as_secs_f64() * 60.0;
            eprint!(
                "\r{}/{} seeds, {interval:.0} a minute, {:.1} simulated hours, {} violated ",
                self.total.runs,
                args.seeds,
                self.total.simulated.as_secs_f64() / 3600.0,
                self.failed.len()
            );
        }
    }

    /// Prints the sums. Returns whether any seed had a violation.
    fn report(mut self) -> bool {
        eprintln!();
        print!("{}", self.total);
        println!("{:<28} {:.1} s", "real time", self.begin.elapsed().as_secs_f64());
        if !self.failed.is_empty() {
            self.failed.sort_unstable();
            println!("seeds that violated: {:?}; `--replay SEED` prints one of them", self.failed);
        }
        !self.failed.is_empty()
    }
}

/// Prints the events of one seed. If the seed has a violation, also prints the reduced plan and its events, and returns
/// true.
fn replay(args: &Args, seed: u64) -> bool {
    let plan = args.plan(seed);
    let Some(small) = reduce(&plan) else {
        report(seed, &plan);
        println!("seed {seed}: nothing is violated");
        return false;
    };
    report(seed, &plan);
    println!("\nreduced from {} acquisitions to {}:\n", plan.ops(), small.ops());
    report(seed, &small);
    true
}

/// Prints a plan, its events and its violations.
fn report(seed: u64, plan: &Plan) {
    println!("{plan}");
    let outcome = run(plan, true);
    let is_shown = |line: &&String| !line.ends_with(" goes on") && !line.contains(" Truth {");
    outcome.trace.iter().filter(is_shown).for_each(|line| println!("{line}"));
    print_complaints(seed, &outcome);
}

/// Prints the violations of a seed.
fn print_complaints(seed: u64, outcome: &Outcome) {
    for complaint in &outcome.complaints {
        println!("seed {seed}: {complaint}");
    }
}
