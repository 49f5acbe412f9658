//! Work under a lock in one call: acquire, run, cancel at a loss, release.

use std::{fmt, future::poll_fn, pin::Pin, time::Duration};

use crate::{Acquire, Error, Guard, Request};

/// Why a `run` under a lock did not return the output of its work. The error of the lock is apart from the errors of
/// the work: work that returns a `Result` gives a `Result` of it here, too.
///
/// Converts into an [`Error`], which does not have the output.
#[non_exhaustive]
pub enum RunError<T> {
    /// The name was not acquired: the work did not begin.
    NotAcquired(Error),
    /// The hold was lost while the work ran: the work was cancelled by dropping its future, and may be half done.
    Cancelled(Error),
    /// The work ran to its end, and has this output. But either the hold was lost before its release, so a part of the
    /// work may have run beside another holder ([`is_lost`](Error::is_lost)); or the engine did not confirm that the
    /// hold lasted until its release ([`is_unknown`](Error::is_unknown)). As far as this process knew, it did. If the
    /// release has not reached the engine, the name is free when the lease of the hold has run out, at the latest;
    /// where a hold has no lease, when the session or the process of the hold has ended.
    Finished {
        /// What the work returned.
        output: T,
        /// What happened to the hold.
        error: Error,
    },
}

impl<T> RunError<T> {
    /// The error of the lock.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// # let elsewhere = locks.mutex("report").blocking().acquire()?;
    /// let error = locks.mutex("report").blocking().try_run(|_| "done").unwrap_err();
    /// assert!(error.error().is_taken());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn error(&self) -> &Error {
        match self {
            Self::NotAcquired(error) | Self::Cancelled(error) | Self::Finished { error, .. } => error,
        }
    }

    /// The output of work that ran to its end.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let error = locks.mutex("report").blocking().run(|guard| {
    ///     // An operator breaks the hold while the work runs.
    ///     locks.break_hold_blocking("report", guard.token().number, true).unwrap();
    ///     "done"
    /// });
    /// let error = error.unwrap_err();
    /// assert!(error.error().is_lost());
    /// assert_eq!(error.into_output(), Some("done"));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn into_output(self) -> Option<T> {
        match self {
            Self::Finished { output, .. } => Some(output),
            Self::NotAcquired(_) | Self::Cancelled(_) => None,
        }
    }
}

impl<T> From<RunError<T>> for Error {
    fn from(error: RunError<T>) -> Self {
        let text = error.to_string();
        match error {
            RunError::NotAcquired(error) => error,
            RunError::Cancelled(error) | RunError::Finished { error, .. } => error.with_message(text),
        }
    }
}

impl<T> fmt::Display for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAcquired(error) => error.fmt(f),
            Self::Cancelled(error) => write!(f, "the work under the lock was cancelled: {error}"),
            Self::Finished { error, .. } => write!(f, "the work under the lock ran to its end, but {error}"),
        }
    }
}

impl<T> fmt::Debug for RunError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self {
            Self::NotAcquired(_) => "NotAcquired",
            Self::Cancelled(_) => "Cancelled",
            Self::Finished { .. } => "Finished",
        };
        f.debug_tuple(stage).field(self.error()).finish()
    }
}

impl<T> std::error::Error for RunError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error().source()
    }
}

impl Request {
    /// Acquires, runs `work`, and releases. The work gets the guard, for its token. At the moment at which the hold is
    /// lost, the work is cancelled by dropping its future; only then is the hold released. The future does not borrow
    /// the request.
    ///
    /// Work that can fail returns a `Result` of its own: the outer result is the lock's, the inner one the work's. If
    /// the work panics, or is dropped half done, the next holder is told of it ([`Guard::previous`]).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # pollster::block_on(async {
    /// # async fn sell(pieces: u32, token: leasehold::Token) -> Result<u32, std::io::Error> { Ok(100 - pieces) }
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let left = locks.mutex("stock/4711").run(async |guard| sell(1, guard.token()).await).await??;
    /// assert_eq!(left, 99);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError::NotAcquired`] if the work did not begin, with the errors of [`acquire`](Self::acquire);
    /// [`RunError::Cancelled`] if the hold was lost while the work ran; [`RunError::Finished`], with the output of the
    /// work, if the hold was lost before its release, or it is unknown whether it was released.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, or drops the work and then releases in the background. A web server drops
    /// the future of a handler when the client hangs up: work that must not end half done runs in a task of its own
    /// (`tokio::spawn`).
    pub fn run<T, W>(&self, work: W) -> impl Future<Output = Result<T, RunError<T>>> + use<T, W>
    where
        W: AsyncFnOnce(&Guard) -> T,
    {
        run_under(self.acquire(), work)
    }

    /// [`run`](Self::run), but waits for at most `limit` for the grant. The work itself has no limit; see
    /// [`max_hold`](Self::max_hold).
    ///
    /// ```
    /// use std::time::Duration;
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let answer = locks.mutex("stock/4711").run_within(Duration::from_secs(2), async |_| 42).await?;
    /// assert_eq!(answer, 42);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), with the errors of [`acquire_within`](Self::acquire_within).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn run_within<T, W>(
        &self,
        limit: Duration,
        work: W,
    ) -> impl Future<Output = Result<T, RunError<T>>> + use<T, W>
    where
        W: AsyncFnOnce(&Guard) -> T,
    {
        run_under(self.acquire_within(limit), work)
    }

    /// [`run`](Self::run), but tries once, without waiting: for a job that one process is to run, while the others go
    /// on.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// # async fn report() {}
    /// match locks.mutex("report").try_run(async |_| report().await).await {
    ///     Err(error) if error.error().is_taken() => println!("another process makes the report"),
    ///     done => done?,
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), with the errors of [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn try_run<T, W>(&self, work: W) -> impl Future<Output = Result<T, RunError<T>>> + use<T, W>
    where
        W: AsyncFnOnce(&Guard) -> T,
    {
        run_under(self.try_acquire(), work)
    }
}

/// Runs `work` under the guard, cancels it at a loss, and releases.
#[expect(
    clippy::manual_async_fn,
    reason = "the future of an async function would have room for its arguments twice"
)]
fn run_under<T, W>(mut acquire: Acquire, work: W) -> impl Future<Output = Result<T, RunError<T>>> + use<T, W>
where
    W: AsyncFnOnce(&Guard) -> T,
{
    async move {
        // A name that is free is granted by the first poll on an engine that does not wait.
        let mut granted_now = true;
        let granted = poll_fn(|cx| {
            let polled = Pin::new(&mut acquire).poll(cx);
            granted_now &= polled.is_ready();
            polled
        });
        let mut guard = match granted.await {
            Ok(guard) => guard,
            Err(error) => return Err(RunError::NotAcquired(error)),
        };
        guard.set_working(true);
        let output = match guard.run_from(work(&guard), granted_now).await {
            Ok(output) => output,
            Err(error) => return Err(RunError::Cancelled(error)),
        };
        guard.set_working(false);
        match guard.release_now().await {
            Ok(()) => Ok(output),
            Err(error) => Err(RunError::Finished { output, error }),
        }
    }
}
