//! The guard of a leader.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use super::value_memo;
use crate::{BoxFuture, Error, Guard, Loss, MemoKind, NewMemo, Token};

/// For how long the memo of a leader that resigned is kept: longer than a write is repeated, so that a resignation
/// whose answer was lost can be read back.
const ENDED_KEEP: Duration = Duration::from_secs(60);

/// The lead of an [`Election`](crate::Election): one term. Dropping it ends the term, in the background where the
/// engine has a server; [`resign`](Self::resign) waits for the engine's answer.
///
/// A leader that is dropped by a panic reports this to the next one, in [`Guard::previous`] of its
/// [`guard`](Self::guard).
#[must_use = "a leader that is dropped at once leads no longer"]
pub struct Leading {
    guard: Guard,
    /// The engine stores memos, and has that of this leader.
    is_published: bool,
}

impl Leading {
    /// The term of a new leader: its first act is to publish its memo, which replaces that of the last leader.
    pub(super) async fn begin(guard: Guard, memo: Option<NewMemo>) -> Result<Self, Error> {
        let is_published = memo.is_some();
        if let Some(memo) = memo {
            guard.write_memo(memo).await?;
        }
        Ok(Self { guard, is_published })
    }

    pub(super) fn set_working(&mut self, is_working: bool) {
        self.guard.set_working(is_working);
    }

    /// The term: the token of the hold. Larger than the term of every earlier leader. Send it with every order, and let
    /// the receivers refuse a smaller term than the largest that they have seen.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:term")?;
    /// let first = locks.election("scheduler").campaign_blocking()?;
    /// let term = first.term();
    /// first.resign_blocking()?;
    /// assert!(locks.election("scheduler").campaign_blocking()?.term() > term);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn term(&self) -> Token {
        self.guard.token()
    }

    /// The hold, for everything that a guard can do.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:leading-guard")?;
    /// let leading = locks.election("scheduler").campaign_blocking()?;
    /// assert_eq!(leading.guard().name().as_str(), "scheduler");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Whether this leader leads now: see [`Guard::check`].
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:leading-check")?;
    /// let leading = locks.election("scheduler").campaign_blocking()?;
    /// assert!(leading.check());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn check(&self) -> bool {
        self.guard.check()
    }

    /// Resolves when the lead is lost, before anybody else can lead: see [`Guard::lost`]. Cancel safe.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:leading-lost")?;
    /// let leading = locks.election("scheduler").campaign().await?;
    /// let lost = leading.lost();
    /// # locks.break_hold("scheduler", leading.term().number, true).await?;
    /// # leading.guard().confirm().await.unwrap_err();
    /// // Elsewhere, for instance in a branch of `select!`:
    /// println!("stop: {}", lost.await);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + Sync + use<> {
        self.guard.lost()
    }

    /// Runs `work`, and cancels it, by dropping its future, at the moment at which the lead is lost: see
    /// [`Guard::run`].
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:leading-run")?;
    /// let leading = locks.election("scheduler").campaign().await?;
    /// assert_eq!(leading.run(async { 42 }).await?, 42);
    /// leading.resign().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Guard::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.guard.run(work).await
    }

    /// Publishes another value in this term: a text of 1 to 65,536 bytes. The engine stores it only if this leader
    /// still leads there, in one atomic step, so a leader whose term has ended cannot replace the value of the next
    /// one.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:proclaim")?;
    /// let leading = locks.election("scheduler").value("starting").campaign().await?;
    /// leading.proclaim("10.0.0.7:8080").await?;
    /// let leader = locks.election("scheduler").leader().await?.expect("there is one");
    /// assert_eq!(leader.value.as_deref(), Some("10.0.0.7:8080"));
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the term had ended: nothing was changed. [`is_unknown`](Error::is_unknown) if the
    /// engine did not answer. [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos (then nothing
    /// was sent). [`is_invalid`](Error::is_invalid) for an empty or too long value. Otherwise the engine's error.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is not known whether the value is published. A later value replaces it in any case.
    pub async fn proclaim(&self, value: impl Into<String>) -> Result<(), Error> {
        let memo = value_memo(Some(&value.into())).map_err(|error| error.of_name(self.guard.name()))?;
        self.guard.write_memo(memo).await
    }

    /// [`proclaim`](Self::proclaim) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`proclaim`](Self::proclaim).
    #[track_caller]
    pub fn proclaim_blocking(&self, value: impl Into<String>) -> Result<(), Error> {
        self.guard.shared_handle().block_on(self.proclaim(value))?
    }

    /// Ends the term and waits for the engine's answer. The next candidate leads at once, without waiting for the end
    /// of the lease, and observers find no value of this leader any more. Stop all work of the leader before: from here
    /// on another may lead. Dropping the future does not stop the release.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:resign")?;
    /// let leading = locks.election("scheduler").campaign().await?;
    /// leading.resign().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the term had ended before; [`is_unknown`](Error::is_unknown) if the engine did
    /// not answer, or if its answer was lost and another leader has published since: the name is free when the lease
    /// has run out, at the latest. Otherwise the engine's error; the name is released in the background.
    pub fn resign(self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let Self { guard, is_published } = self;
        // Begun now, not at the first poll.
        let release: BoxFuture<'static, _> = if is_published {
            Box::pin(guard.release_with_memo(ended_memo()))
        } else {
            Box::pin(guard.release())
        };
        release
    }

    /// [`resign`](Self::resign) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`resign`](Self::resign).
    #[track_caller]
    pub fn resign_blocking(self) -> Result<(), Error> {
        let handle = Arc::clone(self.guard.shared_handle());
        handle.block_on(self.resign())?
    }
}

/// The memo that a leader leaves when it resigns: without it, something would be left for long of an election that
/// nobody leads any more.
fn ended_memo() -> NewMemo {
    NewMemo::new(MemoKind::ELECTION, "", ENDED_KEEP).expect("no bytes and a minute are allowed")
}

impl fmt::Debug for Leading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leading").field(&self.guard).finish()
    }
}
