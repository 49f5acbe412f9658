//! `leasehold completions`: prints the completions for a shell.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::print;
use crate::{
    args::{self, Args},
    exit::Failure,
};

/// Prints the completions.
pub(crate) fn completions(args: &args::Completions) -> Result<u8, Failure> {
    let shell = match args.shell {
        args::Shell::Bash => Shell::Bash,
        args::Shell::Zsh => Shell::Zsh,
        args::Shell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    generate(shell, &mut Args::command(), "leasehold", &mut text);
    print(&String::from_utf8_lossy(&text))
}
