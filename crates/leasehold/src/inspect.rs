//! The methods of `Locks` for operators and health checks: reach the engine, show what is held, end a hold.

use leasehold_core::{Broken, Diagnostic, Error, Guarantee, Notices, View, Watched};

use crate::Locks;

impl Locks {
    /// Whether the engine can be reached with the given credentials: one round trip, which creates nothing there. For
    /// the start of a program and for health checks, because [`connect`](Self::connect) contacts no server. Cancel
    /// safe.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// let locks = leasehold::Locks::connect("memory:")?;
    /// locks.ping().await
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's error. [`is_unreachable`](Error::is_unreachable) at the latest when the time for connecting
    /// ([`connect_timeout`](crate::Connect::connect_timeout)) has passed.
    pub async fn ping(&self) -> Result<(), Error> {
        self.core.ping().await
    }

    /// [`ping`](Self::ping) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// leasehold::Locks::connect("memory:")?.ping_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`ping`](Self::ping).
    #[track_caller]
    pub fn ping_blocking(&self) -> Result<(), Error> {
        self.core.ping_blocking()
    }

    /// What the engine promises with its present settings, and which settings lower the promise. Cancel safe.
    ///
    /// ```
    /// use leasehold::Level;
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guarantee = locks.guarantee().await?;
    /// assert_eq!(guarantee.level, Level::LeaseBounded);
    /// guarantee.findings.iter().for_each(|finding| println!("{finding}"));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's error, if the engine had to be asked.
    pub async fn guarantee(&self) -> Result<Guarantee, Error> {
        self.core.guarantee().await
    }

    /// [`guarantee`](Self::guarantee) for code without an executor.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// println!("{}", locks.guarantee_blocking()?);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`guarantee`](Self::guarantee).
    #[track_caller]
    pub fn guarantee_blocking(&self) -> Result<Guarantee, Error> {
        self.core.guarantee_blocking()
    }

    /// What an operator should know about the servers, their clocks and the rights of this user, beside what the
    /// [`guarantee`](Self::guarantee) says. It changes nothing on the servers, and takes several requests. Cancel safe.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// for diagnostic in locks.diagnose().await? {
    ///     println!("{}: {}. {}", diagnostic.severity, diagnostic.found, diagnostic.advice);
    /// }
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's error, if the engine cannot be asked at all.
    pub async fn diagnose(&self) -> Result<Vec<Diagnostic>, Error> {
        self.core.diagnose().await
    }

    /// [`diagnose`](Self::diagnose) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// println!("{} diagnostics", locks.diagnose_blocking()?.len());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`diagnose`](Self::diagnose).
    #[track_caller]
    pub fn diagnose_blocking(&self) -> Result<Vec<Diagnostic>, Error> {
        self.core.diagnose_blocking()
    }

    /// The names that begin with `prefix` and have a holder or a waiter. Cancel safe.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:of-list")?;
    /// let guard = locks.mutex("order/17").acquire().await?;
    /// assert_eq!(locks.list("order/").await?.len(), 1);
    /// # drop(guard);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's error.
    pub async fn list(&self, prefix: &str) -> Result<Vec<View>, Error> {
        self.core.list(prefix).await
    }

    /// [`list`](Self::list) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:of-list-blocking")?;
    /// assert!(locks.list_blocking("")?.is_empty());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`list`](Self::list).
    #[track_caller]
    pub fn list_blocking(&self, prefix: &str) -> Result<Vec<View>, Error> {
        self.core.list_blocking(prefix)
    }

    /// The holders and the waiters of `name`. The answer is of the past when it arrives: use it to inform people, not
    /// to decide whether to acquire. Cancel safe.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("shown").owner("importer").acquire().await?;
    /// let view = locks.show("shown").await?;
    /// assert_eq!(view.holders[0].owner, "importer");
    /// assert_eq!(view.holders[0].token, Some(guard.token().number));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's error; [`is_invalid`](Error::is_invalid) for an invalid name.
    pub async fn show(&self, name: &str) -> Result<View, Error> {
        self.core.show(name).await
    }

    /// [`show`](Self::show) for code without an executor.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// assert!(locks.show_blocking("never-used")?.holders.is_empty());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`show`](Self::show).
    #[track_caller]
    pub fn show_blocking(&self, name: &str) -> Result<View, Error> {
        self.core.show_blocking(name)
    }

    /// Ends the hold of `name` whose tokens contain `token`. With `force`, the next grant does not wait until the
    /// broken holder releases or its lease ends. Then only a fence protects the resource from the broken holder.
    ///
    /// ```
    /// use leasehold::Broken;
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("stuck").acquire().await?;
    /// let token = guard.token().number;
    /// assert_eq!(locks.break_hold("stuck", token, true).await?, Broken::Done);
    /// assert!(guard.release().await.unwrap_err().is_lost());
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The engine's error; [`is_denied`](Error::is_denied) where the engine cannot break this hold.
    ///
    /// # Cancel safety
    /// If the future is dropped, it is not known whether the hold was broken.
    pub async fn break_hold(&self, name: &str, token: u64, force: bool) -> Result<Broken, Error> {
        self.core.break_hold(name, token, force).await
    }

    /// [`break_hold`](Self::break_hold) for code without an executor.
    ///
    /// ```
    /// use leasehold::Broken;
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// assert_eq!(locks.break_hold_blocking("never-used", 17, false)?, Broken::NotHeld);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`break_hold`](Self::break_hold).
    #[track_caller]
    pub fn break_hold_blocking(&self, name: &str, token: u64, force: bool) -> Result<Broken, Error> {
        self.core.break_hold_blocking(name, token, force)
    }

    /// Notices that locks with these names may have changed, for views, until the returned value or this `Locks` is
    /// dropped.
    #[doc(hidden)]
    #[must_use]
    pub fn notices(&self, watched: Watched) -> Notices {
        self.core.notices(watched)
    }
}
