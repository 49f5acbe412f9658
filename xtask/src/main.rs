//! The project's own chores. `cargo xtask check` runs every check, `cargo xtask test` sets up, checks and tests,
//! `cargo xtask torture` breaks an engine and says whether it kept its promises, `cargo xtask mutants` breaks our code and says
//! whether the suite finds it.

mod check;
mod mutants;
mod own_rules;
mod run;
mod setup;
mod test;
mod workspace;

use std::process::ExitCode;

use run::{Failure, Steps};
use workspace::Workspace;

/// The chores, as typed: the README may name these and no others.
const CHORES: [&str; 4] = ["check", "test", "torture", "mutants"];

fn main() -> ExitCode {
    let mut steps = Steps::default();
    let typed: Vec<String> = std::env::args().skip(1).collect();
    let ended = match typed.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => Workspace::find().and_then(|workspace| check_chore(&mut steps, &workspace)),
        ["test"] => Workspace::find().and_then(|workspace| test_chore(&mut steps, &workspace)),
        ["torture", ref orders @ ..] => return torture(orders),
        ["mutants", ref words @ ..] => {
            Workspace::find().and_then(|workspace| mutants::gate(&mut steps, &workspace, words))
        }
        _ => {
            eprintln!("usage: cargo xtask {}", CHORES.join(" | "));
            return ExitCode::from(64);
        }
    };
    steps.print_times();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Faults on a real engine, by `leasehold-e2e`, whose words and exit code are the answer.
fn torture(orders: &[&str]) -> ExitCode {
    let status = Workspace::find().map(|workspace| {
        let mut run = workspace.cargo("run");
        run.args(["--quiet", "--release", "--locked", "-p", "leasehold-e2e", "--", "torture"]).args(orders);
        run.status()
    });
    match status {
        Ok(Ok(status)) => {
            status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
        }
        Ok(Err(error)) => {
            eprintln!("xtask: cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn check_chore(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    setup::for_checks(steps, workspace)?;
    check::all(steps, workspace)
}

fn test_chore(steps: &mut Steps, workspace: &Workspace) -> Result<(), Failure> {
    setup::for_tests(steps, workspace)?;
    check_chore(steps, workspace)?;
    test::all(steps, workspace)
}
