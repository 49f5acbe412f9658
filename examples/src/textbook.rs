//! The locks that articles show, on one Redis server: `SET key value NX PX ttl`, and a deletion. They have no renewal,
//! so a section that takes longer than the ttl goes on without the lock. Two further mistakes are common: a release
//! that does not look whose lock it deletes, and one value for all holders, so that such a look finds nothing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::Connection;

use crate::{Failure, floor::unique_word};

/// Articles use 1 s to 10 s. The ttl is shorter here only so that the reader waits for less time.
const TTL: Duration = Duration::from_millis(300);
/// How long a waiter sleeps before it tries again. Articles use 1 ms to 100 ms.
const PAUSE: Duration = Duration::from_millis(10);
/// The script of the articles that compare before they delete.
const DELETE_OWN: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// What the holder writes as the value of the key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A value that no other holder has.
    Unique,
    /// The same word for every holder.
    Constant,
}

/// How the holder releases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// Deletes the key if it has the holder's value.
    Compare,
    /// Deletes the key.
    Delete,
}

/// The locks of one process.
#[derive(Clone)]
pub struct Textbook {
    connection: Arc<Mutex<Connection>>,
    owner: Owner,
    release: Release,
}

/// A hold, as the holder sees it. Dropping it does not release.
pub struct TextbookHold {
    textbook: Textbook,
    key: String,
    value: String,
}

impl Textbook {
    /// Connects to a Redis server.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn connect(url: &str, owner: Owner, release: Release) -> Result<Self, Failure> {
        let connection = Arc::new(Mutex::new(redis::Client::open(url)?.get_connection()?));
        Ok(Self { connection, owner, release })
    }

    /// Tries once.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn try_acquire(&self, name: &str) -> Result<Option<TextbookHold>, Failure> {
        let value = match self.owner {
            Owner::Unique => unique_word(),
            Owner::Constant => "locked".to_owned(),
        };
        let key = format!("article:{name}");
        let mut set = redis::cmd("SET");
        set.arg(&key).arg(&value).arg("NX").arg("PX").arg(TTL.as_millis() as u64);
        let answer: Option<String> = set.query(&mut *self.lock())?;
        Ok(answer.map(|_| TextbookHold { textbook: self.clone(), key, value }))
    }

    /// Tries again and again.
    ///
    /// # Errors
    /// Those of the connection.
    pub async fn acquire(&self, name: &str) -> Result<TextbookHold, Failure> {
        loop {
            if let Some(hold) = self.try_acquire(name)? {
                return Ok(hold);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TextbookHold {
    /// Releases, as the article does.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn release(self) -> Result<(), Failure> {
        let mut command = match self.textbook.release {
            Release::Delete => redis::cmd("DEL"),
            Release::Compare => redis::cmd("EVAL").arg(DELETE_OWN).arg(1).to_owned(),
        };
        command.arg(&self.key);
        if self.textbook.release == Release::Compare {
            command.arg(&self.value);
        }
        command.query::<i64>(&mut *self.textbook.lock())?;
        Ok(())
    }
}
