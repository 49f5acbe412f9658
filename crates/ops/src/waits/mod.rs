//! Who waits for whom, over processes, hosts and engines: deadlocks, and waits that are far too long. Has access to
//! nothing: the caller brings the answers of `list` ([`Look`]) and the time.
//!
//! A *task* is what holds and waits: all claims with one [`Actor`](leasehold::Actor), or one claim without an actor. A
//! task that waits keeps what it holds, and so do the tasks that wait for its end (its parents). [`blocks`] tells which
//! claim keeps which from its grant. A [`Finder`] takes one look after another and reports a cycle only if the same
//! claims form it in two looks. [`Renewals`] tells whether the leases of a deadlock are renewed.

mod blocks;
mod claims;
mod cycle;
mod finder;
mod long_wait;
mod message;
mod reduction;
mod renewals;

#[cfg(test)]
mod tests;

pub use blocks::{Block, blocks};
pub use claims::{Look, Party};
pub use cycle::Deadlock;
pub use finder::{Finder, Finding, MIN_APART, report};
pub use long_wait::{LongWait, LongWaitCause};
pub use renewals::Renewals;
