//! The driver: the only place with a clock, a sleep, a spawn, a random number.
#![expect(clippy::disallowed_methods, reason = "this is where the outside world comes in")]

pub(crate) mod env;
