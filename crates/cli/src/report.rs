//! The report of `run`, `elect` or `once` (`--report`): one line of JSON at the end of the run, for scripts.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use leasehold::{Guard, Token};

use crate::{event_loop::now, exit::Failure, holds::Holds, json, plan::Run, spawn::duplicate};

/// Where the report goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// This file. The report replaces its contents.
    Path(PathBuf),
    /// This open file descriptor of leasehold. The report is appended to it.
    Descriptor(i32),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("fd:") {
            None if text.is_empty() => Err("it is empty: write a path, or fd:3 for the descriptor 3".into()),
            None => Ok(Self::Path(text.into())),
            Some(number) => {
                number.parse::<u16>().map(|number| Self::Descriptor(number.into())).map_err(|_| {
                    "fd: is followed by the number of an open descriptor: write fd:3, or ./fd:x for a file"
                        .into()
                })
            }
        }
    }
}

/// A report that is still to be written.
pub(crate) struct Report {
    file: File,
    /// Whether the report replaces what the file has.
    replaces: bool,
    /// The token of the first name, and all holds as JSON.
    holds: RefCell<Option<(Token, String)>>,
}

impl Report {
    /// Opens the target, so that a run whose report cannot be written does not begin.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn open(target: &Target) -> io::Result<Self> {
        let file = match target {
            Target::Path(path) => OpenOptions::new().write(true).create(true).truncate(false).open(path)?,
            Target::Descriptor(number) => duplicate(*number)?,
        };
        // A pipe or a terminal has no contents to replace.
        let replaces = matches!(target, Target::Path(_)) && file.metadata()?.is_file();
        Ok(Self { file, replaces, holds: RefCell::default() })
    }

    /// Records that the names were granted.
    pub(crate) fn granted(&self, plan: &Run, holds: Holds<'_>) {
        let own = holds.iter().find(|guard| *guard.name() == plan.name).map(Guard::token);
        self.holds.replace(own.map(|token| (token, json::holds(holds))));
    }

    /// Writes the report of a run that has ended.
    ///
    /// # Errors
    /// An error of the operating system.
    pub(crate) fn write(&self, plan: &Run, engine: &str, result: &Result<u8, Failure>) -> io::Result<()> {
        let end = now();
        let holds = self.holds.borrow();
        let line = json::report(&Line {
            name: plan.name.as_str(),
            engine,
            outcome: plan.course.outcome(result).as_str(),
            exit: result.as_ref().map_or_else(|failure| failure.code, |code| *code),
            lost: result.as_ref().err().and_then(|failure| failure.loss).map(|loss| loss.to_string()),
            waited: plan.course.waited(end),
            held: plan.course.held(end),
            token: holds.as_ref().map(|(token, _)| *token),
            holds: holds.as_ref().map(|(_, holds)| holds.as_str()),
            message: result.as_ref().err().and_then(|failure| failure.message.as_deref()),
        });
        if self.replaces {
            self.file.set_len(0)?;
        }
        (&self.file).write_all(line.as_bytes())
    }
}

/// What the line says.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) engine: &'a str,
    pub(crate) outcome: &'static str,
    pub(crate) exit: u8,
    /// Why the hold was lost.
    pub(crate) lost: Option<String>,
    /// `None`: it is not known.
    pub(crate) waited: Option<Duration>,
    pub(crate) held: Option<Duration>,
    /// The token of `name`.
    pub(crate) token: Option<Token>,
    /// All holds, as JSON.
    pub(crate) holds: Option<&'a str>,
    pub(crate) message: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_path_or_a_descriptor() {
        assert_eq!("fd:3".parse(), Ok(Target::Descriptor(3)));
        assert_eq!("./fd:3".parse(), Ok(Target::Path("./fd:3".into())));
        assert_eq!("/a b".parse(), Ok(Target::Path("/a b".into())));
        for wrong in ["", "fd:", "fd:-1", "fd:x", "fd:3 "] {
            assert!(wrong.parse::<Target>().is_err(), "{wrong}");
        }
    }
}
