//! `cargo xtask torture --engine redis --minutes 20 --seed 1`: rounds with consecutive seeds, a line of progress, and a
//! table of figures.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use leasehold_testkit::history::History;

use crate::{
    Failure,
    figures::Figures,
    rng::Rng,
    round::{ENGINES, Outcome, Round, promise_of},
    speed::EngineSpeed,
    totals::Totals,
    verdict::judge,
};

/// The length of a round: long enough for several storms, and short enough that the history is checked within seconds.
const ROUND_LENGTH: Duration = Duration::from_secs(38);
/// The default directory for figures and for the histories of failed rounds.
const DEFAULT_DIR: &str = "target/torture";

/// The command line, parsed.
struct Options {
    engine: String,
    minutes: f64,
    seed: u64,
    /// Whether the program only prints the sums of all rounds so far.
    sum: bool,
    /// The directory of figures and histories.
    dir: PathBuf,
    /// A saved history to judge again.
    judge: Option<PathBuf>,
}

/// Runs the program. Returns 0 if no round had a violation and the checker gave up on no lock; otherwise returns 1.
///
/// # Errors
/// When a round cannot be run.
pub fn main(args: &[&str]) -> Result<ExitCode, Failure> {
    let options = parse(args)?;
    if let Some(history) = &options.judge {
        return judge_again(&options.engine, history);
    }
    let totals = Totals::of(&options.dir, &options.engine);
    if options.sum {
        let sum = totals.sum()?;
        println!("{sum}");
        return Ok(if sum.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let program = std::env::current_exe()?;
    let begin = Instant::now();
    let run_time = Duration::from_secs_f64(options.minutes * 60.0);
    let mut sum = Figures::default();
    for seed in options.seed.. {
        let time = ROUND_LENGTH.min(run_time.saturating_sub(begin.elapsed()));
        let round = Round { engine: &options.engine, seed, time, program: &program };
        let outcome = round.run(|faults| progress(&sum, seed, begin.elapsed(), faults))?;
        sum.add(&outcome.figures);
        totals.add(&outcome.figures)?;
        complain(&outcome, seed, &options.dir)?;
        if begin.elapsed() + ROUND_LENGTH / 2 > run_time {
            break;
        }
    }
    eprintln!();
    println!("{sum}");
    Ok(if sum.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Parses the command line.
fn parse(args: &[&str]) -> Result<Options, Failure> {
    let mut options = Options {
        engine: String::new(),
        minutes: 1.0,
        seed: Rng::random_seed(),
        sum: false,
        dir: DEFAULT_DIR.into(),
        judge: None,
    };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg {
            "--engine" => options.engine = (*value()?).to_owned(),
            "--minutes" => options.minutes = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--sum" => options.sum = true,
            "--keep" => options.dir = (*value()?).into(),
            "--judge" => options.judge = Some(value()?.into()),
            _ => {
                let known = "--engine, --minutes, --seed, --sum, --keep and --judge are known";
                return Err(format!("unknown option: {arg}; {known}").into());
            }
        }
    }
    if options.engine.is_empty() {
        return Err(format!("--engine is missing: {}", ENGINES.join(", ")).into());
    }
    Ok(options)
}

/// Judges the saved history of a failed round again, with the current checker.
fn judge_again(engine: &str, history: &Path) -> Result<ExitCode, Failure> {
    let history = History::merge([history])?;
    let seed = history.events().first().map_or(0, |event| event.run);
    let (figures, complaints) = judge(history.events(), promise_of(engine, seed), EngineSpeed::of(engine));
    println!("{}\n{figures}", complaints.join("\n"));
    Ok(if figures.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the line of progress on a terminal.
fn progress(sum: &Figures, seed: u64, passed: Duration, faults: u64) {
    let mut err = std::io::stderr().lock();
    if err.is_terminal() {
        let (operations, before) = (sum.operations, sum.all_faults());
        let _ = write!(
            err,
            "\rround {} of seed {seed}: {:.0} s, {operations} operations checked, {} faults, {} violations ",
            sum.rounds + 1,
            passed.as_secs_f64(),
            before + faults,
            sum.all_violations(),
        );
    }
}

/// Prints a summary of the round. If the round had violations, also prints them, and saves the history of the round.
fn complain(outcome: &Outcome, seed: u64, dir: &Path) -> Result<(), Failure> {
    let figures = &outcome.figures;
    eprintln!(
        "\nseed {seed}: {} operations, {} faults, {} violations",
        figures.operations,
        figures.all_faults(),
        figures.all_violations()
    );
    if figures.holds() {
        return Ok(());
    }
    for complaint in &outcome.complaints {
        eprintln!("{complaint}");
    }
    let saved = dir.join(format!("{}-{seed}.jsonl", figures.engine));
    std::fs::copy(outcome.dir.path().join("history.jsonl"), &saved)?;
    eprintln!("the history is {}", saved.display());
    Ok(())
}
