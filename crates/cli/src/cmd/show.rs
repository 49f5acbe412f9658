//! `leasehold show`: who holds a name, and who waits.

use leasehold::{Locks, View};

use super::{connect, print};
use crate::{args, exit::Failure, json, text};

/// Prints one name, free or not.
pub(crate) fn show(args: &args::Show, url: &str) -> Result<u8, Failure> {
    let locks = connect(url)?;
    let view = pollster::block_on(locks.show(&args.name))?;
    let seen = Seen::new(&locks, &view)?;
    print(&if args.json { json::line(&seen) } else { text::show(&seen) })
}

/// A name as it is printed.
pub(crate) struct Seen<'a> {
    pub(crate) engine: &'static str,
    pub(crate) guarantee: String,
    pub(crate) view: &'a View,
}

impl<'a> Seen<'a> {
    pub(crate) fn new(locks: &Locks, view: &'a View) -> Result<Self, Failure> {
        let guarantee = pollster::block_on(locks.guarantee())?.level.to_string();
        Ok(Self { engine: locks.profile().engine, guarantee, view })
    }
}
