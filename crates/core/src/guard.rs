//! The guard: what user code owns while it holds a name.

use std::{fmt, future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use crate::{
    ClaimId, Error, ErrorKind, Instant, Loss, Mode, Name, Previous, Stop, Token,
    contract::observe::Event,
    contract::time::format_duration,
    driver::keeper::{TimerKey, hold_until, system_instant_in},
    driver::local::{Ending, GuardRelease, ReleaseOutcome, unanswered_release},
    driver::shared::SharedHandle,
    driver::validity::{LossReport, Validity},
    pure::lease,
};

/// A hold of a name. Dropping it releases the hold, in the background where the engine has a server;
/// [`release`](Self::release) waits for the engine's answer.
///
/// A guard that is dropped by a panic reports this to the next holder, whose [`previous`](Self::previous) is then
/// [`Previous::Abandoned`]. In a child that was forked from the holder's process, guards do nothing.
#[must_use = "a guard that is dropped at once releases at once"]
pub struct Guard {
    /// The keeper runs as long as any such handle exists.
    pub(crate) handle: Arc<SharedHandle>,
    pub(crate) validity: Arc<Validity>,
    pub(crate) name: Name,
    pub(crate) id: ClaimId,
    pub(crate) mode: Mode,
    pub(crate) previous: Previous,
    /// When the guard was made.
    pub(crate) since: Instant,
    /// The timer of `max_hold`; boxed because few guards have one.
    pub(crate) max_hold: Option<Box<TimerKey>>,
    pub(crate) stage: Stage,
}

/// The stages of a guard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// On its way to the waiting request.
    InTransit,
    /// The user has it.
    Received,
    Released,
}

impl Guard {
    /// Marks the guard as received by the user.
    pub(crate) fn received(mut self) -> Self {
        self.stage = Stage::Received;
        self
    }

    /// The name held.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The mode in which it is held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The id of the claim on the engine; guards that share a hold share it.
    #[must_use]
    pub const fn id(&self) -> ClaimId {
        self.id
    }

    /// The fencing token: larger than the token of every earlier grant of this name. Let the protected resource reject
    /// every token that is smaller than the largest that it has seen.
    #[must_use]
    pub fn token(&self) -> Token {
        self.validity.token()
    }

    /// How the hold before this one ended; after anything but [`Previous::Clean`] the protected data may be
    /// half-written.
    #[must_use]
    pub const fn previous(&self) -> Previous {
        self.previous
    }

    /// Whether the hold is valid now. Costs one atomic load and one reading of the clock.
    ///
    /// False from the deadline on, even if the keeper and the engine are stuck, and then never true again. Also false
    /// for a while after the engine's clock was set forward, after another server took over the locks, or after a
    /// restart of the server (Redis): until the hold has been confirmed, or is lost, which [`lost`](Self::lost)
    /// reports. Work *after* the check is only safe with a fence: see [`token`](Self::token).
    #[must_use]
    pub fn check(&self) -> bool {
        self.handle.is_own_process() && self.handle.now() < self.validity.deadline()
    }

    /// How long the hold stays valid if no further answer comes from the engine; zero once it is lost, and while
    /// [`check`](Self::check) is false. `None` where the hold cannot lapse (the file engine) and no `max_hold` was set.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match self.validity.deadline() {
            Instant::NEVER => None,
            deadline => Some(deadline.since(self.handle.now())),
        }
    }

    /// Until when the hold stays valid if no further answer comes from the engine; now, once it is lost, and while
    /// [`check`](Self::check) is false. `None` where the hold cannot lapse (the file engine) and no `max_hold` was set.
    ///
    /// The clock of [`std::time::Instant`] may stop while the machine sleeps; [`check`](Self::check) uses one that does
    /// not.
    #[must_use]
    pub fn deadline(&self) -> Option<std::time::Instant> {
        self.remaining().map(system_instant_in)
    }

    /// When to notify work under this hold to stop, and when that work has to be over, if no further answer comes from
    /// the engine. `grace` is the time that the work needs to stop. `None` where the hold cannot lapse (the file
    /// engine) and no `max_hold` was set.
    ///
    /// Each renewal moves both times, so ask again before acting. A hold in doubt, see [`check`](Self::check), moves
    /// neither time: the engine is asked, and most holds in doubt turn out to be valid. Once the hold is lost both are
    /// zero.
    ///
    /// At most a third of the time that the engine granted (or of `max_hold`) counts as grace. A lease is renewed when
    /// a third of it has passed, so its end does not notify work to stop while renewals are answered in time.
    #[must_use]
    pub fn stop(&self, grace: Duration) -> Option<Stop> {
        // The granted time is read first: it is never from a newer renewal than the end of the lease.
        let granted = self.validity.granted();
        let (lease_end, max_hold_end, now) =
            (self.validity.lease_end(), self.validity.max_hold_end(), self.handle.now());
        let at_lease_end =
            (lease_end < max_hold_end).then(|| Stop::new(lease_end.since(now), granted, grace, Loss::Lapsed));
        let at_max_hold = (max_hold_end != Instant::NEVER).then(|| {
            let max_hold = max_hold_end.since(self.since);
            Stop::new(max_hold_end.since(now), max_hold, grace, Loss::MaxHold)
        });
        match (at_lease_end, at_max_hold) {
            (Some(at_lease_end), Some(at_max_hold)) => Some(at_lease_end.earlier(at_max_hold)),
            (at_lease_end, at_max_hold) => at_lease_end.or(at_max_hold),
        }
    }

    /// Resolves when the hold is lost, before anybody else can be granted the name. Cancel safe.
    ///
    /// The future does not borrow the guard.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + Sync + use<> {
        let validity = Arc::clone(&self.validity);
        async move { validity.reported().await }
    }

    /// What was wrong at the last renewal, on one line; `None` if nothing was wrong, or there was no renewal:
    ///
    /// - the error of a renewal that was not confirmed, as the engine or the connection reported it. For a hold that
    ///   [lapsed](Loss::Lapsed) this is the cause; the errors that report its loss contain it, too;
    /// - on Redis, that a confirmed renewal found the time of the hold [changed](crate::TimeChange). The hold is valid.
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
    /// of this [`Locks`](crate::Locks): it may block, which delays only callbacks of other guards, not renewals. A
    /// panic in it is reported to `tracing` and stops nothing else. For work that can be cancelled, [`run`](Self::run)
    /// does the cancelling.
    ///
    /// # Errors
    /// [`is_refused`](Error::is_refused) if the system cannot start a thread; [`ErrorKind::Forked`] in a child process.
    pub fn on_lost(&self, callback: impl FnOnce(Loss) + Send + 'static) -> Result<(), Error> {
        if !self.handle.is_own_process() {
            return Err(forked_error());
        }
        self.validity.on_lost(self.handle.loss_callbacks.prepare(callback)?);
        Ok(())
    }

    /// Runs `work`, and cancels it, by dropping its future, at the moment at which the hold is lost.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold was lost before `work` was done; [`ErrorKind::Forked`] in a child
    /// process.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        if !self.handle.is_own_process() {
            return Err(forked_error());
        }
        let span = tracing::debug_span!("hold", name = %self.name, token = self.token().number);
        let mut lost = pin!(self.lost());
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            let _entered = span.enter();
            if let Some(report) = self.validity.loss_report(self.handle.now()) {
                return Poll::Ready(Err(self.lost_error(&report)));
            }
            if let Poll::Ready(loss) = lost.as_mut().poll(cx) {
                let report = self.validity.loss_report(self.handle.now()).unwrap_or(loss.into());
                return Poll::Ready(Err(self.lost_error(&report)));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Asks the engine now whether the hold still exists, and extends it. Cancel safe.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold does not exist; [`is_unknown`](Error::is_unknown) if the engine did not
    /// answer.
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
    /// # Errors [`is_invalid`](Error::is_invalid) if `time` is longer than a hold of the engine's longest ttl is valid;
    /// [`is_misconfigured`](Error::is_misconfigured) if the engine cannot extend the hold so far, because the hold
    /// lives on a lease or session whose time is fixed (etcd, ZooKeeper), or on nodes that may receive the extension at
    /// different times (Redlock); otherwise as [`confirm`](Self::confirm).
    pub async fn extend(&self, time: Duration) -> Result<Option<std::time::Instant>, Error> {
        let longest = lease::valid_for(*self.handle.profile.ttl.end());
        if time > longest {
            let (name, [time, longest]) = (self.name.as_str(), [time, longest].map(format_duration));
            return Err(Error::invalid(format!(
                "lock {name:?}: cannot extend by {time}: at most {longest} is allowed"
            )));
        }
        let until = self.handle.now().after(time);
        self.confirm_until(Some(until)).await?;
        self.handle.check_extension(&self.name, self.id, until)?;
        Ok(self.deadline())
    }

    /// Releases the hold and waits for the engine's answer. Dropping the future does not stop the release.
    ///
    /// If several guards share one hold, only the release of the last of them asks the engine. The releases of the
    /// others are answered at once from local knowledge: that the hold was valid until now (see
    /// [`check`](Self::check)), that it was lost, or that it is in doubt. To ask the engine for such a guard, call
    /// [`confirm`](Self::confirm) before its release.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold had ended before; [`is_unknown`](Error::is_unknown) if the engine did
    /// not answer: if this was the last guard, the name is free when the lease of the hold has run out, at the latest.
    pub fn release(self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.release_now()
    }

    /// Like [`release`](Self::release), but the name stays taken, without a holder, until `at_least` has passed since
    /// the grant. If several guards share one hold, the release of the last of them does this, with the latest time
    /// that any of them asked for, unless the hold is lost before.
    ///
    /// An engine on which a hold ends with the session of its process (ZooKeeper) cannot keep a name taken without a
    /// holder. There this process continues to hold the name and to renew the hold until `at_least` has passed,
    /// regardless of the lease and `max_hold`, and then releases it. The future does not resolve before this release.
    /// Dropping the future does not end this hold; [`close`](crate::Locks::close) and the end of the process do.
    ///
    /// # Errors
    /// As [`release`](Self::release), and the engine's error if it refuses the minimum hold time now, as a full server
    /// does: the name is then free when the lease of the hold has run out, at the latest.
    pub fn release_at_least(
        mut self,
        at_least: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let until = self.since.after(at_least);
        // Where the engine cannot block the name, the keeper holds the name until `until`, and then releases it.
        let release_by_keeper = hold_until(&self, until);
        let release_now = self.end_hold(Ending { ended: Previous::Clean, min_hold_until: Some(until) });
        await_outcome(self.name.clone(), release_by_keeper.or(release_now))
    }

    /// [`release`](Self::release) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    #[track_caller]
    pub fn release_blocking(self) -> Result<(), Error> {
        let handle = Arc::clone(&self.handle);
        handle.keeper.block_on(self.release())
    }

    /// [`release_at_least`](Self::release_at_least) for code without an executor.
    ///
    /// # Errors
    /// As [`release_at_least`](Self::release_at_least).
    #[track_caller]
    pub fn release_at_least_blocking(self, at_least: Duration) -> Result<(), Error> {
        let handle = Arc::clone(&self.handle);
        handle.keeper.block_on(self.release_at_least(at_least))
    }

    /// [`confirm`](Self::confirm) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    #[track_caller]
    pub fn confirm_blocking(&self) -> Result<(), Error> {
        self.handle.keeper.block_on(self.confirm())
    }

    /// [`extend`](Self::extend) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`extend`](Self::extend).
    #[track_caller]
    pub fn extend_blocking(&self, time: Duration) -> Result<Option<std::time::Instant>, Error> {
        self.handle.keeper.block_on(self.extend(time))
    }

    pub(crate) fn handle(&self) -> &Arc<SharedHandle> {
        &self.handle
    }

    fn lost_error(&self, report: &LossReport) -> Error {
        let name = self.name.as_str();
        Error::new(ErrorKind::Lost(report.loss), format!("the hold of {name:?} was lost: {report}"))
    }

    /// Begins the release now, not at the first poll of the future.
    fn release_now(mut self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let outcome = self.end_hold(Ending { ended: Previous::Clean, min_hold_until: None });
        await_outcome(self.name.clone(), outcome)
    }

    /// Releases the guard, without waiting; `None` in a forked child.
    fn end_hold(&mut self, ending: Ending) -> Option<ReleaseOutcome> {
        self.stage = Stage::Released;
        let shared = &self.handle;
        if !shared.is_own_process() {
            return None;
        }
        self.validity.drop_callbacks();
        if let Some(timer) = self.max_hold.take() {
            shared.timers.remove(*timer);
        }
        let now = shared.now();
        let held = now.since(self.since);
        shared.observer.event(&Event::Released { name: &self.name, held });
        Some(shared.release_guard(&GuardRelease {
            name: &self.name,
            id: self.id,
            validity: &self.validity,
            ending,
            now,
        }))
    }
}

/// Waits for the outcome of a release, if it was sent, and returns the result for the caller.
async fn await_outcome(name: Name, outcome: Option<ReleaseOutcome>) -> Result<(), Error> {
    match outcome {
        Some(ReleaseOutcome::Done(result)) => result,
        Some(ReleaseOutcome::Sent(answer)) => answer.await.unwrap_or_else(|_| Err(unanswered_release(&name))),
        None => Err(forked_error()),
    }
}

fn forked_error() -> Error {
    Error::new(ErrorKind::Forked, "this guard belongs to the parent process")
}

impl Drop for Guard {
    fn drop(&mut self) {
        let ended = match self.stage {
            Stage::Released => return,
            // The request was dropped before it received this guard, so the hold was never used: the next holder is
            // told how the hold before this one ended.
            Stage::InTransit => self.previous,
            // A panic may leave the protected data half-written.
            Stage::Received if std::thread::panicking() => Previous::Abandoned,
            Stage::Received => Previous::Clean,
        };
        let _ = self.end_hold(Ending { ended, min_hold_until: None });
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .field("token", &self.token().number)
            .field("valid", &self.check())
            .finish_non_exhaustive()
    }
}
