//! Requests for code without an executor: each call blocks the thread of the caller.

use std::time::Duration;

use crate::{Error, Guard, Request, RunError};

/// A [`Request`] for code without an executor: each method blocks the thread. Not for use inside async code.
///
/// A guard has blocking methods too, such as [`release_blocking`](Guard::release_blocking) and
/// [`confirm_blocking`](Guard::confirm_blocking), and [`on_lost`](Guard::on_lost) for code that cannot await a loss.
///
/// # Calls that could never end
/// A blocking call waits for the [keeper](crate::Keeper), so a call that keeps the keeper from running would wait for
/// itself. Unless it is decided at once, as by an engine inside this process, such a call ends as follows. This holds
/// for all blocking calls of this crate:
///
/// - in an [observer](crate::Observe), on whatever thread, and in any other function that the keeper's thread calls: an
///   error at once ([`is_misconfigured`](Error::is_misconfigured));
/// - with a keeper [on a runtime](crate::Keeper::on) that runs none of its tasks, because nobody runs the runtime, or
///   because blocking calls like this one occupy all its workers: the same error after 10 s;
/// - in a task of such a runtime that has a single thread (`current_thread`): a panic, as for any other blocking call
///   there. Use the async methods, or `spawn_blocking`.
///
/// ```
/// # let locks = leasehold::Locks::connect("memory:")?;
/// use std::time::Duration;
/// let stock = locks.mutex("stock/4711").ttl(Duration::from_secs(10)).blocking();
/// let guard = stock.acquire_within(Duration::from_secs(2))?;
/// guard.release_blocking()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is acquired"]
pub struct Blocking(Request);

impl Blocking {
    pub(crate) const fn new(request: Request) -> Self {
        Self(request)
    }

    /// See [`Request::acquire`].
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// guard.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Request::acquire`].
    ///
    /// # Panics
    /// In a task on the single thread that runs the [`Keeper`](crate::Keeper): see [`Blocking`].
    #[track_caller]
    pub fn acquire(&self) -> Result<Guard, Error> {
        self.0.handle().block_on(self.0.acquire())?
    }

    /// See [`Request::acquire_within`].
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("order/17").blocking().acquire_within(Duration::from_secs(2))?;
    /// let error = locks.mutex("order/17").blocking().acquire_within(Duration::ZERO).unwrap_err();
    /// assert!(error.is_timed_out());
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Request::acquire_within`].
    ///
    /// # Panics
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_within(&self, limit: Duration) -> Result<Guard, Error> {
        self.0.handle().block_on(self.0.acquire_within(limit))?
    }

    /// See [`Request::try_acquire`].
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().try_acquire()?;
    /// assert!(locks.mutex("order/17").blocking().try_acquire().unwrap_err().is_taken());
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Request::try_acquire`].
    ///
    /// # Panics
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn try_acquire(&self) -> Result<Guard, Error> {
        self.0.handle().block_on(self.0.try_acquire())?
    }

    /// Acquires, runs `work`, and releases: [`Request::run`] for code without an executor.
    ///
    /// A thread cannot be cancelled, so `work` runs to its end even if the hold is lost. Long work should look at
    /// [`Guard::check`] now and then, or be told by [`Guard::on_lost`].
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let left = locks.mutex("stock/4711").blocking().run(|guard| {
    ///     assert!(guard.check());
    ///     99
    /// })?;
    /// assert_eq!(left, 99);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`RunError::NotAcquired`] if `work` did not begin; [`RunError::Finished`], with the output of `work`, if the
    /// hold was lost before its release, or it is unknown whether it was released.
    ///
    /// # Panics
    /// As [`acquire`](Self::acquire). A panic of `work` is passed on; the next holder is told of it.
    #[track_caller]
    pub fn run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
        run_under(self.acquire(), work)
    }

    /// [`run`](Self::run), but waits for at most `limit` for the grant. `work` itself has no limit.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let answer = locks.mutex("stock/4711").blocking().run_within(Duration::from_secs(2), |_| 42)?;
    /// assert_eq!(answer, 42);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn run_within<T>(&self, limit: Duration, work: impl FnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
        run_under(self.acquire_within(limit), work)
    }

    /// [`run`](Self::run), but tries once, without waiting.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let elsewhere = locks.mutex("report").blocking().acquire()?;
    /// let error = locks.mutex("report").blocking().try_run(|_| "ran here").unwrap_err();
    /// assert!(error.error().is_taken(), "it runs elsewhere");
    /// # drop(elsewhere);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn try_run<T>(&self, work: impl FnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
        run_under(self.try_acquire(), work)
    }
}

/// Runs `work` under the guard, and releases it.
#[track_caller]
fn run_under<T>(acquired: Result<Guard, Error>, work: impl FnOnce(&Guard) -> T) -> Result<T, RunError<T>> {
    let guard = acquired.map_err(RunError::NotAcquired)?;
    let output = work(&guard);
    match guard.release_blocking() {
        Ok(()) => Ok(output),
        Err(error) => Err(RunError::Finished { output, error }),
    }
}
