//! How the locks of sessions are used, as their user chose it.

use std::time::Duration;

use leasehold_core::Error;

use super::lock_key::LockKey;

/// The longest lock delay.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// For how long a hold is valid after an answered request, at most.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(15);
/// For how long the server keeps a session whose connection is silent. Twice as long as any hold is valid: a message of
/// the server that was not acknowledged may be older than our last heartbeat.
pub(crate) const SERVER_KEEPS: Duration = Duration::from_secs(30);

/// How the locks of sessions are used.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    pub(crate) lock_key: LockKey,
    pub(crate) prefix: String,
    /// How long nothing is granted after the server started.
    pub(crate) delay: Duration,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { lock_key: LockKey::default(), prefix: String::new(), delay: LONGEST_TTL }
    }
}

impl SessionOptions {
    /// The derivation of the keys on PostgreSQL, as the URL option `lock_key` names it.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if it is unknown. The error does not show it.
    #[cfg(feature = "postgres")]
    pub fn lock_key(mut self, text: &str) -> Result<Self, Error> {
        self.lock_key = LockKey::of_postgres(text)?;
        Ok(self)
    }

    /// The derivation of the keys on MySQL and MariaDB, as the URL option `lock_key` names it.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if it is unknown. The error does not show it.
    #[cfg(feature = "mysql")]
    pub fn mysql_lock_key(mut self, text: &str) -> Result<Self, Error> {
        self.lock_key = LockKey::of_mysql(text)?;
        Ok(self)
    }

    /// A text that precedes every name when its key is derived.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How long nothing is granted after the server started: a holder of the time before may rely on its hold for up to
    /// 15 s. A shorter time lowers the guarantee. The longest is 60 s.
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if it is longer.
    pub fn delay(mut self, delay: Duration) -> Result<Self, Error> {
        if delay > MAX_DELAY {
            return Err(Error::misconfigured("the URL option delay is from 0s to 60s"));
        }
        self.delay = delay;
        Ok(self)
    }
}
