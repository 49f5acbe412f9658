//! A history: the events of all processes of one run, sorted by time.

use std::{fs, io, path::Path};

use super::Event;

/// All events of one run, sorted by time, then process, then sequence number.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
}

/// The reason why files cannot be read as a history.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadHistory {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
    /// A line is not an event.
    #[error("{path} line {line}: {source}")]
    Line {
        /// The file.
        path: String,
        /// The line number, from 1.
        line: usize,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The files contain several runs.
    #[error("events of the runs {0} and {1} are mixed")]
    Mixed(u64, u64),
}

impl History {
    /// Sorts the events of one run.
    #[must_use]
    pub fn from_events(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| (event.t, event.proc, event.seq));
        Self { events }
    }

    /// Merges the files of the processes of one run. A last line that a killed process wrote only in part is dropped.
    ///
    /// # Errors
    /// If a file cannot be read, a line is not an event, or the files contain several runs.
    pub fn merge<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self, BadHistory> {
        let mut events = Vec::new();
        for path in paths {
            read_file(path.as_ref(), &mut events)?;
        }
        if let Some(first) = events.first() {
            let run = first.run;
            if let Some(other) = events.iter().find(|event| event.run != run) {
                return Err(BadHistory::Mixed(run, other.run));
            }
        }
        Ok(Self::from_events(events))
    }

    /// The events in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

/// Appends the events of a file.
fn read_file(path: &Path, events: &mut Vec<Event>) -> Result<(), BadHistory> {
    let shown = || path.display().to_string();
    let bytes = fs::read(path).map_err(|source| BadHistory::Io { path: shown(), source })?;
    // A last line without a newline was cut short by a kill, so its event is incomplete.
    let complete_lines = bytes.iter().rposition(|&byte| byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    for (index, line) in complete_lines.split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let event = serde_json::from_slice(line).map_err(|source| BadHistory::Line {
            path: shown(),
            line: index + 1,
            source,
        })?;
        events.push(event);
    }
    Ok(())
}
