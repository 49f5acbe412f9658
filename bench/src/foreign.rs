//! Programs in other languages that lock with packages from the registries of these languages. Each program is started
//! once and then reads *orders* (commands to measure something) line by line, so that no measurement includes a start.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::Failure;

/// A running program that reads orders line by line. Dropping this value kills the program.
pub(crate) struct ForeignProgram {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl ForeignProgram {
    pub(crate) fn start(mut command: Command) -> Result<Self, Failure> {
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("{command:?}: {error}"))?;
        let orders = child.stdin.take().ok_or("no input")?;
        let answers = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, orders, answers })
    }

    /// Sends an order.
    pub(crate) fn order(&mut self, order: &str) -> Result<(), Failure> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    /// Reads the answer to an order.
    pub(crate) fn read_answer(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }

    /// Sends an order and reads the answer to it.
    pub(crate) fn answer(&mut self, order: &str) -> Result<String, Failure> {
        self.order(order)?;
        self.read_answer()
    }

    /// Sends an order, and returns the figure in the answer to it.
    pub(crate) fn figure(&mut self, order: &str) -> Result<f64, Failure> {
        let line = self.answer(order)?;
        Ok(line.trim().parse().map_err(|_| format!("a program answered {line:?} instead of a figure"))?)
    }

    /// The id of the program's process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ForeignProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of the source of a foreign program, in the directory `recipes` of this crate.
pub(crate) fn recipe_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes").join(name)
}
