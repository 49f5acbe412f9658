//! The commands of `leasehold`, one file per command.

pub(crate) mod break_;
pub(crate) mod completions;
pub(crate) mod leader;
pub(crate) mod list;
pub(crate) mod once;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod show;

use std::io::Write;

use leasehold::{Connect, Locks};

use crate::exit::{self, Failure};

/// Connects for a command that acquires no lock.
fn connect(url: &str) -> Result<Locks, Failure> {
    crate::log::start(0);
    // A fixed owner avoids the lookup of user and host name, which may ask a server.
    Ok(Connect::default().owner("leasehold").connect(url)?)
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
            Err(Failure::silent(exit::code_of_signal(nix::sys::signal::Signal::SIGPIPE)))
        }
        Err(error) => Err(Failure::system("cannot write the answer to stdout", error)),
    }
}
