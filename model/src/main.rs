//! The search program: searches the worlds of the model, and prints the results.
//!
//! `cargo run --release -p leasehold-model`, or with the names of some runs behind `--`; `--list` prints all names.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use leasehold_model::{Found, LARGE, MISTAKES, Run, SMALL, Sight};

/// How often the progress of a long run is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let parts = [("the protocol", SMALL), ("the protocol, further", LARGE), ("with a mistake", MISTAKES)];
    if names == ["--list"] {
        parts.iter().flat_map(|(_, runs)| *runs).for_each(|run| println!("{}", run.name));
        return ExitCode::SUCCESS;
    }
    let (mut seen, mut complaints) = ([0; Sight::ALL.len()], Vec::new());
    for (title, runs) in parts {
        println!("\n{title:<36} {:>12} {:>6} {:>9}  result", "worlds", "depth", "seconds");
        for run in runs.iter().filter(|run| names.is_empty() || names.iter().any(|name| name == run.name)) {
            let found = run.search(progress(run.name));
            println!("{}", summary(run, &found));
            for (count, sight) in seen.iter_mut().zip(Sight::ALL) {
                *count += found.sights.count(sight);
            }
            complaints.extend(run.complaints(&found).into_iter().map(|what| format!("{}: {what}", run.name)));
        }
    }
    println!("\nseen on the way");
    for (count, sight) in seen.iter().zip(Sight::ALL) {
        println!("{:<36} {count:>12}", format!("{sight:?}"));
    }
    complaints.iter().for_each(|complaint| eprintln!("\n{complaint}"));
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn progress(name: &str) -> impl FnMut(usize, usize) {
    let mut reported_at = Instant::now();
    move |worlds, depth| {
        if reported_at.elapsed() >= PROGRESS_INTERVAL {
            reported_at = Instant::now();
            eprintln!("{name}: {worlds} worlds, up to {depth} steps away");
        }
    }
}

fn summary(run: &Run, found: &Found) -> String {
    let names: Vec<&str> = found.broken.keys().copied().collect();
    let result = match (run.complaints(found).is_empty(), names.is_empty()) {
        (true, true) => "holds".to_owned(),
        (true, false) => format!("breaks, as it must: {}", names.join(", ")),
        (false, _) => format!("NOT AS EXPECTED: {}", names.join(", ")),
    };
    let seconds = found.took.as_secs_f64();
    format!("{:<36} {:>12} {:>6} {seconds:>9.1}  {result}", run.name, found.worlds, found.depth)
}
