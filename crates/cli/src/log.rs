//! The log on standard error, for `-v` and `RUST_LOG`.
//!
//! A separate thread writes the lines, because the reader of standard error may stop reading, as a pager does. If the
//! command itself waited for the reader, it would lose the lock. Lines that do not fit into the buffer are dropped.

use std::{
    io::{self, Write},
    sync::{
        OnceLock,
        mpsc::{SyncSender, sync_channel},
    },
    time::Duration,
};

use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt::MakeWriter,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::text;

/// The number of lines that fit into the buffer.
const BUFFER_LINES: usize = 1024;
/// How long the command waits at its end until all lines are written.
const FLUSH_LIMIT: Duration = Duration::from_millis(200);
/// The names of this project's crates begin with this prefix. `-vv` shows the events of these crates.
const OWN_PREFIX: &str = "leasehold";

/// A message to the writing thread.
enum WriterCommand {
    /// Write these bytes to standard error.
    Write(Vec<u8>),
    /// Reply when everything that came before this message is written.
    Flush(SyncSender<()>),
}

/// The channel to the writing thread, which starts when the first line is written. `None`: the operating system could
/// not start a thread.
static WRITER_THREAD: OnceLock<Option<SyncSender<WriterCommand>>> = OnceLock::new();

/// Writes one message as [`text::print_message`] does, but through the writing thread, so that the caller never waits
/// for the reader of standard error.
pub(crate) fn print_message(message: &str) {
    write(text::message_line(message));
}

/// Passes bytes to the writing thread. If the buffer is full, drops the bytes.
fn write(bytes: Vec<u8>) {
    if let Some(thread) = WRITER_THREAD.get_or_init(start_thread) {
        let _ = thread.try_send(WriterCommand::Write(bytes));
    }
}

/// Starts the thread.
fn start_thread() -> Option<SyncSender<WriterCommand>> {
    let (commands, received) = sync_channel(BUFFER_LINES);
    let work = move || {
        for command in received {
            match command {
                // A failed write cannot be reported, because reports go to standard error too.
                WriterCommand::Write(bytes) => drop(io::stderr().write_all(&bytes)),
                WriterCommand::Flush(done) => drop(done.send(())),
            }
        }
    };
    std::thread::Builder::new().name("lh-log".to_owned()).spawn(work).ok().map(|_| commands)
}

/// Waits until all lines are written, but for at most [`FLUSH_LIMIT`].
pub(crate) fn flush() {
    let (done, written) = sync_channel(1);
    if let Some(Some(thread)) = WRITER_THREAD.get()
        && thread.try_send(WriterCommand::Flush(done)).is_ok()
    {
        let _ = written.recv_timeout(FLUSH_LIMIT);
    }
}

/// Starts to log the library's events. `RUST_LOG` selects the events; without it the number of `-v` selects them: two
/// show what happens to locks, three show every step. Call this once in a process, and not before a fork, because only
/// one thread survives a fork.
///
/// A `RUST_LOG` that cannot be parsed, such as one with span filters for another program, does not stop the command: a
/// message says that it is ignored.
pub(crate) fn start(verbose: u8) {
    let targets = match targets(std::env::var("RUST_LOG").ok(), verbose) {
        Ok(Some(targets)) => targets,
        Ok(None) => return,
        Err(why) => return text::print_message(&why),
    };
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(EventWriter);
    // This fails only if a subscriber is set already.
    let _ = tracing_subscriber::registry().with(layer).with(targets).try_init();
}

/// The events to log. `None`: no events.
fn targets(variable: Option<String>, verbose: u8) -> Result<Option<Targets>, String> {
    match (variable.filter(|variable| !variable.is_empty()), verbose) {
        (Some(variable), _) => variable.parse().map(Some).map_err(|error| {
            format!(
                "RUST_LOG is ignored, because it cannot be parsed ({error}): \
                 write it like info or leasehold=debug,redis=trace"
            )
        }),
        (None, 0 | 1) => Ok(None),
        (None, 2) => Ok(Some(Targets::new().with_target(OWN_PREFIX, LevelFilter::DEBUG))),
        (None, _) => Ok(Some(Targets::new().with_target(OWN_PREFIX, LevelFilter::TRACE))),
    }
}

/// Writes each event as one line.
struct EventWriter;

/// The text of one event.
struct EventText(Vec<u8>);

impl MakeWriter<'_> for EventWriter {
    type Writer = EventText;

    fn make_writer(&self) -> EventText {
        EventText(Vec::new())
    }
}

impl Write for EventText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for EventText {
    fn drop(&mut self) {
        // The text is escaped, because events contain names and values that other users chose.
        let event = String::from_utf8_lossy(&self.0);
        write(text::message_line(event.trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_log_overrides_v() {
        let read = |variable: Option<&str>, verbose| {
            targets(variable.map(str::to_owned), verbose)
                .map(|targets| targets.map(|targets| targets.to_string()))
        };
        assert_eq!(read(None, 1).unwrap(), None);
        assert_eq!(read(Some(""), 0).unwrap(), None);
        assert_eq!(read(None, 2).unwrap().unwrap(), "leasehold=debug");
        assert_eq!(read(None, 9).unwrap().unwrap(), "leasehold=trace");
        assert_eq!(read(Some("info,redis=trace"), 3).unwrap().unwrap(), "redis=trace,info");
        assert!(read(Some("loud=very"), 0).unwrap_err().contains("RUST_LOG"));
    }
}
