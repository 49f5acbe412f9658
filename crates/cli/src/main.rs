//! The `leasehold` command: the arguments as typed (`args`), what they mean (`plan`), one file for each command
//! (`cmd`), and the exit codes (`exit`). `run`, `elect` and `once` run CMD, and share more modules: `front` (the two
//! processes), `signals` and `event_loop`, `nested`, `actor`, `cycle_check`, `acquire` and `holds` (the lock),
//! `progress` and `log` (the messages during the run), `course`, `report` and `metrics_file` (what scripts and
//! Prometheus are told of the run), `start`, `spawn`, `terminal`, `capture`, `child` and `tree` (CMD), `on_lost` (the
//! shell that runs at a loss), `cgroup`, `leaf`, `delegation` and `sweep` (CMD's control group), `enforce` (a pure
//! machine that decides when CMD must stop), and `supervise`, which uses all of these. `acquire`, `renew`, `check` and
//! `release` share `handle`; `holder` is the process that renews a hold of `acquire --while-pid`. `doctor` examines an
//! engine. `watch` and `top` show what changes: both use `looker`, the modules of the same names have the rest.

mod acquire;
mod actor;
mod after_break;
mod args;
mod capture;
mod cgroup;
mod child;
mod cmd;
mod course;
mod cycle_check;
mod delegation;
mod doctor;
mod enforce;
mod engines;
mod event_loop;
mod exit;
mod front;
mod handle;
mod help;
mod holder;
mod holds;
mod json;
mod leaf;
mod log;
mod looker;
#[cfg(test)]
mod man;
mod metrics_file;
mod nested;
mod on_lost;
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
#[cfg(feature = "top")]
mod top;
mod tree;
mod usage;
mod warnings;
mod watch;

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
    let Args { url: urls, require_url, command } = args;
    let flags = urls.clone();
    let given = move || plan::given(plan::only(flags)?, require_url);
    let flags = urls.clone();
    let url = move || plan::url(plan::only(flags)?, require_url);
    match command {
        Command::Run(run) => cmd::run::run(plan::Run::new(*run, given)?),
        Command::Elect(elect) => cmd::run::run(plan::Run::of_elect(*elect, given)?),
        Command::Once(once) => cmd::run::run(plan::Run::of_once(*once, given)?),
        Command::Leader(leader) => cmd::leader::leader(&leader, &url()?),
        Command::Acquire(acquire) => cmd::acquire::acquire(*acquire, given),
        Command::Renew(renew) => cmd::renew::renew(&renew, given),
        Command::Check(check) => cmd::check::check(&check, given),
        Command::Release(release) => cmd::release::release(&release, given),
        Command::List(list) => cmd::list::list(&list, &given()?),
        Command::Show(show) => cmd::show::show(&show, &given()?),
        Command::Break(args) => cmd::break_::break_(&args, &given()?),
        Command::Doctor(doctor) => cmd::doctor::doctor(&doctor, &plan::urls(urls, require_url)?),
        #[cfg(feature = "serve")]
        Command::Serve(args) => cmd::serve::serve(*args, urls, require_url),
        Command::Watch(watch) => cmd::watch::watch(&watch, &given()?),
        #[cfg(feature = "top")]
        Command::Top(top) => cmd::top::top(&top, &given()?),
        Command::Schema => cmd::schema::schema(&url()?),
        Command::Completions(args) => cmd::completions::completions(&args),
    }
}
