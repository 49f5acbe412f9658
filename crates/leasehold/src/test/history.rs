//! The events of all processes of a kit, as lines.

use std::sync::{Arc, Mutex, PoisonError};

use super::clock::KitClock;
use crate::{Event, Observe};

/// The most lines that a kit keeps: a test that makes more reads them on the way.
const MAX_LINES: usize = 1_000_000;

/// The lines of all processes.
#[derive(Default)]
pub(super) struct History(Mutex<Vec<String>>);

impl History {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn push(&self, line: String) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < MAX_LINES {
            lines.push(line);
        }
    }
}

/// Adds the events of one process to the history.
pub(super) struct ProcessHistory {
    pub(super) process: String,
    pub(super) clock: Arc<KitClock>,
    pub(super) history: Arc<History>,
}

impl Observe for ProcessHistory {
    fn event(&self, event: &Event<'_>) {
        let what = match event {
            Event::WaitBegun { .. } => "wait begun".to_owned(),
            Event::Queued { ahead: Some(ahead), .. } => format!("queued behind {ahead}"),
            Event::Queued { .. } => "queued".to_owned(),
            Event::Granted { .. } => "granted".to_owned(),
            Event::Cancelled { waited, .. } => format!("cancelled after {waited:?}"),
            Event::Refused { error, .. } => format!("refused: {}", error.kind().as_str()),
            Event::Renewed { .. } => "renewed".to_owned(),
            Event::RenewalFailed { .. } => "renewal failed".to_owned(),
            Event::Lost { loss, .. } => format!("lost: {}", loss.as_str()),
            Event::Released { held, end, .. } => format!("released after {held:?}: {end:?}"),
            Event::Connected { again: true, .. } => "connected again".to_owned(),
            Event::Connected { .. } => "connected".to_owned(),
            Event::Disconnected { .. } => "disconnected".to_owned(),
            // One line for each request would hide the other lines.
            _ => return,
        };
        let name = event.name().map(|name| format!(" {:?}", name.as_str())).unwrap_or_default();
        let mode = event.mode().map(|mode| format!(" {mode}")).unwrap_or_default();
        let token = event.token().map(|token| format!(" token {}", token.number)).unwrap_or_default();
        let (time, process) = (self.clock.elapsed(), &self.process);
        self.history.push(format!("{time:?} {process}{name}{mode}{token}: {what}"));
    }
}
