//! The file at a path and the clock, for the thread of the database.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use leasehold_core::{Clock, Fault, Lineage};

use super::{
    file_watch,
    opened::Opened,
    patience::patiently,
    worker::{Need, Source},
};
use crate::{client::lock_of, database::Failed, row::micros};

/// How long other processes may write before a writer gives up. Even a request behind a waiting one is answered in
/// time.
const BUSY: Duration = Duration::from_secs(2);

pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    /// The lineage of the current file.
    pub(super) lineage: Arc<Mutex<Lineage>>,
}

impl Source for File {
    fn begin(&mut self, file: &mut Option<Opened>, need: Need) -> Result<i64, Failed> {
        // A replaced file is another database: use what other processes find there.
        file.take_if(|opened| !opened.is_there() || !opened.lasts());
        let fresh = file.is_none();
        let mut begun = self.begin_now(file, need);
        if !fresh && begun.as_ref().is_err_and(|failed| failed.fault == Fault::Misconfigured) {
            // Its tables have changed; opening it again checks whether they can be used.
            *file = None;
            begun = self.begin_now(file, need);
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

impl File {
    fn begin_now(&self, file: &mut Option<Opened>, need: Need) -> Result<(), Failed> {
        let opened = match file {
            Some(opened) => opened,
            None => file.insert(self.open(need)?),
        };
        patiently(&*self.clock, BUSY, || opened.begin(need)).map_err(|failed| match failed.fault {
            Fault::Retry => Failed::new(
                Fault::Retry,
                format!(
                    "other processes have been using {} for {BUSY:?} without a pause ({failed})",
                    self.path.display()
                ),
            ),
            _ => Failed::new(failed.fault, format!("cannot use {}: {failed}", self.path.display())),
        })
    }

    fn open(&self, need: Need) -> Result<Opened, Failed> {
        let opened = Opened::open(&self.path, &*self.clock, need)?;
        if !opened.is_real() {
            return Ok(opened);
        }
        let mut lineage = lock_of(&self.lineage);
        if ![Lineage::new(0), opened.lineage].contains(&*lineage) {
            tracing::warn!(path = %self.path.display(), "the tables were replaced: the locks in the old ones are lost");
        }
        *lineage = opened.lineage;
        drop(lineage);
        Ok(opened)
    }
}
