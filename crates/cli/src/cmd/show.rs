//! `leasehold show`: who holds a name, and who waits.

use leasehold::{Finding, Guarantee, Locks, View};

use super::{connect, print};
use crate::{args, exit::Failure, json, text};

/// Prints one name, free or not.
pub(crate) fn show(args: &args::Show, url: &str) -> Result<u8, Failure> {
    let locks = connect(url)?;
    let view = locks.show_blocking(&args.name)?;
    let judged = Judged::of(&locks);
    let seen = Seen { engine: locks.profile().engine, judged: &judged, view: &view };
    if !args.json {
        return print(&text::show(&seen));
    }
    judged.say_why_not();
    print(&json::line(&seen))
}

/// A name as it is printed.
pub(crate) struct Seen<'a> {
    pub(crate) engine: &'static str,
    pub(crate) judged: &'a Judged,
    pub(crate) view: &'a View,
}

/// What the engine promises, or why it cannot be told.
pub(crate) struct Judged(pub(crate) Result<Guarantee, String>);

impl Judged {
    /// Asks the engine. Who may look at names need not be allowed to read a server's settings: that hides nothing else.
    pub(crate) fn of(locks: &Locks) -> Self {
        Self(locks.guarantee_blocking().map_err(|error| error.to_string()))
    }

    /// The level, where it is known.
    pub(crate) fn level(&self) -> Option<String> {
        self.0.as_ref().ok().map(|guarantee| guarantee.level.to_string())
    }

    /// Why it is not higher, where it is known.
    pub(crate) fn findings(&self) -> Option<&[Finding]> {
        self.0.as_ref().ok().map(|guarantee| guarantee.findings.as_slice())
    }

    /// Says on stderr why the level is not known: JSON has no field for it.
    pub(crate) fn say_why_not(&self) {
        if let Err(why) = &self.0 {
            text::say(&format!("the guarantee is not known: {why}"));
        }
    }
}
