//! A guard is converted: an exclusive one becomes shared, or a shared one exclusive, without a release between.

use std::{fmt, sync::Arc};

use tokio::sync::oneshot;

use super::forked_error;
use crate::{
    Error, ErrorKind, Guard, Mode,
    driver::keeper::{Converter, GuardSlot, KeeperJob, poll_once},
    driver::shared::SharedHandle,
};

impl Guard {
    /// Makes an exclusive guard shared: the holder goes on to read what it has written, and lets other readers in.
    ///
    /// No writer gets the name between. Readers that wait ahead of the next writer get it in the same step, and a
    /// writer that waits keeps its place in the queue. The guard keeps its [token](Self::token) and its
    /// [`max_hold`](crate::Request::max_hold), and its lease begins anew, as by [`confirm`](Self::confirm). For the
    /// [`previous`](Self::previous) of the readers, the exclusive hold ended clean.
    ///
    /// Memory, Redis (strings, not Redlock) and the lease rows of SQL databases can do this. Other engines refuse, and
    /// [`Profile::no_conversion`](crate::Profile::no_conversion) has the reason.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let writer = locks.rw("catalog").write().acquire().await?;
    /// // ... write the catalog ...
    /// let reader = writer.downgrade().await?;
    /// assert_eq!(reader.mode(), leasehold::Mode::Shared);
    /// let other_reader = locks.rw("catalog").read().acquire().await?;
    /// # drop(other_reader);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, also before its first poll, the guard is released.
    ///
    /// # Errors
    /// [`NotConverted`] has the guard and the error: [`is_misconfigured`](Error::is_misconfigured) if the engine cannot
    /// convert holds (then nothing was sent); [`is_invalid`](Error::is_invalid) for a guard that is not exclusive, or
    /// whose [`Owner`](crate::Owner) has entered the hold again; [`is_lost`](Error::is_lost) if the hold had ended;
    /// [`is_unknown`](Error::is_unknown) if the engine did not answer as long as the hold was valid, for at most 30 s:
    /// the guard is then shared, and other readers can get the name when the engine has answered: each renewal repeats
    /// the downgrade. [`ErrorKind::Forked`] in a child process. Otherwise the engine's error, with which the guard
    /// stays exclusive.
    pub async fn downgrade(self) -> Result<Self, NotConverted> {
        convert(self, Mode::Shared).await
    }

    /// Tries to make a shared guard exclusive, without waiting: the guard must be the only holder of the name, and
    /// nobody may wait for it. Then the guard gets a new, larger [token](Self::token) and a new [id](Self::id), and a
    /// new lease; its [`max_hold`](crate::Request::max_hold) goes on.
    ///
    /// Two readers that both want to become the writer never wait for each other: at most one of them succeeds. A
    /// reader that does not succeed keeps its shared guard. To write, it releases the guard, acquires the name
    /// exclusively, and reads the data again, because a writer may have been between.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let reader = locks.rw("catalog").read().acquire().await?;
    /// let token = reader.token();
    /// match reader.try_upgrade().await {
    ///     Ok(writer) => assert!(writer.token().number > token.number),
    ///     Err(refused) if refused.error().is_taken() => {
    ///         refused.into_guard().release().await?;
    ///         let _writer = locks.rw("catalog").write().acquire().await?;
    ///         // ... read the catalog again ...
    ///     }
    ///     Err(refused) => return Err(refused.into()),
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    /// If the future is dropped, also before its first poll, the guard is released.
    ///
    /// # Errors
    /// [`NotConverted`] has the guard and the error: [`is_taken`](Error::is_taken) if another guard holds the name,
    /// also one of this process, or a request waits for it; [`is_misconfigured`](Error::is_misconfigured) if the engine
    /// cannot convert holds (then nothing was sent); [`is_invalid`](Error::is_invalid) for a guard that is not shared,
    /// or that shares an exclusive hold of its [`Owner`](crate::Owner); [`is_lost`](Error::is_lost) if the hold had
    /// ended; [`is_unknown`](Error::is_unknown) if the engine did not answer as long as the hold was valid, for at most
    /// 30 s, or if an earlier upgrade is not settled: the guard is then shared, and [not valid](Self::check) until it
    /// is certain that it was not upgraded. [`ErrorKind::Forked`] in a child process. Otherwise the engine's error,
    /// with which the guard stays shared.
    pub async fn try_upgrade(self) -> Result<Self, NotConverted> {
        convert(self, Mode::Exclusive).await
    }

    /// [`downgrade`](Self::downgrade) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let writer = locks.rw("catalog").write().blocking().acquire()?;
    /// let reader = writer.downgrade_blocking()?;
    /// assert!(reader.check());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`downgrade`](Self::downgrade).
    #[track_caller]
    pub fn downgrade_blocking(self) -> Result<Self, NotConverted> {
        convert_blocking(self, Mode::Shared)
    }

    /// [`try_upgrade`](Self::try_upgrade) for code without an executor: blocks the thread until the engine has
    /// answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let reader = locks.rw("catalog").read().blocking().acquire()?;
    /// let writer = reader.try_upgrade_blocking()?;
    /// assert_eq!(writer.mode(), leasehold::Mode::Exclusive);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_upgrade`](Self::try_upgrade).
    #[track_caller]
    pub fn try_upgrade_blocking(self) -> Result<Self, NotConverted> {
        convert_blocking(self, Mode::Exclusive)
    }

    /// An error, if this guard cannot be converted to this mode on this engine.
    fn check_converts(&self, to: Mode) -> Result<(), Error> {
        if !self.handle.is_own_process() {
            return Err(forked_error());
        }
        self.handle.ensure_served()?;
        let (engine, name, mode) = (self.handle.profile.engine, &self.name, self.mode);
        if self.handle.engine.conversions().is_none() {
            return Err(Error::from_engine(self.handle.no_conversions(), name, engine).of_name(name));
        }
        let (from, verb) =
            if to == Mode::Shared { (Mode::Exclusive, "downgraded") } else { (Mode::Shared, "upgraded") };
        if mode != from {
            let message = format!("it is held as {mode}, and only a guard that is {from} can be {verb}");
            return Err(self.handle.conversion_error(ErrorKind::Invalid, name, &message));
        }
        match self.validity.loss_report(self.handle.now()) {
            Some(report) => Err(self.lost_error(&report)),
            None => Ok(()),
        }
    }
}

/// A guard that was not converted, and the reason. Made an [`Error`] by `?`, it drops the guard, which releases it.
#[must_use = "the guard in it is released when it is dropped"]
pub struct NotConverted(Box<(Guard, Error)>);

impl NotConverted {
    /// The reason.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let reader = locks.rw("catalog").read().blocking().acquire()?;
    /// let refused = reader.downgrade_blocking().unwrap_err();
    /// assert!(refused.error().is_invalid(), "it is shared already");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn error(&self) -> &Error {
        &self.0.1
    }

    /// The guard. Its [mode](Guard::mode) is that before the conversion, unless the outcome of a downgrade is
    /// [unknown](Error::is_unknown).
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let reader = locks.rw("catalog").read().blocking().acquire()?;
    /// let reader = reader.downgrade_blocking().unwrap_err().into_guard();
    /// assert!(reader.check());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn into_guard(self) -> Guard {
        self.0.0
    }
}

impl From<NotConverted> for Error {
    fn from(refused: NotConverted) -> Self {
        refused.0.1
    }
}

impl fmt::Display for NotConverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)
    }
}

impl fmt::Debug for NotConverted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (guard, error) = &*self.0;
        f.debug_struct("NotConverted").field("guard", guard).field("error", error).finish()
    }
}

impl std::error::Error for NotConverted {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error().source()
    }
}

async fn convert(guard: Guard, to: Mode) -> Result<Guard, NotConverted> {
    let slot = GuardSlot::new(guard);
    let result = convert_in(&slot, to).await;
    taken_from(&slot, result)
}

#[track_caller]
fn convert_blocking(guard: Guard, to: Mode) -> Result<Guard, NotConverted> {
    let handle: Arc<SharedHandle> = Arc::clone(&guard.handle);
    let slot = GuardSlot::new(guard);
    let result = handle.block_on(convert_in(&slot, to)).flatten();
    taken_from(&slot, result)
}

/// The guard of a conversion that has ended, and its error.
fn taken_from(slot: &GuardSlot, result: Result<(), Error>) -> Result<Guard, NotConverted> {
    let guard = slot.lock().take().expect("only this caller takes the guard out");
    match result {
        Ok(()) => Ok(guard),
        Err(error) => Err(NotConverted(Box::new((guard, error)))),
    }
}

/// Converts the guard in the slot: on this thread if the engine never waits, else through the keeper.
async fn convert_in(slot: &Arc<GuardSlot>, to: Mode) -> Result<(), Error> {
    let (shared, converter) = {
        let guard = slot.lock();
        let guard = guard.as_ref().expect("the conversion has not begun");
        guard.check_converts(to)?;
        let shared = Arc::clone(&guard.handle);
        let begun = shared.begin_conversion(guard, to)?;
        let converter = Converter::new(&shared, slot, &guard.validity, begun);
        (shared, converter)
    };
    let (reply, answer) = oneshot::channel();
    let mut conversion = Box::pin(converter.run(reply));
    if !shared.profile.inline || poll_once(conversion.as_mut()).is_none() {
        shared.queue_job(KeeperJob::Spawn(conversion));
    }
    let closed =
        || Err(Error::new(ErrorKind::Closed, "this Locks was closed, or its keeper's runtime is gone"));
    answer.await.unwrap_or_else(|_| closed())
}
