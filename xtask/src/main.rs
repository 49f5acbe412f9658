//! The project's tasks. `cargo xtask quick` is for after each save. `cargo xtask test` installs what is needed, checks
//! and tests before a change lands; `cargo xtask nightly` runs the checks, tests and measurements that take longer.
//! `cargo xtask check` runs only the checks. `cargo xtask torture` injects faults into an engine and reports whether it
//! kept its promises. `cargo xtask mutants` injects bugs into our code and reports whether the tests find them. `cargo
//! xtask pictures` and `cargo xtask book` render parts of the documentation. `cargo xtask packages` checks what a
//! release uploads; `cargo xtask api` compares the public API with its listing. `cargo xtask deb` builds the Debian
//! package and tries it; `cargo xtask static` does so with a static program. `cargo xtask python` builds the wheel of
//! the Python module and tests it. `cargo xtask draw SEED [FOLDER]` draws lines of code for a test of their names.

mod api;
mod book;
mod chart;
mod check;
mod deb;
mod draw;
mod mutants;
mod nightly;
mod own_rules;
mod packages;
mod pictures;
mod python;
mod rerun;
mod run;
mod setup;
mod side_by_side;
mod static_program;
mod suites;
mod test;
mod tiers;
mod workspace;

use std::process::ExitCode;

use run::{Failure, Steps};
use workspace::Workspace;

/// The tasks, as they are typed. The README may name these tasks and no others.
const CHORES: [&str; 14] = [
    "quick", "check", "test", "nightly", "torture", "mutants", "pictures", "book", "draw", "packages", "api",
    "deb", "static", "python",
];

fn main() -> ExitCode {
    let mut steps = Steps::default();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["quick"] => Workspace::find().and_then(|workspace| test::quick(&mut steps, &workspace)),
        ["check"] => Workspace::find().and_then(|workspace| check_chore(&mut steps, &workspace)),
        ["test"] => Workspace::find().and_then(|workspace| test::all(&mut steps, &workspace)),
        ["nightly", ref arguments @ ..] => {
            Workspace::find().and_then(|workspace| nightly::run(&mut steps, &workspace, arguments))
        }
        ["pictures"] => Workspace::find()
            .and_then(|workspace| steps.step("draw the pictures", || pictures::write(&workspace))),
        ["book"] => Workspace::find().and_then(|workspace| book::build(&mut steps, &workspace)),
        ["packages"] => Workspace::find().and_then(|workspace| packages::check(&mut steps, &workspace)),
        ["deb"] => Workspace::find().and_then(|workspace| deb::build_and_try(&mut steps, &workspace)),
        ["static"] => {
            Workspace::find().and_then(|workspace| static_program::build_and_try(&mut steps, &workspace))
        }
        ["python", "wheel"] => {
            Workspace::find().and_then(|workspace| python::release(&mut steps, &workspace))
        }
        ["python", ref names @ ..] => {
            Workspace::find().and_then(|workspace| python::test(&mut steps, &workspace, names))
        }
        ["api"] => Workspace::find().and_then(|workspace| api::check(&mut steps, &workspace, false)),
        ["api", "--write"] => {
            Workspace::find().and_then(|workspace| api::check(&mut steps, &workspace, true))
        }
        ["draw", seed] => {
            Workspace::find().and_then(|workspace| draw_chore(&mut steps, &workspace, seed, ""))
        }
        ["draw", seed, folder] => {
            Workspace::find().and_then(|workspace| draw_chore(&mut steps, &workspace, seed, folder))
        }
        ["torture", ref arguments @ ..] => return torture(arguments),
        ["mutants", ref arguments @ ..] => {
            Workspace::find().and_then(|workspace| mutants::run(&mut steps, &workspace, arguments))
        }
        _ => {
            eprintln!("usage: cargo xtask {}", CHORES.join(" | "));
            return ExitCode::from(64);
        }
    };
    steps.print_times();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Prints random lines of the sources in a folder. With an empty folder, draws from all sources.
fn draw_chore(steps: &mut Steps, workspace: &Workspace, seed: &str, folder: &str) -> Result<(), Failure> {
    steps.step("draw lines", || {
        let seed = seed.parse().map_err(|_| format!("{seed} is no seed: a whole number"))?;
        draw::print(workspace, seed, folder)
    })
}

/// Runs faults on a real engine, by `leasehold-e2e`. Passes on the output and the exit code of that program.
fn torture(arguments: &[&str]) -> ExitCode {
    let status = Workspace::find().map(|workspace| {
        let mut run = workspace.cargo("run");
        run.args(["--quiet", "--release", "--locked", "-p", "leasehold-e2e", "--", "torture"])
            .args(arguments);
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
