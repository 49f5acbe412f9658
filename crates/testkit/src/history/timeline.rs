//! A history: the events of all processes of one run in the order of their stamps.

use std::{fs, io, path::Path};

use super::Event;

/// All events of one run, sorted by time, then process, then running number.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
}

/// Why files are no history.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadHistory {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A line is no event.
    #[error("{path} line {line}: {source}")]
    Line {
        /// In which file.
        path: String,
        /// Counted from 1.
        line: usize,
        /// Why.
        source: serde_json::Error,
    },
    /// Two runs were mixed.
    #[error("events of the runs {0} and {1} are mixed")]
    Mixed(u64, u64),
}

impl History {
    /// Sorts events of one run.
    #[must_use]
    pub fn from_events(mut events: Vec<Event>) -> Self {
        events.sort_by_key(|event| (event.t, event.proc, event.seq));
        Self { events }
    }

    /// Merges the files of the processes of one run. A last line that a killed process left half-written is dropped.
    ///
    /// # Errors
    /// When a file cannot be read, a line is no event, or runs are mixed.
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

fn read_file(path: &Path, events: &mut Vec<Event>) -> Result<(), BadHistory> {
    let shown = || path.display().to_string();
    let bytes = fs::read(path).map_err(|source| BadHistory::Io { path: shown(), source })?;
    // Without a newline at its end the last line was cut short by a kill: its event was never finished.
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    for (at, line) in whole.split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let event = serde_json::from_slice(line).map_err(|source| BadHistory::Line {
            path: shown(),
            line: at + 1,
            source,
        })?;
        events.push(event);
    }
    Ok(())
}
