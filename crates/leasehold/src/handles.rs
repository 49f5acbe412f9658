//! Holds that are taken up from a handle.

use std::time::Duration;

use leasehold_core::{Error, Guard, Handle};

use crate::Locks;

impl Locks {
    /// Takes up the hold of a handle: asks the engine whether the hold still exists, and extends it to at least the
    /// [ttl](Handle::ttl) of the handle from now on. Never shortens the hold. The guard renews the hold in the
    /// background and releases it when it is dropped, as every guard; [`Guard::into_handle`] leaves the hold again.
    ///
    /// Only one process may use a handle at a time: all guards and commands of a handle have one hold, and the first
    /// release ends it for all. [`Guard::previous`] of the guard is unknown.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("deploy").acquire().await?;
    /// let handle = guard.into_handle()?;
    ///
    /// // Elsewhere, for instance in a later step of a job: extend the hold and leave it again.
    /// let guard = locks.resume(&handle.with_ttl(Duration::from_secs(600))).await?;
    /// let handle = guard.into_handle()?;
    /// locks.resume(&handle).await?.release().await?;
    ///
    /// assert!(locks.resume(&handle).await.unwrap_err().is_lost());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold is gone; [`is_unknown`](Error::is_unknown) or
    /// [`is_unreachable`](Error::is_unreachable) if the engine did not answer, and the hold may exist;
    /// [`is_invalid`](Error::is_invalid) for a handle of another engine, a ttl out of range, or a hold that a guard of
    /// this process has; [`is_misconfigured`](Error::is_misconfigured) on an engine without
    /// [handles](crate::Profile::no_handles).
    ///
    /// # Cancel safety
    /// If the future is dropped, it is not known whether the hold was extended. It stays a hold without a process.
    pub async fn resume(&self, handle: &Handle) -> Result<Guard, Error> {
        self.core.resume(handle).await
    }

    /// [`resume`](Self::resume) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let handle = locks.mutex("deploy").blocking().acquire()?.into_handle()?;
    /// locks.resume_blocking(&handle)?.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    #[track_caller]
    pub fn resume_blocking(&self, handle: &Handle) -> Result<Guard, Error> {
        self.core.resume_blocking(handle)
    }

    /// Extends the hold of a handle to at least the [ttl](Handle::ttl) of the handle from now on, without taking it up:
    /// it stays without a process. Never shortens the hold. Returns for how long it is valid from now on, at least.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let handle = locks.mutex("deploy").acquire().await?.into_handle()?;
    /// let valid = locks.extend_handle(&handle.clone().with_ttl(Duration::from_secs(600))).await?;
    /// assert!(valid > Duration::from_secs(500));
    /// locks.release_handle(&handle).await
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    ///
    /// # Cancel safety
    /// If the future is dropped, it is not known whether the hold was extended.
    pub async fn extend_handle(&self, handle: &Handle) -> Result<Duration, Error> {
        self.core.extend_handle(handle).await
    }

    /// [`extend_handle`](Self::extend_handle) for code without an executor: blocks the thread until the engine has
    /// answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let handle = locks.mutex("deploy").blocking().acquire()?.into_handle()?;
    /// locks.extend_handle_blocking(&handle)?;
    /// # locks.release_handle_blocking(&handle)?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`extend_handle`](Self::extend_handle).
    #[track_caller]
    pub fn extend_handle_blocking(&self, handle: &Handle) -> Result<Duration, Error> {
        self.core.extend_handle_blocking(handle)
    }

    /// Releases the hold of a handle, after it has asked the engine whether the hold still exists.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let handle = locks.mutex("deploy").acquire().await?.into_handle()?;
    /// locks.release_handle(&handle).await?;
    /// assert!(locks.release_handle(&handle).await.unwrap_err().is_lost(), "it is over");
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`resume`](Self::resume), and as [`Guard::release`]: [`is_lost`](Error::is_lost) if the hold had ended
    /// before.
    ///
    /// # Cancel safety
    /// Dropping the future after its request was sent does not stop the release.
    pub async fn release_handle(&self, handle: &Handle) -> Result<(), Error> {
        self.core.release_handle(handle).await
    }

    /// [`release_handle`](Self::release_handle) for code without an executor: blocks the thread until the engine has
    /// answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let handle = locks.mutex("deploy").blocking().acquire()?.into_handle()?;
    /// locks.release_handle_blocking(&handle)?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`release_handle`](Self::release_handle).
    #[track_caller]
    pub fn release_handle_blocking(&self, handle: &Handle) -> Result<(), Error> {
        self.core.release_handle_blocking(handle)
    }
}
