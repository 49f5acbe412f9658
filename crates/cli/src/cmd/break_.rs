//! `leasehold break`: ends a hold on purpose.

use std::time::{Duration, Instant};

use leasehold::{Broken, Locks, Name};

use super::{break_record::Recorder, connect, print};
use crate::{
    after_break::AfterBreak,
    args,
    exit::{self, Failure},
    source::Given,
    text::shell_word,
};

/// How long the command waits for a holder that was asked to stop: three times the default grace of `run`.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(15);
/// The pause between two requests that ask whether the hold has ended.
pub(crate) const ASK_PAUSE: Duration = Duration::from_millis(50);

/// Breaks the hold that has this token. With an audit file, records it before and after.
pub(crate) fn break_(args: &args::Break, given: &Given) -> Result<u8, Failure> {
    let name = Name::new(&args.name)?;
    let recorder = Recorder::new(args)?;
    let locks = connect(&given.url)?;
    match recorder {
        None => end(args, &name, &locks, given),
        Some(recorder) => recorder.recorded(args, &name, &locks, || end(args, &name, &locks, given)),
    }
}

/// Ends the hold, and waits for a holder that the engine has to ask.
fn end(args: &args::Break, name: &Name, locks: &Locks, given: &Given) -> Result<u8, Failure> {
    let give_up_at = Instant::now() + STOP_LIMIT;
    loop {
        match locks.break_hold_blocking(name.as_str(), args.token, args.force) {
            Ok(Broken::Done) => {
                let (engine, look) = (locks.profile().engine, locks.show_blocking(name.as_str()));
                let after = AfterBreak { engine, name, token: args.token, look };
                return print(&if args.json { after.json() } else { after.text() });
            }
            Ok(Broken::NotHeld) => {
                let (engine, token) = (locks.profile().engine, args.token);
                let show = given.reached(engine).command(&format!("show {}", shell_word(name.as_str())));
                let message = format!(
                    "{engine} lock {:?}: nothing is held under token {token}: `{show}` shows the holder",
                    name.as_str()
                );
                return Err(Failure::new(exit::NOT_HELD, message));
            }
            // A result that this command does not know is no success.
            Ok(other) => {
                let engine = locks.profile().engine;
                let message = format!("{engine} lock {:?}: unexpected result {other:?}", name.as_str());
                return Err(Failure::new(exit::BUG, message));
            }
            // Either the holder was asked to stop and still holds, or the engine is unreachable. In both cases another
            // attempt may succeed.
            Err(error) if error.is_unreachable() && Instant::now() < give_up_at => {
                std::thread::sleep(ASK_PAUSE)
            }
            Err(error) => return Err(error.into()),
        }
    }
}
