//! A server, and the command that uses it.

use std::process::{Command, Output};

use serde_json::Value;

use crate::tools::{Running, bare, code, finish};

/// A server, and the command that uses it.
pub(crate) struct Fixture<S> {
    /// The name of the engine in messages.
    pub(crate) engine: &'static str,
    url: String,
    pub(crate) server: S,
}

impl<S> Fixture<S> {
    pub(crate) const fn at(engine: &'static str, url: String, server: S) -> Self {
        Self { engine, url, server }
    }

    pub(crate) fn leasehold(&self, args: &[&str]) -> Command {
        self.leasehold_with("", args)
    }

    /// The command, with options added to the URL.
    pub(crate) fn leasehold_with(&self, query: &str, args: &[&str]) -> Command {
        let mut command = bare(args);
        command.env("LEASEHOLD_URL", format!("{}{query}", self.url));
        command
    }

    pub(crate) fn call(&self, args: &[&str]) -> Output {
        finish(self.leasehold(args))
    }

    pub(crate) fn code(&self, args: &[&str]) -> i32 {
        code(&self.call(args))
    }

    /// Starts `leasehold run OPTIONS job -- sh -c SCRIPT` and waits until the script prints "ready".
    pub(crate) fn holder(&self, options: &[&str], script: &str) -> Running {
        let args = [&["run"], options, &["job", "--", "sh", "-c", script]].concat();
        let mut running = Running::start(self.leasehold(&args));
        assert_eq!(running.line(), "ready");
        running
    }

    pub(crate) fn show(&self, name: &str) -> Value {
        let output = self.call(&["show", "--json", name]);
        assert_eq!(code(&output), 0, "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The token of the holder of `job`.
    pub(crate) fn token(&self) -> String {
        self.show("job")["holders"][0]["token"].to_string()
    }
}
