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
    etcd::{self, CLUSTER},
    figures::Figures,
    redis,
    rng::Rng,
    round::{Outcome, Round, promise_of},
    speed::EngineSpeed,
    totals::Totals,
    verdict::judge,
    world::Promise,
};

/// The length of a round: several storms, and a history that can be checked within seconds.
const ROUND: Duration = Duration::from_secs(38);
/// The default directory for figures and for the histories of failed rounds.
const DEFAULT_DIR: &str = "target/torture";

/// The command line, parsed.
struct Typed {
    engine: String,
    minutes: f64,
    seed: u64,
    sum: bool,
    dir: PathBuf,
    judge: Option<PathBuf>,
}

/// Runs the program. Returns 0 if every round held, and 1 after a violation or an undecided segment.
///
/// # Errors
/// When a round cannot be run.
pub fn main(args: &[&str]) -> Result<ExitCode, Failure> {
    let typed = parse(args)?;
    if let Some(history) = &typed.judge {
        return judge_again(&typed.engine, history);
    }
    let totals = Totals::of(&typed.dir, &typed.engine);
    if typed.sum {
        let sum = totals.sum()?;
        println!("{sum}");
        return Ok(if sum.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let program = std::env::current_exe()?;
    let begin = Instant::now();
    let wanted = Duration::from_secs_f64(typed.minutes * 60.0);
    let mut sum = Figures::default();
    for seed in typed.seed.. {
        let time = ROUND.min(wanted.saturating_sub(begin.elapsed()));
        let round = Round { engine: &typed.engine, seed, time, program: &program };
        let outcome = round.run(|faults| progress(&sum, seed, begin.elapsed(), faults))?;
        sum.add(&outcome.figures);
        totals.add(&outcome.figures)?;
        complain(&outcome, seed, &typed.dir)?;
        if begin.elapsed() + ROUND / 2 > wanted {
            break;
        }
    }
    eprintln!();
    println!("{sum}");
    Ok(if sum.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(args: &[&str]) -> Result<Typed, Failure> {
    let mut typed = Typed {
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
            "--engine" => typed.engine = (*value()?).to_owned(),
            "--minutes" => typed.minutes = value()?.parse()?,
            "--seed" => typed.seed = value()?.parse()?,
            "--sum" => typed.sum = true,
            "--keep" => typed.dir = (*value()?).into(),
            "--judge" => typed.judge = Some(value()?.into()),
            _ => {
                let known = "--engine, --minutes, --seed, --sum, --keep and --judge are known";
                return Err(format!("unknown option: {arg}; {known}").into());
            }
        }
    }
    if typed.engine.is_empty() {
        return Err(
            "--engine is missing: redis, redis-redisson, redis-sentinel, redis-cluster, redlock, etcd, etcd-cluster, \
             zookeeper, zookeeper-ensemble, postgres, mariadb, mysql, sqlite, file or memory"
                .into(),
        );
    }
    Ok(typed)
}

/// Judges the saved history of a failed round again, with the current checker.
fn judge_again(engine: &str, history: &Path) -> Result<ExitCode, Failure> {
    let history = History::merge([history])?;
    let seed = history.events().first().map_or(0, |event| event.run);
    let promise = match engine {
        "redis" => promise_of(seed),
        redis::SENTINEL | redis::CLUSTER => redis::promise_of_many(seed),
        CLUSTER => etcd::promise_of(seed),
        _ => Promise::Exclusion,
    };
    let (figures, complaints) = judge(history.events(), promise, EngineSpeed::of(engine));
    println!("{}\n{figures}", complaints.join("\n"));
    Ok(if figures.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

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

/// Prints the violations, and saves the history of the round.
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
