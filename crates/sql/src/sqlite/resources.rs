//! The resources of the database thread: the path of the file, and the clock.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{Clock, Fault, Lineage};

use super::{
    busy_retry::retry_while_busy,
    file_watch,
    opened::Opened,
    worker::{Access, Resources},
};
use crate::{client::lock_mutex, database::Failed, row::micros};

/// How long a writer waits while other processes write before it gives up. This limit is so short that a request in the
/// queue behind the waiting writer can still be answered within its own time limit.
const MAX_BUSY: Duration = Duration::from_secs(2);

/// The path and the clock.
pub(super) struct FileResources {
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    /// The lineage of the tables in the current file, shared with the engine.
    pub(super) lineage: Arc<Mutex<Lineage>>,
}

impl Resources for FileResources {
    fn begin(&mut self, file: &mut Option<Opened>, access: Access) -> Result<i64, Failed> {
        // A replaced file is another database: open what other processes find at the path now.
        file.take_if(|opened| !opened.is_at_path() || !opened.may_stay_open());
        let is_new = file.is_none();
        let mut begun = self.begin_now(file, access);
        if !is_new && begun.as_ref().is_err_and(|failed| failed.fault == Fault::Misconfigured) {
            // The tables have changed; opening the file again checks whether they can be used.
            *file = None;
            begun = self.begin_now(file, access);
        }
        if begun.as_ref().is_err_and(|failed| failed.fault != Fault::Retry) {
            *file = None;
        }
        begun.map(|()| micros(self.clock.now()))
    }

    fn wake_others(&self) {
        file_watch::wake_others(&self.path);
    }
}

impl FileResources {
    /// Opens the file if it is not open, and begins a transaction.
    fn begin_now(&self, file: &mut Option<Opened>, access: Access) -> Result<(), Failed> {
        let opened = match file {
            Some(opened) => opened,
            None => file.insert(self.open(access)?),
        };
        retry_while_busy(&*self.clock, MAX_BUSY, || opened.begin(access)).map_err(|failed| {
            match failed.fault {
                Fault::Retry => Failed::new(
                    Fault::Retry,
                    format!(
                        "other processes have been using {} for {MAX_BUSY:?} without a pause ({failed})",
                        self.path.display()
                    ),
                ),
                _ => Failed::new(failed.fault, format!("cannot use {}: {failed}", self.path.display())),
            }
        })
    }

    /// Opens the file, and stores the lineage of its tables.
    fn open(&self, access: Access) -> Result<Opened, Failed> {
        let opened = Opened::open(&self.path, &*self.clock, access)?;
        if !opened.has_tables() {
            return Ok(opened);
        }
        let mut lineage = lock_mutex(&self.lineage);
        if ![Lineage::new(0), opened.lineage].contains(&*lineage) {
            tracing::warn!(path = %self.path.display(), "the tables were replaced: the locks in the old ones are lost");
        }
        *lineage = opened.lineage;
        drop(lineage);
        Ok(opened)
    }
}
