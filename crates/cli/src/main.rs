//! The `leasehold` command: the arguments as typed (`args`), what they mean (`plan`), one file for each command
//! (`cmd`), and the exit codes (`exit`). `run`, `elect` and `once` run CMD, and share more modules: `front` (the two
//! processes), `signals` and `event_loop`, `nested`, `acquire` and `holds` (the lock), `progress` and `log` (the
//! messages during the run), `report` (the line of JSON at its end), `start`, `spawn`, `terminal`, `capture`, `child`
//! and `tree` (CMD), `cgroup`, `leaf`, `delegation` and `sweep` (CMD's control group), `enforce` (a pure machine that
//! decides when CMD must stop), and `supervise`, which uses all of these.

mod acquire;
mod args;
mod capture;
mod cgroup;
mod child;
mod cmd;
mod delegation;
mod enforce;
mod engines;
mod event_loop;
mod exit;
mod front;
mod help;
mod holds;
mod json;
mod leaf;
mod log;
#[cfg(test)]
mod man;
mod nested;
mod orphan;
mod plan;
mod progress;
mod report;
mod signals;
mod source;
mod spawn;
mod start;
mod supervise;
mod sweep;
mod terminal;
mod text;
mod tree;
mod usage;
mod warnings;

use std::process::ExitCode;

use clap::Parser;

use crate::{
    args::{Args, Command},
    exit::Failure,
};

fn main() -> ExitCode {
    let result = Args::try_parse().map_err(usage::parse_failure).and_then(dispatch);
    log::flush();
    let code = match result {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.code
        }
    };
    ExitCode::from(code)
}

fn dispatch(args: Args) -> Result<u8, Failure> {
    let Args { url, require_url, command } = args;
    let url = move || plan::url(url, require_url);
    match command {
        Command::Run(run) => cmd::run::run(plan::Run::new(*run, url)?),
        Command::Elect(elect) => cmd::run::run(plan::Run::of_elect(*elect, url)?),
        Command::Once(once) => cmd::run::run(plan::Run::of_once(*once, url)?),
        Command::Leader(leader) => cmd::leader::leader(&leader, &url()?),
        Command::List(list) => cmd::list::list(&list, &url()?),
        Command::Show(show) => cmd::show::show(&show, &url()?),
        Command::Break(args) => cmd::break_::break_(&args, &url()?),
        Command::Schema => cmd::schema::schema(&url()?),
        Command::Completions(args) => cmd::completions::completions(&args),
    }
}
