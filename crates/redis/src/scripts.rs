//! The scripts, and how they are called.

use redis::{Cmd, cmd};

use crate::keys::COUNTER;

/// A verb that runs on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Claim,
    Renew,
    Release,
    Break,
    Look,
}

/// A verb after the rules of a name, and before these its quick part.
macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!(concat!("lua/", $file, ".lua"))),+) };
}

/// Their texts, in the order of the enum.
pub(crate) const TEXTS: [&str; 5] = [
    text!("claim_quick", "name", "claim"),
    text!("renew_quick", "name", "renew"),
    text!("release_quick", "name", "release"),
    text!("name", "break"),
    text!("name", "look"),
];

/// What the server calls the scripts: the digests that `SCRIPT LOAD` answered.
pub(crate) type Digests = [String; TEXTS.len()];

/// What one item of a call is about: a lock, and what the script is told of it.
#[derive(Debug)]
pub(crate) struct Item {
    lock: String,
    arguments: Vec<Vec<u8>>,
}

impl Item {
    pub(crate) fn new(lock: String) -> Self {
        Self { lock, arguments: Vec::with_capacity(13) }
    }

    pub(crate) fn text(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.arguments.push(text.into());
        self
    }

    pub(crate) fn number(self, number: u128) -> Self {
        self.text(number.to_string())
    }
}

impl Script {
    /// Whether it takes any number of items, and answers each for itself.
    pub(crate) const fn takes_many(self) -> bool {
        matches!(self, Self::Claim | Self::Renew | Self::Release)
    }

    /// The call of the script for these items, on a server that calls its scripts so. `floor` is the server's time when
    /// the connection was made, in microseconds.
    pub(crate) fn call<'a>(
        self,
        digests: &Digests,
        floor: u64,
        items: impl Iterator<Item = &'a Item> + Clone,
    ) -> Cmd {
        let mut command = cmd("EVALSHA");
        command.arg(&digests[self as usize]).arg(items.clone().count() + 1).arg(COUNTER);
        for item in items.clone() {
            command.arg(&item.lock);
        }
        for argument in items.flat_map(|item| &item.arguments) {
            command.arg(argument);
        }
        command.arg(floor);
        command
    }
}
