//! `leasehold watch`: prints a line for each change of the holders and waiters.

use std::time::{Instant, SystemTime};

use leasehold::{Name, engine::Watched};

use super::{connect, obey, print, run::wait_failure, tell_default, until_reader_goes};
use crate::{
    args,
    exit::Failure,
    log,
    looker::Looker,
    signals::Signals,
    source::Given,
    watch::{Format, Story, Told},
};

/// Prints what is there, and then each change, until a signal comes or the reader has gone.
pub(crate) fn watch(args: &args::Watch, given: &Given) -> Result<u8, Failure> {
    let names = match args.exact {
        true => Watched::Name(Name::new(&args.prefix)?),
        false => Watched::Prefix(args.prefix.clone()),
    };
    // Signals are blocked before the engine starts its threads, because threads inherit the mask.
    let signals = Signals::take().map_err(|error| Failure::system("cannot read signals", error))?;
    let locks = connect(&given.url)?;
    tell_default(given, &locks);
    let event_loop = until_reader_goes(signals)?;
    let format = if args.json { Format::Json } else { Format::Text };
    let mut story = Story::new(locks.profile().engine, format);
    let mut looker = Looker::new(locks, names, args.every);
    loop {
        if let Some(look) = looker.poll(&event_loop) {
            match story.take(look, Instant::now(), SystemTime::now()) {
                Told::Lines(lines) if lines.is_empty() => {}
                Told::Lines(lines) => drop(print(&lines)?),
                Told::Outage(message) => log::print_message(&message),
                Told::StillAway => {}
                Told::Failed(error) => return Err(error.into()),
            }
        }
        obey(&event_loop, event_loop.wait(looker.idle()).map_err(wait_failure)?)?;
    }
}
