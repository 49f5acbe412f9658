//! The scripts, and how they are called.

use redis::{Cmd, cmd};

/// A verb that runs on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Claim,
    Renew,
    Release,
    Break,
    Look,
}

/// Their texts, in the order of the enum.
pub(crate) const TEXTS: [&str; 5] = [
    concat!(include_str!("lua/name.lua"), include_str!("lua/claim.lua")),
    concat!(include_str!("lua/name.lua"), include_str!("lua/renew.lua")),
    concat!(include_str!("lua/name.lua"), include_str!("lua/release.lua")),
    concat!(include_str!("lua/name.lua"), include_str!("lua/break.lua")),
    concat!(include_str!("lua/name.lua"), include_str!("lua/look.lua")),
];

/// What the server calls the scripts: the digests that `SCRIPT LOAD` answered.
pub(crate) type Digests = [String; TEXTS.len()];

/// A call of a script: its keys first, then its arguments.
pub(crate) struct Call {
    pub(crate) script: Script,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

impl Call {
    pub(crate) fn new(script: Script) -> Self {
        Self { script, keys: Vec::new(), arguments: Vec::new() }
    }

    pub(crate) fn key(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    pub(crate) fn text(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(text.into());
        self
    }

    pub(crate) fn number(self, number: u128) -> Self {
        self.text(number.to_string())
    }

    /// The command, for a server that calls its scripts so.
    pub(crate) fn command(&self, digests: &Digests) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&digests[self.script as usize]).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}
