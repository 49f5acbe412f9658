//! What a holder process does: acquires the lock, hands the handle over, and holds the lock until there is a reason to
//! end.

use std::{
    os::{fd::AsFd, unix::net::UnixStream},
    pin::pin,
    time::Duration,
};

use leasehold::{Error, ErrorKind, Guard, Owner};
use nix::{errno::Errno, sys::signal::Signal};

use super::{
    link::{Answer, Listener, Request, answer},
    process::{HandedOver, StarterLink, ends_holder},
    watched::Watched,
};
use crate::{
    cmd::{
        acquire::grant,
        run::{NO_ANSWER, RELEASE_LIMIT},
    },
    event_loop::EventLoop,
    exit::{self, Failure},
    handle::site_of,
    plan,
};

/// How long the holder process does not look for commands after the system refused it a descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// How long the engine may take to confirm the hold for `check`.
const CONFIRM_LIMIT: Duration = Duration::from_secs(5);

/// Holds the lock until there is a reason to end. Returns the exit code, which only the command reads that has no
/// handle yet.
pub(crate) fn keep(
    plan: &plan::Acquire,
    watched: &Watched,
    mut link: StarterLink,
    event_loop: &EventLoop,
) -> Result<u8, Failure> {
    let cannot_keep = |error| Failure::system("cannot keep the hold", error);
    let owner = || Owner::of_process(watched.pid.unsigned_abs());
    // The event loop reports the end of the command as this signal. The command, if it lives, has printed why it ended.
    let command_has_gone = exit::code_of_signal(Signal::SIGKILL);
    let without_message = |failure: Failure| match failure.code == command_has_gone {
        true => Failure::silent(failure.code),
        false => failure,
    };
    let (_locks, guard) = grant(&plan.run, event_loop, owner, |_| Ok(())).map_err(without_message)?;
    let handle = guard.handle().with_site(site_of(&plan.run.url));
    // Everything that the URL names by a relative path has been opened, or is absolute.
    std::env::set_current_dir("/").map_err(cannot_keep)?;
    // Another command can reach the holder process as soon as it has the handle.
    let listener = Listener::bind(&handle).map_err(cannot_keep)?;
    let handed_over = link.hand_over(&handle, event_loop).map_err(cannot_keep)?;
    drop(link);
    let asked = match handed_over {
        HandedOver::Written => {
            wait_for_end(&guard, watched, listener.as_ref(), event_loop).map_err(cannot_keep_on)?
        }
        HandedOver::WrittenAndEnded | HandedOver::NotWritten => None,
    };
    // A guard whose hold is lost still has something to give back: the kernel lock of the file engine, at `--max-hold`.
    let released = event_loop.block_on(guard.release(), Some(RELEASE_LIMIT), |_| false);
    if let Some(stream) = asked {
        answer(&stream, &answer_of(released.map_err(cannot_keep_on)?));
    }
    Ok(if handed_over == HandedOver::NotWritten { exit::UNAVAILABLE } else { exit::DONE })
}

fn cannot_keep_on(errno: Errno) -> Failure {
    Failure::system("cannot keep the hold", errno)
}

/// Waits for the end of the watched process, a loss, a signal, or a command that asks for the release; that command
/// waits for an answer.
fn wait_for_end(
    guard: &Guard,
    watched: &Watched,
    listener: Option<&Listener>,
    event_loop: &EventLoop,
) -> Result<Option<UnixStream>, Errno> {
    let mut lost = pin!(guard.lost());
    loop {
        if event_loop.poll(lost.as_mut()).is_ready() {
            return Ok(None);
        }
        if watched.has_ended() {
            return Ok(None);
        }
        let mut pause = None;
        match listener.map(Listener::next) {
            Some(Ok(Some((Request::Release, stream)))) => return Ok(Some(stream)),
            Some(Ok(Some((Request::Check, stream)))) => {
                // The wait for the engine reads the signals, too.
                let mut is_ended = false;
                let remember = |signal| {
                    is_ended |= ends_holder(signal);
                    false
                };
                let confirmed = event_loop.block_on(guard.confirm(), Some(CONFIRM_LIMIT), remember)?;
                answer(&stream, &answer_of(confirmed));
                if is_ended {
                    return Ok(None);
                }
                continue;
            }
            Some(Ok(None)) | None => {}
            // The connection stays in the queue of the socket, which therefore stays readable.
            Some(Err(_)) => pause = Some(ACCEPT_PAUSE),
        }
        let mut readable = vec![watched.as_fd()];
        readable.extend(listener.filter(|_| pause.is_none()).map(Listener::as_fd));
        // Other signals do not matter, nor does the end of the command that started the holder process, which is
        // reported as SIGKILL.
        if event_loop.wait_for(pause, &readable)?.is_some_and(ends_holder) {
            return Ok(None);
        }
    }
}

/// The answer to a command, from the answer of the engine; `None`: the engine has not answered.
fn answer_of(result: Option<Result<(), Error>>) -> Answer {
    match result {
        Some(Ok(())) => Answer::Done,
        Some(Err(error)) => match error.kind() {
            ErrorKind::Lost(loss) => Answer::Over(loss.to_string()),
            _ => Answer::Unknown(error.to_string()),
        },
        None => Answer::Unknown(NO_ANSWER.to_owned()),
    }
}
