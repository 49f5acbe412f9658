//! `leasehold release`: ends the hold of a handle.

use super::check::unknown;
use crate::{
    args,
    exit::{self, Failure},
    handle::{Held, Shown, Wish},
    holder::link::{Answer, ask},
    source::Given,
    text::shell_word,
};

/// Ends the hold: by its holder process, if there is one here, else on the engine.
pub(crate) fn release(
    args: &args::Release,
    given: impl FnOnce() -> Result<Given, Failure>,
) -> Result<u8, Failure> {
    let held = Held::new(&args.handle, Wish::End, given)?;
    match end(&held) {
        Err(failure) if failure.code == exit::LOST => {
            held.remove_file();
            Err(failure)
        }
        Err(failure) => Err(failure),
        Ok(()) => {
            held.remove_file();
            Ok(exit::DONE)
        }
    }
}

fn end(held: &Held) -> Result<(), Failure> {
    match ask(&held.handle, "release") {
        Some(Answer::Done) => return Ok(()),
        Some(Answer::Over(why)) => return Err(held.is_over(&why)),
        Some(Answer::Unknown(why)) => return Err(held.failure(exit::UNAVAILABLE, &unknown(&why))),
        None => {}
    }
    if held.locks.profile().no_handles.is_some() {
        return Err(without_holder(held)?);
    }
    match held.locks.release_handle_blocking(&held.handle) {
        Ok(()) => Ok(()),
        Err(error) if error.is_lost() => Err(held.lost(&error)),
        Err(error) => Err(error.into()),
    }
}

/// The failure if no holder process answers here, on an engine whose holds end with their process.
fn without_holder(held: &Held) -> Result<Failure, Failure> {
    let token = match held.look()? {
        Shown::NotHeld => return Ok(held.not_found()),
        Shown::Held(holder) => holder.token.unwrap_or(held.handle.token().number),
        Shown::Unclear => held.handle.token().number,
    };
    if let Some(stopped) = held.stopped_holder() {
        let what = format!("held, but {stopped}, then release it again, or end it by `kill -KILL`");
        return Ok(held.failure(exit::UNAVAILABLE, &what));
    }
    let name = shell_word(held.handle.name().as_str());
    let break_line = held.reached.command(&format!("break --token {token} {name}"));
    let what = format!(
        "held, but its holder process does not answer here: release it as the user, on the machine and in the \
         container of its acquire, or end the process of --while-pid, or: {break_line}"
    );
    Ok(held.failure(exit::UNAVAILABLE, &what))
}
