//! The limits on how many requests of a `Locks` wait: for all names together, and for one name.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use crate::{Error, ErrorKind, Name};

/// Counts the waiting requests of all names, if their number is limited.
pub(crate) struct WaitLimit {
    limit: Option<usize>,
    waiting: Arc<AtomicUsize>,
}

/// A waiting request that counts until this value is dropped.
pub(crate) struct CountedWait(Arc<AtomicUsize>);

impl WaitLimit {
    pub(crate) fn new(limit: Option<usize>) -> Self {
        Self { limit, waiting: Arc::default() }
    }

    /// Counts one more waiting request for `name`; `None` if their number is not limited.
    ///
    /// # Errors
    /// [`ErrorKind::Busy`] if as many requests wait as the limit allows.
    pub(super) fn count(&self, engine: &str, name: &Name) -> Result<Option<CountedWait>, Error> {
        let Some(limit) = self.limit else { return Ok(None) };
        let one_more = |waiting: usize| (waiting < limit).then_some(waiting + 1);
        match self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more) {
            Ok(_) => Ok(Some(CountedWait(Arc::clone(&self.waiting)))),
            Err(waiting) => Err(busy_error(engine, name, waiting, "for all names together")),
        }
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Refuses a request for a name for which `waiting` requests of this process wait, if its own limit is reached.
pub(super) fn check_name(
    engine: &str,
    name: &Name,
    waiting: usize,
    limit: Option<usize>,
) -> Result<(), Error> {
    match limit {
        Some(limit) if waiting >= limit => Err(busy_error(engine, name, waiting, "for this name")),
        _ => Ok(()),
    }
}

fn busy_error(engine: &str, name: &Name, waiting: usize, what_for: &str) -> Error {
    let message = format!(
        "{engine} lock {:?}: busy: requests of this process that wait {what_for}: {waiting}, and max_waiting allows no more",
        name.as_str()
    );
    Error::new(ErrorKind::Busy, message)
}
