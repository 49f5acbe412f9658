//! `leasehold check`: whether the hold of a handle is held.

use super::print;
use crate::{
    args,
    exit::{self, Failure},
    handle::{Held, Shown},
    holder::link::{Answer, ask},
};

/// Exits with 0 if the hold is held, and with 76 if it is over. Changes nothing.
pub(crate) fn check(
    args: &args::Check,
    url: impl FnOnce() -> Result<String, Failure>,
) -> Result<u8, Failure> {
    let held = Held::new(&args.handle, url)?;
    is_held(&held)?;
    match args.token {
        true => print(&format!("{}\n", held.handle.token())),
        false => Ok(exit::DONE),
    }
}

/// Fails unless the hold is held: asks its holder process, if there is one here, else the engine.
pub(super) fn is_held(held: &Held) -> Result<(), Failure> {
    match ask(&held.handle, "check") {
        Some(Answer::Done) => return Ok(()),
        Some(Answer::Over(why)) => return Err(held.is_over(&why)),
        Some(Answer::Unknown(why)) => return Err(held.failure(exit::UNAVAILABLE, &unknown(&why))),
        // No holder process, or one that ends now.
        None => {}
    }
    let holder = match held.look()? {
        Shown::Held(holder) => holder,
        Shown::NotHeld => return Err(held.not_found()),
        Shown::Unclear => {
            let what = unknown(
                "its holder process does not answer here, and the server does not store who holds the name",
            );
            return Err(held.failure(exit::UNAVAILABLE, &what));
        }
    };
    if held.locks.profile().no_handles.is_some() {
        return Ok(());
    }
    // A broken hold is shown until its lease ends. So the engine is asked to renew the hold, for the time that it has.
    let shortest = *held.locks.profile().ttl.start();
    let left = holder.remaining.unwrap_or(shortest).max(shortest);
    match held.locks.extend_handle_blocking(&held.handle.clone().with_ttl(left)) {
        Ok(_) => Ok(()),
        Err(error) if error.is_lost() => Err(held.lost(&error)),
        Err(error) => Err(error.into()),
    }
}

/// The message if the holder process does not know whether the hold is held.
pub(super) fn unknown(why: &str) -> String {
    format!("it is not known whether the hold of this handle is held: {why}: ask again")
}
