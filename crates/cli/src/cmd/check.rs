//! `leasehold check`: whether the hold of a handle is held.

use leasehold::Loss;

use super::print;
use crate::{
    args,
    exit::{self, Failure},
    handle::{Held, Shown, Wish},
    holder::link::{Answer, ask},
    source::Given,
};

/// Exits with 0 if the hold is held, and with 76 if it is over. Changes nothing.
pub(crate) fn check(
    args: &args::Check,
    given: impl FnOnce() -> Result<Given, Failure>,
) -> Result<u8, Failure> {
    let held = Held::new(&args.handle, Wish::Keep, given)?;
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
    let has_process = held.locks.profile().no_handles.is_some();
    let remaining = match held.look()? {
        Shown::Held(holder) if has_process => {
            held.warn_of_holder(&holder);
            return Ok(());
        }
        Shown::NotHeld if has_process || held.is_of_another_url() => return Err(held.not_found()),
        Shown::Held(holder) => {
            held.warn_of_holder(&holder);
            holder.remaining
        }
        // The hold is over, and the engine may know why.
        Shown::NotHeld => return held.ended(),
        Shown::Unclear => {
            let stopped = held.stopped_holder();
            let what = unknown(stopped.as_deref().unwrap_or(
                "its holder process does not answer here, and the server does not store who holds the name",
            ));
            return Err(held.failure(exit::UNAVAILABLE, &what));
        }
    };
    // A broken hold is shown until its lease ends. So the engine is asked to renew the hold, for the time that it has.
    let shortest = *held.locks.profile().ttl.start();
    let asked = held.extend(remaining.unwrap_or(shortest).max(shortest));
    match asked {
        // An engine waits for an answer to a renewal for a part of the lease. With little time left, that is too short
        // for a busy server. A look has more time.
        Err(failure) if failure.code == exit::UNAVAILABLE => look_again(held, failure),
        asked => asked,
    }
}

/// Whether the hold is held, by what the engine shows of it: after a renewal that got no answer in time.
fn look_again(held: &Held, unanswered: Failure) -> Result<(), Failure> {
    match held.look()? {
        Shown::Held(holder) if holder.broken => Err(held.is_over(&Loss::Broken.to_string())),
        Shown::Held(_) => Ok(()),
        Shown::NotHeld => held.ended(),
        Shown::Unclear => Err(unanswered),
    }
}

/// The message if the holder process does not know whether the hold is held.
pub(super) fn unknown(why: &str) -> String {
    format!("it is not known whether the hold of this handle is held: {why}: ask again")
}
