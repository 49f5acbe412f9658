//! Runs steps one after another until one fails. Prints the name and the time of each step.

use std::{
    fmt,
    process::Command,
    time::{Duration, Instant},
};

/// The steps that were done so far.
#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
}

/// The step that failed, and the reason.
#[derive(Debug)]
pub(crate) struct Failure {
    step: String,
    reason: String,
}

impl Failure {
    pub(crate) fn new(step: &str, reason: impl fmt::Display) -> Self {
        Self { step: step.to_owned(), reason: reason.to_string() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {:?} failed: {}", self.step, self.reason)
    }
}

impl Steps {
    /// Does `work` as the step `name`.
    pub(crate) fn step<T, E: fmt::Display>(
        &mut self,
        name: &str,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, Failure> {
        println!("== {name}");
        let start = Instant::now();
        let result = work();
        let took = start.elapsed();
        println!("-- {name}: {:.1} s", took.as_secs_f64());
        self.done.push((name.to_owned(), took));
        result.map_err(|reason| Failure::new(name, reason))
    }

    /// Runs `command` as the step `name`. The step fails unless the command ends with success.
    pub(crate) fn command(&mut self, name: &str, command: &mut Command) -> Result<(), Failure> {
        self.step(name, || succeed(command))
    }

    /// Prints the time of each step, if any step was done.
    pub(crate) fn print_times(&self) {
        if self.done.is_empty() {
            return;
        }
        println!("== times");
        for (name, took) in &self.done {
            println!("{:8.1} s  {name}", took.as_secs_f64());
        }
        let all: Duration = self.done.iter().map(|(_, took)| *took).sum();
        println!("{:8.1} s  total", all.as_secs_f64());
    }
}

/// Runs `command` until it ends. The error says why it could not be run, or why it did not succeed.
pub(crate) fn succeed(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} ended with {status}", shown(command))),
        Err(error) => Err(format!("{} cannot be run: {error}", shown(command))),
    }
}

/// A command that runs `wrapper` with `command` as its arguments, in the environment and directory of `command`.
pub(crate) fn under(wrapper: &[&str], command: &Command) -> Command {
    let mut wrapped = Command::new(wrapper[0]);
    wrapped.args(&wrapper[1..]).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped
}

pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_is_reported_with_its_step() {
        let mut steps = Steps::default();
        assert!(steps.command("fine", &mut Command::new("true")).is_ok());
        let failure = steps.command("doomed", Command::new("false").arg("x")).unwrap_err().to_string();
        assert!(failure.contains("\"doomed\"") && failure.contains("false x ended with"), "{failure}");
        let failure = steps.command("absent", &mut Command::new("/no/such/program")).unwrap_err().to_string();
        assert!(failure.contains("\"absent\"") && failure.contains("cannot be run"), "{failure}");
        assert_eq!(steps.done.len(), 3);
    }
}
