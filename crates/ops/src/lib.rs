//! What the tools for operators share: [`Looks`] tells what happened between two looks at the locks of an engine;
//! [`series`] writes what is known of several engines, and of runs, in the text format of Prometheus; [`waits`] tells
//! who waits for whom; [`utc`] and [`short_duration`] write times.
//!
//! A part of the command `leasehold`. Its interface changes between releases.

mod changes;
pub mod series;
mod time;
pub mod waits;

pub use changes::{Change, Looks};
pub use time::{short_duration, utc};
