//! MySQL and MariaDB as a database with session locks.

use std::{
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use leasehold_core::{BoxFuture, Clock, Contact, Diagnostic, EngineError, Fault, Name};

use super::{
    super::{
        config::Config,
        diagnose::{Subject, diagnose},
    },
    open::open,
    pinned::Pinned,
};
use crate::{
    database::Failed,
    session::{
        lock_key::Key,
        options::SessionOptions,
        server::{NameKeys, Session, SessionEvents, SessionServer},
    },
};

/// A server, and how names become keys there.
pub(in super::super) struct Sessions {
    config: Config,
    options: SessionOptions,
    clock: Arc<dyn Clock>,
    contact: Contact,
    /// The database, as the server spelled it at the first session: a part of the keys.
    database: OnceLock<String>,
}

impl Sessions {
    pub(in super::super) fn new(
        config: Config,
        options: SessionOptions,
        clock: Arc<dyn Clock>,
        contact: Contact,
    ) -> Self {
        Self { config, options, clock, contact, database: OnceLock::new() }
    }

    /// The key of a name.
    fn key(&self, name: &Name) -> Result<Key, Failed> {
        let text = format!("{}{name}", self.options.prefix);
        let database = self.database.get();
        let database = database.ok_or_else(|| Failed::new(Fault::Internal, "no session was opened yet"))?;
        self.options.lock_key.mysql(database, &text)
    }

    /// Records how the server spells the database.
    ///
    /// # Errors
    /// If it spelled it in another way before: claims that wait would have keys that no other process has.
    fn record_database(&self, spelled: String) -> Result<(), Failed> {
        let before = self.database.get_or_init(|| spelled.clone());
        if *before == spelled {
            return Ok(());
        }
        Err(Failed::new(
            Fault::Misconfigured,
            "the server spells the database in another way than before: lower_case_table_names was changed; start this process again",
        ))
    }
}

impl SessionServer for Sessions {
    fn open(
        &self,
        session: u64,
        events: Weak<dyn SessionEvents>,
    ) -> BoxFuture<'_, Result<Arc<dyn Session>, Failed>> {
        Box::pin(async move {
            let opened = open(&self.config, self.clock.now()).await;
            let opened =
                opened.inspect_err(|failed| self.contact.record_failure(failed.fault, &failed.message))?;
            self.record_database(opened.database.clone())?;
            self.contact.record_connected_to(&self.config.address());
            let lock_delay = lock_delay(self.options.delay, opened.uptime);
            let address = self.config.address();
            let pinned: Arc<dyn Session> =
                Arc::new(Pinned::new(opened, (session, events), address, (self.options.delay, lock_delay)));
            Ok(pinned)
        })
    }

    fn keys(&self, name: &Name) -> Result<NameKeys, EngineError> {
        let lock = self.key(name)?;
        let (waiters, poller) = (Some(lock.beside("waiters")), Some(lock.beside("poller")));
        Ok(NameKeys { lock, waiters, poller })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, Failed>> {
        Box::pin(diagnose(&self.config, &Subject::Sessions))
    }

    fn has_shared_locks(&self) -> bool {
        false
    }

    fn permit_keys(&self, _: &Name, _: u32) -> Result<(Vec<Key>, Key), EngineError> {
        Err(EngineError::new(Fault::Internal, "a key of GET_LOCK has no permits"))
    }
}

/// For how long nothing is granted on a server that reports this `uptime`: the difference between two times in whole
/// seconds, so the server may have run for up to a second less. A holder of the time before may rely on its hold for up
/// to `delay` after the start.
fn lock_delay(delay: Duration, uptime: Duration) -> Duration {
    delay.saturating_sub(uptime.saturating_sub(Duration::from_secs(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_delay_nothing_is_delayed() {
        assert_eq!(lock_delay(Duration::ZERO, Duration::from_secs(1)), Duration::ZERO);
    }

    /// A server that started at 0.9 s reports an uptime of 1 s at 1.0 s.
    #[test]
    fn the_lock_delay_counts_from_the_latest_start_that_the_uptime_allows() {
        let seconds = Duration::from_secs;
        assert_eq!(lock_delay(seconds(15), seconds(1)), seconds(15));
        assert_eq!(lock_delay(seconds(15), seconds(4)), seconds(12));
        assert_eq!(lock_delay(seconds(15), seconds(15)), seconds(1));
        assert_eq!(lock_delay(seconds(15), seconds(16)), Duration::ZERO);
    }
}
