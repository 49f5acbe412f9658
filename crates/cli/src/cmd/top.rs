//! `leasehold top`: the live view on the terminal.

use std::io::IsTerminal;

use leasehold::Connect;

use crate::{
    args,
    exit::Failure,
    log,
    signals::Signals,
    source::{Given, Origin},
    top,
};

/// Shows the view until the user quits.
pub(crate) fn top(args: &args::Top, given: &Given) -> Result<u8, Failure> {
    let tty = top::terminal()?;
    // Signals are blocked before the engine starts its threads, because threads inherit the mask.
    let signals = Signals::take().map_err(|error| Failure::system("cannot read signals", error))?;
    // Events of the library would be written over the view.
    if !std::io::stderr().is_terminal() {
        log::start(0);
    }
    let locks = Connect::default().owner("leasehold").connect(&given.url)?;
    top::view(args, &locks, given.origin == Origin::Default, tty, signals)
}
