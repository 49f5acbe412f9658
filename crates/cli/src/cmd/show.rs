//! `leasehold show`: prints who holds a name and who waits for it.

use leasehold::{Finding, Guarantee, Locks, View};

use super::{connect, print, tell_default};
use crate::{args, exit::Failure, json, source::Given, text};

/// Prints one name, whether it is held or free.
pub(crate) fn show(args: &args::Show, given: &Given) -> Result<u8, Failure> {
    let locks = connect(&given.url)?;
    tell_default(given, &locks);
    let view = locks.show_blocking(&args.name)?;
    let guarantee = GuaranteeResult::of(&locks);
    let shown = ShownName { engine: locks.profile().engine, guarantee: &guarantee, view: &view };
    if !args.json {
        return print(&text::show(&shown));
    }
    guarantee.print_why_unknown();
    print(&json::line(&shown))
}

/// A name, with everything that is printed about it.
pub(crate) struct ShownName<'a> {
    pub(crate) engine: &'static str,
    pub(crate) guarantee: &'a GuaranteeResult,
    pub(crate) view: &'a View,
}

/// The engine's guarantee, or the reason why it is not known.
pub(crate) struct GuaranteeResult(pub(crate) Result<Guarantee, String>);

impl GuaranteeResult {
    /// Asks the engine for its guarantee. A user who is allowed to read locks can lack the permission to read the
    /// server's settings. Then everything except the guarantee is still shown.
    pub(crate) fn of(locks: &Locks) -> Self {
        Self(locks.guarantee_blocking().map_err(|error| error.to_string()))
    }

    /// The level of the guarantee, if it is known.
    pub(crate) fn level(&self) -> Option<String> {
        self.0.as_ref().ok().map(|guarantee| guarantee.level.to_string())
    }

    /// The reasons why the level is not higher, if they are known.
    pub(crate) fn findings(&self) -> Option<&[Finding]> {
        self.0.as_ref().ok().map(|guarantee| guarantee.findings.as_slice())
    }

    /// What else there is to know about the guarantee, or why it is not known.
    pub(crate) fn notes(&self) -> impl Iterator<Item = &str> {
        let known = self.0.iter().flat_map(|guarantee| &guarantee.notes).map(AsRef::as_ref);
        known.chain(self.0.as_ref().err().map(String::as_str))
    }

    /// If the guarantee is not known, prints the reason on stderr.
    pub(crate) fn print_why_unknown(&self) {
        if let Err(why) = &self.0 {
            text::print_message(&format!("the guarantee is not known: {why}"));
        }
    }
}
