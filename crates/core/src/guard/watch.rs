//! What a guard reports of its hold: the loss, and trouble with renewals; and work that a loss cancels.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Poll, ready},
};

use super::forked_error;
use crate::{Error, ErrorKind, Guard, Loss, driver::validity::LossReport};

impl Guard {
    /// Resolves when the hold is lost, before anybody else can be granted the name. Cancel safe.
    ///
    /// The future does not borrow the guard.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").acquire().await?;
    /// let lost = guard.lost();
    /// # let operator = locks.clone();
    /// # operator.break_hold("order/17", guard.token().number, true).await?;
    /// # guard.confirm().await.unwrap_err();
    /// // Elsewhere, for instance in a branch of `select!`:
    /// println!("stop: {}", lost.await);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + Sync + use<> {
        let validity = Arc::clone(&self.validity);
        async move { validity.reported().await }
    }

    /// What was wrong at the last renewal, on one line; `None` if nothing was wrong, or there was no renewal:
    ///
    /// - the error of a renewal that was not confirmed, as the engine or the connection reported it. For a hold that
    ///   [lapsed](Loss::Lapsed) this is the cause; the errors that report its loss contain it, too;
    /// - on Redis, that a confirmed renewal found the time of the hold [changed](crate::TimeChange). The hold is valid.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// assert_eq!(guard.trouble(), None);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let renewal_error = self.validity.renewal_error().map(|error| error.as_ref().to_owned());
        renewal_error.or_else(|| self.validity.time_change().map(|change| change.to_string()))
    }

    /// Calls `callback` with the reason when the hold is lost. The call comes at the moment at which
    /// [`lost`](Self::lost) resolves, or immediately if the hold is lost already. It never comes after the guard was
    /// released or dropped.
    ///
    /// For code that cannot await [`lost`](Self::lost). The callback runs on one thread for the callbacks of all guards
    /// of this `Locks`: it may block, which delays only callbacks of other guards, not renewals. A
    /// panic in it is reported to `tracing` and stops nothing else. For work that can be cancelled, [`run`](Self::run)
    /// does the cancelling.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// let stop = Arc::new(AtomicBool::new(false));
    /// let flag = Arc::clone(&stop);
    /// guard.on_lost(move |_| flag.store(true, Ordering::Relaxed))?;
    /// while !stop.load(Ordering::Relaxed) {
    ///     // ... one step of the work ...
    /// #   break;
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`is_refused`](Error::is_refused) if the system cannot start a thread; [`ErrorKind::Forked`] in a child process.
    pub fn on_lost(&self, callback: impl FnOnce(Loss) + Send + 'static) -> Result<(), Error> {
        if !self.handle.is_own_process() {
            return Err(forked_error());
        }
        let callback = self.handle.loss_callbacks.prepare(&self.handle.keeper, callback)?;
        self.validity.on_lost(callback);
        Ok(())
    }

    /// Runs `work`, and cancels it, by dropping its future, at the moment at which the hold is lost.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").acquire().await?;
    /// let pieces = guard.run(async { 42 }).await?;
    /// assert_eq!(pieces, 42);
    /// guard.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold was lost before `work` was done; [`ErrorKind::Forked`] in a child
    /// process.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.run_from(work, false).await
    }

    /// [`run`](Self::run). `granted_now`: the hold was granted while this thread looked, so the first poll of `work`
    /// needs no look at the clock.
    /// Not an `async` function, whose future would have room for the work twice.
    pub(crate) fn run_from<'a, T, W>(
        &'a self,
        work: W,
        granted_now: bool,
    ) -> impl Future<Output = Result<T, Error>> + use<'a, T, W>
    where
        W: Future<Output = T>,
    {
        let mut is_fresh = granted_now;
        async move {
            if !self.handle.is_own_process() {
                return Err(forked_error());
            }
            let engine = self.handle.profile.engine;
            let span = tracing::debug_span!(
                "hold", engine, name = %self.name, mode = %self.mode, token = self.token().number
            );
            let mut lost = pin!(self.validity.reported());
            let mut work = pin!(work);
            std::future::poll_fn(|cx| {
                let _entered = span.enter();
                if !std::mem::take(&mut is_fresh)
                    && let Some(report) = self.validity.loss_report(self.handle.now())
                {
                    return Poll::Ready(Err(self.lost_error(&report)));
                }
                if let Poll::Ready(output) = work.as_mut().poll(cx) {
                    return Poll::Ready(Ok(output));
                }
                // Only work that waits needs to be woken by a loss. A loss that was reported meanwhile is found here.
                let loss = ready!(lost.as_mut().poll(cx));
                let report = self.validity.loss_report(self.handle.now()).unwrap_or(loss.into());
                Poll::Ready(Err(self.lost_error(&report)))
            })
            .await
        }
    }

    pub(crate) fn lost_error(&self, report: &LossReport) -> Error {
        let name = self.name.as_str();
        let message = format!("the hold of {name:?} was lost: {report}");
        Error::new(ErrorKind::Lost(report.loss), message).of_name(&self.name)
    }
}
