//! `leasehold leader`: prints who leads an election, once or at each change.

use std::{pin::pin, task::Poll};

use leasehold::{Election, Leadership, Name};

use super::{connect, obey, print, run::wait_failure, until_reader_goes};
use crate::{
    args,
    exit::{self, Failure},
    json,
    signals::Signals,
    text,
};

/// Prints the leader. Without one, the command fails, so that a script can rely on the output.
pub(crate) fn leader(args: &args::Leader, url: &str) -> Result<u8, Failure> {
    let name = Name::new(&args.name)?;
    // Signals are blocked before the engine starts its threads, because threads inherit the mask.
    let signals = args.follow.then(Signals::take).transpose();
    let signals = signals.map_err(|error| Failure::system("cannot read signals", error))?;
    let locks = connect(url)?;
    let engine = locks.profile().engine;
    let election = locks.election(name.as_str());
    // Also before the first line of `--follow`: an engine that cannot be reached is an error.
    let leader = election.leader_blocking()?;
    let line = |leadership: &Leadership| match args.json {
        true => json::leadership(name.as_str(), engine, leadership),
        false => text::leadership(leadership),
    };
    if let Some(signals) = signals {
        return follow(&election, signals, line);
    }
    match leader {
        Some(leader) => print(&line(&Leadership::Held(leader))),
        None if args.json => print(&line(&Leadership::Vacant)).map(|_| exit::NOT_HELD),
        None => {
            let message = format!("{engine} election {:?}: vacant: nobody leads now", name.as_str());
            Err(Failure::new(exit::NOT_HELD, message))
        }
    }
}

/// Prints a line for the present state and for each change, until a signal comes or the reader has gone.
fn follow(
    election: &Election,
    signals: Signals,
    line: impl Fn(&Leadership) -> String,
) -> Result<u8, Failure> {
    let event_loop = until_reader_goes(signals)?;
    let mut watch = election.observe()?;
    loop {
        let leadership = {
            let mut changed = pin!(watch.changed());
            loop {
                if let Poll::Ready(leadership) = event_loop.poll(changed.as_mut()) {
                    break leadership?;
                }
                obey(&event_loop, event_loop.wait(None).map_err(wait_failure)?)?;
            }
        };
        print(&line(&leadership))?;
    }
}
