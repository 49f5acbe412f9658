//! A guard asks the engine to confirm or extend its hold.

use std::time::Duration;

use crate::{Error, Guard, Instant, contract::time::format_duration, pure::lease};

impl Guard {
    /// Asks the engine now whether the hold still exists, and extends it. Cancel safe.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").acquire().await?;
    /// guard.confirm().await?;
    /// # drop(guard);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold does not exist; [`is_unknown`](Error::is_unknown) if the engine did not
    /// answer, or if an [upgrade](Self::try_upgrade) that failed may still be applied.
    pub async fn confirm(&self) -> Result<(), Error> {
        self.confirm_until(None).await
    }

    /// Confirms the hold; with `until`, extends it to that time.
    async fn confirm_until(&self, until: Option<Instant>) -> Result<(), Error> {
        self.handle.ensure_served()?;
        if let Some(report) = self.validity.loss_report(self.handle.now()) {
            return Err(self.lost_error(&report));
        }
        // A hold on a lease or session whose time is fixed is only confirmed.
        let until = until.filter(|_| self.handle.profile.extends);
        self.handle.confirm(&self.name, self.id, until).await?;
        match self.validity.loss_report(self.handle.now()) {
            None => Ok(()),
            Some(report) => Err(self.lost_error(&report)),
        }
    }

    /// Extends the hold once: asks the engine now, and keeps the hold for at least `time` from now on if the engine
    /// grants that, also without further renewals and with [`renew(false)`](crate::Request::renew). Never shortens the
    /// hold. Returns the new [`deadline`](Self::deadline). Background renewals go on as before.
    ///
    /// Guards that share a hold share the extension. `max_hold` still ends the guard. The name stays taken for as long
    /// as `time` says if this process ends without a release. Cancel safe: if the future is dropped, it is not known
    /// whether the hold was extended.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("order/17").acquire().await?;
    /// guard.extend(Duration::from_secs(120)).await?;
    /// assert!(guard.remaining().is_some_and(|left| left > Duration::from_secs(60)));
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_invalid`](Error::is_invalid) if `time` is longer than a hold of the engine's longest ttl is valid;
    /// [`is_misconfigured`](Error::is_misconfigured) if the engine cannot extend the hold so far, because the hold
    /// lives on a lease or session whose time is fixed (etcd, ZooKeeper), or on nodes that may receive the extension at
    /// different times (Redlock); otherwise as [`confirm`](Self::confirm).
    pub async fn extend(&self, time: Duration) -> Result<Option<std::time::Instant>, Error> {
        let longest = lease::valid_for(*self.handle.profile.ttl.end());
        if time > longest {
            let (name, [time, longest]) = (self.name.as_str(), [time, longest].map(format_duration));
            let message = format!("lock {name:?}: cannot extend by {time}: at most {longest} is allowed");
            return Err(Error::invalid(message).of_name(&self.name));
        }
        let until = self.handle.now().after(time);
        self.confirm_until(Some(until)).await?;
        let extended = self.handle.check_extension(&self.name, self.id, until);
        extended.map_err(|error| error.of_name(&self.name))?;
        Ok(self.deadline())
    }

    /// [`confirm`](Self::confirm) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// guard.confirm_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    #[track_caller]
    pub fn confirm_blocking(&self) -> Result<(), Error> {
        self.handle.block_on(self.confirm())?
    }

    /// [`extend`](Self::extend) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// guard.extend_blocking(Duration::from_secs(120))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`extend`](Self::extend).
    #[track_caller]
    pub fn extend_blocking(&self, time: Duration) -> Result<Option<std::time::Instant>, Error> {
        self.handle.block_on(self.extend(time))?
    }
}
