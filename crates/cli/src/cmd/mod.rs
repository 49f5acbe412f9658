//! The commands of `leasehold`, one file per command.

pub(crate) mod acquire;
pub(crate) mod break_;
pub(crate) mod break_record;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod leader;
pub(crate) mod list;
pub(crate) mod once;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod schema;
#[cfg(feature = "serve")]
pub(crate) mod serve;
pub(crate) mod show;
#[cfg(feature = "top")]
pub(crate) mod top;
pub(crate) mod watch;

use std::{io::Write, os::fd::AsFd, path::Path};

use leasehold::{Connect, Locks};
use nix::sys::signal::Signal;

use crate::{
    event_loop::EventLoop,
    exit::{self, Failure},
    signals::{Signals, interrupts_wait},
    source::{Given, Origin},
    text,
};

/// Connects for a command that acquires no lock.
pub(crate) fn connect(url: &str) -> Result<Locks, Failure> {
    crate::log::start(0);
    // A fixed owner avoids the lookup of user and host name, which may ask a server.
    Ok(Connect::default().owner("leasehold").connect(url)?)
}

/// Says on stderr whose locks a command shows if no URL is given. The answer alone reads as one about the locks that
/// the reader means.
pub(crate) fn tell_default(given: &Given, locks: &Locks) {
    if given.origin != Origin::Default {
        return;
    }
    let view = locks.show_blocking("x").ok();
    let directory = view.as_ref().and_then(|view| Path::new(&view.key).parent());
    let directory = directory.map_or_else(String::new, |path| format!(", in {}", path.display()));
    text::print_message(&format!(
        "no URL is given: these are the locks of files of this user on this machine{directory}: \
         for other locks give --url or LEASEHOLD_URL"
    ));
}

/// Writes the answer of a command to stdout.
pub(crate) fn print(text: &str) -> Result<u8, Failure> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout.
fn print_bytes(bytes: &[u8]) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(exit::DONE),
        // The reader has closed the pipe, as `head` does: that is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Err(Failure::silent(exit::code_of_signal(Signal::SIGPIPE)))
        }
        Err(error) => Err(Failure::system("cannot write the answer to stdout", error)),
    }
}

/// An event loop for a command that prints until a signal comes or its reader has gone.
fn until_reader_goes(signals: Signals) -> Result<EventLoop, Failure> {
    let out = std::io::stdout().as_fd().try_clone_to_owned();
    let out = out.map_err(|error| Failure::system("cannot watch stdout", error))?;
    // Between two lines nothing is written, so the end of the reader shows only in this descriptor.
    EventLoop::new(signals, Some(out)).map_err(run::wait_failure)
}

/// Stops or ends such a command as the signal asks for, if one came.
pub(crate) fn obey(event_loop: &EventLoop, signal: Option<Signal>) -> Result<(), Failure> {
    match signal {
        Some(Signal::SIGKILL) => Err(Failure::silent(exit::code_of_signal(Signal::SIGPIPE))),
        Some(Signal::SIGTSTP) => event_loop.signals().stop().map_err(run::wait_failure),
        Some(signal) if interrupts_wait(signal) => Err(Failure::silent(exit::code_of_signal(signal))),
        _ => Ok(()),
    }
}
