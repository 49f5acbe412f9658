//! The lock of a scenario: leasehold, a lock of an article, or none.

use leasehold::{Guard, Locks, Token};

use crate::{Failure, Floor, TTL, Textbook, TextbookHold};

/// What keeps two workers out of the section at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// A lock of leasehold.
    Leasehold,
    /// Nothing: the option `--without-lock`.
    WithoutLock,
    /// A lock as articles show it, with a mistake: the option `--textbook`.
    Textbook,
}

impl Protection {
    /// The word for the environment of a worker.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::WithoutLock => "without-lock",
            Self::Textbook => "textbook",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<Self> {
        [Self::Leasehold, Self::WithoutLock, Self::Textbook].into_iter().find(|known| known.word() == word)
    }

    /// The words for the reader of the output.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Leasehold => "with leasehold",
            Self::WithoutLock => "without a lock",
            Self::Textbook => "with the article's lock",
        }
    }
}

/// The locks of one worker.
#[derive(Clone)]
pub enum WorkerLocks {
    /// Those of leasehold.
    Leasehold(Locks),
    /// Those of an article, on a Redis server.
    Textbook(Textbook),
    /// None.
    None,
}

/// A hold of a worker.
pub enum Hold {
    /// A hold of leasehold.
    Leasehold(Guard),
    /// A hold by a lock of an article.
    Textbook(TextbookHold),
    /// The worker is in the section without a lock.
    None,
}

impl WorkerLocks {
    /// The locks of a worker of this floor. `textbook` makes the locks of the article from the URL of a Redis.
    ///
    /// # Errors
    /// Those of `Locks::connect` and of `textbook`.
    pub fn connect(
        floor: &Floor,
        textbook: impl FnOnce(&str) -> Result<Textbook, Failure>,
    ) -> Result<Self, Failure> {
        Ok(match floor.protection {
            Protection::Leasehold => Self::Leasehold(floor.locks()?),
            Protection::Textbook => Self::Textbook(textbook(&floor.url)?),
            Protection::WithoutLock => Self::None,
        })
    }

    /// Waits for the lock of this name.
    ///
    /// # Errors
    /// Those of an acquire, or of the connection to Redis.
    pub async fn acquire(&self, name: &str) -> Result<Hold, Failure> {
        Ok(match self {
            Self::Leasehold(locks) => Hold::Leasehold(locks.mutex(name).ttl(TTL).acquire().await?),
            Self::Textbook(textbook) => Hold::Textbook(textbook.acquire(name).await?),
            Self::None => Hold::None,
        })
    }
}

impl Hold {
    /// The guard of a hold of leasehold.
    #[must_use]
    pub const fn guard(&self) -> Option<&Guard> {
        match self {
            Self::Leasehold(guard) => Some(guard),
            Self::Textbook(_) | Self::None => None,
        }
    }

    /// The token for a fence. Only leasehold has one.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.guard().map(Guard::token)
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// Those of a release, or of the connection to Redis.
    pub async fn release(self) -> Result<(), Failure> {
        match self {
            Self::Leasehold(guard) => Ok(guard.release().await?),
            Self::Textbook(hold) => hold.release(),
            Self::None => Ok(()),
        }
    }
}
