//! What the thread of the database uses: the file at a path, and the clock.

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

/// How long others may write before one who wants to gives up. A request may wait for one that waits, and is answered in time even so.
const BUSY: Duration = Duration::from_secs(2);

pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    /// That of the file that is there now.
    pub(super) lineage: Arc<Mutex<Lineage>>,
}

impl Source for File {
    fn begin(&mut self, file: &mut Option<Opened>, need: Need) -> Result<i64, Failed> {
        // A file in the place of another is another one: what is in it, those who come find.
        file.take_if(|opened| !opened.is_there() || !opened.lasts());
        let fresh = file.is_none();
        let mut begun = self.begin_now(file, need);
        if !fresh && begun.as_ref().is_err_and(|failed| failed.fault == Fault::Misconfigured) {
            // Its tables are others now; whether they can be used, opening it tells.
            *file = None;
            begun = self.begin_now(file, need);
        }
        if begun.as_ref().is_err_and(|failed| failed.fault != Fault::Retry) {
            *file = None;
        }
        begun.map(|()| micros(self.clock.now()))
    }

    fn ring(&self) {
        file_watch::ring(&self.path);
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
                    "others have been using {} for {BUSY:?} without a pause ({failed})",
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
            tracing::warn!(path = %self.path.display(), "other tables took the place of those in use: their locks are lost");
        }
        *lineage = opened.lineage;
        drop(lineage);
        Ok(opened)
    }
}
