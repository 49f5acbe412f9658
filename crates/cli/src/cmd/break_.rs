//! `leasehold break`: ends a hold on purpose.

use std::time::{Duration, Instant};

use leasehold::{Broken, Name};

use super::connect;
use crate::{
    args,
    exit::{self, Failure},
    text::shell_word,
};

/// How long the command waits for a holder that was asked to stop: three times the default grace of `run`.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(15);
/// The pause between two requests that ask whether the hold has ended.
pub(crate) const ASK_PAUSE: Duration = Duration::from_millis(50);

/// Breaks the hold that has this token.
pub(crate) fn break_(args: &args::Break, url: &str) -> Result<u8, Failure> {
    let name = Name::new(&args.name)?;
    let locks = connect(url)?;
    let give_up_at = Instant::now() + STOP_LIMIT;
    loop {
        match locks.break_hold_blocking(name.as_str(), args.token, args.force) {
            Ok(Broken::Done) => return Ok(exit::DONE),
            Ok(Broken::NotHeld) => {
                let (engine, token) = (locks.profile().engine, args.token);
                let message = format!(
                    "{engine} lock {:?}: nothing is held under token {token}: `leasehold show {}` shows the holder",
                    name.as_str(),
                    shell_word(name.as_str())
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
