//! The search program. Searches the worlds of the model, and prints the results.
//!
//! `cargo run --release -p leasehold-model`, or with the names of some runs behind `--`; `--list` prints all names.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use leasehold_model::{Event, LARGE, MISTAKES, Run, SMALL, SearchResult};

/// How often the progress of a long run is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let groups = [("the protocol", SMALL), ("the protocol, further", LARGE), ("with a mistake", MISTAKES)];
    if names == ["--list"] {
        groups.iter().flat_map(|(_, runs)| *runs).for_each(|run| println!("{}", run.name));
        return ExitCode::SUCCESS;
    }
    let (mut event_counts, mut complaints) = ([0; Event::ALL.len()], Vec::new());
    for (title, runs) in groups {
        println!("\n{title:<36} {:>12} {:>6} {:>9}  result", "worlds", "depth", "seconds");
        for run in runs.iter().filter(|run| names.is_empty() || names.iter().any(|name| name == run.name)) {
            let result = run.search(progress(run.name));
            println!("{}", summary(run, &result));
            for (count, event) in event_counts.iter_mut().zip(Event::ALL) {
                *count += result.events.count(event);
            }
            complaints
                .extend(run.complaints(&result).into_iter().map(|what| format!("{}: {what}", run.name)));
        }
    }
    println!("\nseen on the way");
    for (count, event) in event_counts.iter().zip(Event::ALL) {
        println!("{:<36} {count:>12}", format!("{event:?}"));
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

fn summary(run: &Run, result: &SearchResult) -> String {
    let names: Vec<&str> = result.broken.keys().copied().collect();
    let verdict = match (run.complaints(result).is_empty(), names.is_empty()) {
        (true, true) => "holds".to_owned(),
        (true, false) => format!("breaks, as it must: {}", names.join(", ")),
        (false, _) => format!("NOT AS EXPECTED: {}", names.join(", ")),
    };
    let seconds = result.took.as_secs_f64();
    format!("{:<36} {:>12} {:>6} {seconds:>9.1}  {verdict}", run.name, result.worlds, result.depth)
}
