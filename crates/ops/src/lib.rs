//! What the tools for operators share: [`Looks`] tells what happened between two looks at the locks of an engine;
//! [`series`] writes what is known of several engines, and of runs, in the text format of Prometheus; [`waits`] tells
//! who waits for whom; [`Leases`] tells how long ago leases were renewed; [`FirstSeen`] tells how long holds and waits
//! were seen; [`remarks`] tells what is to be said about holders; [`Reached`] tells by which URL the reader of an
//! advice runs a command; [`audit`] records breaks; [`end_hold`] ends a hold; [`pause_after_look`] and
//! [`pause_before_noticed_look`] say when the next look is due; [`utc`] and [`short_duration`] write times.
//!
//! A part of the command `leasehold`. Its interface changes between releases.

pub mod audit;
mod breaking;
mod changes;
mod first_seen;
mod leases;
mod pace;
mod reached;
mod remarks;
pub mod series;
mod time;
pub mod waits;

pub use breaking::{end_hold, pause_before_next_break};
pub use changes::{Change, Looks};
pub use first_seen::{FirstSeen, held_text, oldest_waiter, waiting_text};
pub use leases::Leases;
pub use pace::{pause_after_look, pause_before_noticed_look};
pub use reached::Reached;
pub use remarks::{Remark, free_when, holder_remarks, marks, remarks};
pub use time::{short_duration, utc};
