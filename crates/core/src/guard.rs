//! The guard: what user code owns while it holds a name.

pub(crate) mod convert;
mod ending;
mod extend;
mod watch;

use std::{fmt, future::Future, sync::Arc, time::Duration};

pub(crate) use ending::Ended;

use crate::{
    ClaimId, Error, ErrorKind, GuardEnd, Instant, Loss, Mode, Name, Previous, Stop, Token,
    driver::keeper::{TimerKey, hold_until, system_instant_in},
    driver::local::{Ending, GuardRelease, ReleaseOutcome},
    driver::shared::{Shared, SharedHandle},
    driver::validity::{LossReport, Validity},
};

/// A hold of a name. Dropping it releases the hold, in the background where the engine has a server;
/// [`release`](Self::release) waits for the engine's answer.
///
/// A guard that is dropped by a panic, or while the work of a [`Request::run`](crate::Request::run) is half done,
/// reports this to the next holder, whose [`previous`](Self::previous) is then [`Previous::Abandoned`]. In a child that
/// was forked from the holder's process, guards do nothing.
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
    /// The limit on the use of the hold; boxed because few guards have one.
    pub(crate) max_hold: Option<Box<MaxHold>>,
    pub(crate) stage: Stage,
}

/// The `max_hold` of a guard.
pub(crate) struct MaxHold {
    /// Fires when the time is over.
    pub(crate) timer: TimerKey,
    /// How long the guard may use the hold. It counts from the grant, in a set from the grant of the last name.
    pub(crate) length: Duration,
}

/// The stages of a guard.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// On its way to the waiting request.
    InTransit,
    /// The user has it.
    Received,
    /// The work of a `run` has it, and is not done.
    Working,
    Released,
}

impl Guard {
    /// Marks the guard as received by the user.
    pub(crate) fn received(mut self) -> Self {
        self.stage = Stage::Received;
        self
    }

    /// Marks the guard as one that the user does not have yet.
    pub(crate) fn in_transit(mut self) -> Self {
        self.stage = Stage::InTransit;
        self
    }

    /// Records that the work of a `run` begins under this guard, or that it is done.
    pub(crate) fn set_working(&mut self, is_working: bool) {
        self.stage = if is_working { Stage::Working } else { Stage::Received };
    }

    /// The name held.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// assert_eq!(guard.name().as_str(), "order/17");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// The mode in which it is held.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.semaphore("uploads", 8).permits(2).blocking().acquire()?;
    /// assert_eq!(guard.mode(), leasehold::Mode::Permits { count: 2, limit: 8 });
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The id of the claim on the engine; guards that share a hold share it.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// assert_eq!(guard.id().to_string().len(), 32);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub const fn id(&self) -> ClaimId {
        self.id
    }

    /// The fencing token: larger than the token of every earlier grant of this name. Let the protected resource reject
    /// every token that is smaller than the largest that it has seen.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let first = locks.mutex("order/17").blocking().run(|guard| guard.token());
    /// let second = locks.mutex("order/17").blocking().run(|guard| guard.token());
    /// assert!(second.unwrap().number > first.unwrap().number);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn token(&self) -> Token {
        self.validity.token()
    }

    /// How many guards of this guard's owner share its hold now, this guard included: 1 unless the owner
    /// [entered](crate::Owner::enter) the name again. The last of these guards to end releases the hold.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let owner = leasehold::Owner::new("importer");
    /// let outer = owner.enter_blocking(locks.mutex("accounts"))?;
    /// let inner = owner.enter_blocking(locks.mutex("accounts"))?;
    /// assert_eq!(outer.entries(), 2);
    /// drop(inner);
    /// assert_eq!(outer.entries(), 1);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn entries(&self) -> usize {
        let owner = self.validity.owner().filter(|_| self.handle.is_own_process());
        owner.map_or(1, |owner| self.handle.entries(&self.name, self.id, owner).max(1))
    }

    /// How the hold before this one ended; after anything but [`Previous::Clean`] the protected data may be
    /// half-written.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use leasehold::Previous;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// if guard.previous() != Previous::Clean {
    ///     println!("check the order before you change it");
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// for step in 0..3 {
    ///     assert!(guard.check(), "stop before step {step}");
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn check(&self) -> bool {
        self.handle.is_own_process() && self.handle.now() < self.validity.deadline()
    }

    /// How long the hold stays valid if no further answer comes from the engine; zero once it is lost, and while
    /// [`check`](Self::check) is false. `None` where the hold cannot lapse (the file engine) and no `max_hold` was set.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// assert!(guard.remaining().is_some_and(|left| left > Duration::from_secs(20)));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// assert!(guard.deadline().is_some_and(|end| end > std::time::Instant::now()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
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
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// // The work needs two seconds to stop.
    /// if let Some(stop) = guard.stop(Duration::from_secs(2)) {
    ///     println!("tell it to stop in {:?}", stop.term);
    /// }
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn stop(&self, grace: Duration) -> Option<Stop> {
        // The granted time is read first: it is never from a newer renewal than the end of the lease.
        let granted = self.validity.granted();
        let (lease_end, max_hold_end, now) =
            (self.validity.lease_end(), self.validity.max_hold_end(), self.handle.now());
        let at_lease_end =
            (lease_end < max_hold_end).then(|| Stop::new(lease_end.since(now), granted, grace, Loss::Lapsed));
        let at_max_hold = self
            .max_hold
            .as_ref()
            .map(|max_hold| Stop::new(max_hold_end.since(now), max_hold.length, grace, Loss::MaxHold));
        match (at_lease_end, at_max_hold) {
            (Some(at_lease_end), Some(at_max_hold)) => Some(at_lease_end.earlier(at_max_hold)),
            (at_lease_end, at_max_hold) => at_lease_end.or(at_max_hold),
        }
    }

    /// Releases the hold and waits for the engine's answer. Dropping the future does not stop the release.
    ///
    /// If several guards share one hold, only the release of the last of them asks the engine. The releases of the
    /// others are answered at once from local knowledge: that the hold was valid until now (see
    /// [`check`](Self::check)), that it was lost, or that it is in doubt. To ask the engine for such a guard, call
    /// [`confirm`](Self::confirm) before its release.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").acquire().await?;
    /// guard.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
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
    /// Dropping the future does not end this hold; `Locks::close` and the end of the process do.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("report").acquire().await?;
    /// // Nobody else makes the report for a minute, however fast it was.
    /// guard.release_at_least(Duration::from_secs(60)).await?;
    /// assert!(locks.mutex("report").try_acquire().await.unwrap_err().is_taken());
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`release`](Self::release), and the engine's error if it refuses the minimum hold time now, as a full server
    /// does: the name is then free when the lease of the hold has run out, at the latest.
    pub fn release_at_least(
        self,
        at_least: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.release_at_least_now(at_least)
    }

    /// Begins the release now, not at the first poll of the future.
    pub(crate) fn release_at_least_now(mut self, at_least: Duration) -> Ended {
        let until = self.since.after(at_least);
        // Where the engine cannot block the name, the keeper holds the name until `until`, and then releases it.
        let release_by_keeper = hold_until(&self, until);
        let ending = Ending { ended: Previous::Clean, min_hold_until: Some(until) };
        let release_now = self.end_hold(ending, GuardEnd::Released);
        Ended::new(&self.name, release_by_keeper.or(release_now))
    }

    /// [`release`](Self::release) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("order/17").blocking().acquire()?;
    /// guard.release_blocking()?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`release`](Self::release).
    #[track_caller]
    pub fn release_blocking(self) -> Result<(), Error> {
        let handle = Arc::clone(&self.handle);
        handle.block_on(async { self.release().await })?
    }

    /// [`release_at_least`](Self::release_at_least) for code without an executor.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// let guard = locks.mutex("report").blocking().acquire()?;
    /// guard.release_at_least_blocking(Duration::from_secs(60))?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`release_at_least`](Self::release_at_least).
    #[track_caller]
    pub fn release_at_least_blocking(self, at_least: Duration) -> Result<(), Error> {
        let handle = Arc::clone(&self.handle);
        handle.block_on(async { self.release_at_least(at_least).await })?
    }

    pub(crate) const fn shared_handle(&self) -> &Arc<SharedHandle> {
        &self.handle
    }

    /// Begins the release now, not at the first poll of the future.
    pub(crate) fn release_now(mut self) -> Ended {
        let ending = Ending { ended: Previous::Clean, min_hold_until: None };
        let outcome = self.end_hold(ending, GuardEnd::Released);
        Ended::new(&self.name, outcome)
    }

    /// Reports the end of the guard to the observers. `reported_loss`: a loss that was reported before.
    pub(crate) fn report_end(&self, reported_loss: Option<Loss>, end: GuardEnd, now: Instant) {
        if self.validity.is_withheld() {
            return;
        }
        let (observer, name, mode, token) = (&self.handle.observer, &self.name, self.mode, self.token());
        let loss = reported_loss.or_else(|| {
            // The keeper has not reported the loss yet, and will not report it for this guard any more.
            let LossReport { loss, renewal_error } = self.validity.loss_report(now)?;
            observer.lost(name, &[(token, mode)], loss, renewal_error.as_deref());
            Some(loss)
        });
        observer.released(name, mode, token, now.since(self.since), loss.map_or(end, GuardEnd::Lost));
    }

    /// Releases the guard, without waiting; `None` in a forked child. `end`: how the guard ends if its hold is not
    /// lost.
    fn end_hold(&mut self, ending: Ending, end: GuardEnd) -> Option<ReleaseOutcome> {
        self.end_by(ending, end, |shared, guard_release| shared.release_guard(guard_release))
    }

    /// Releases the guard by `release`, without waiting; `None` in a forked child.
    pub(crate) fn end_by(
        &mut self,
        ending: Ending,
        end: GuardEnd,
        release: impl FnOnce(&Arc<Shared>, &GuardRelease<'_>) -> ReleaseOutcome,
    ) -> Option<ReleaseOutcome> {
        self.stage = Stage::Released;
        let shared = &self.handle;
        if !shared.is_own_process() {
            return None;
        }
        let reported_loss = self.validity.end();
        if let Some(max_hold) = self.max_hold.take() {
            shared.timers.remove(max_hold.timer);
        }
        let now = shared.now();
        self.report_end(reported_loss, end, now);
        let guard_release =
            GuardRelease { name: &self.name, id: self.id, validity: &self.validity, ending, now };
        Some(release(shared, &guard_release))
    }
}

fn forked_error() -> Error {
    Error::new(ErrorKind::Forked, "this guard belongs to the parent process")
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (ended, end) = match self.stage {
            Stage::Released => return,
            // The request was dropped before it received this guard, so the hold was never used: the next holder is
            // told how the hold before this one ended.
            Stage::InTransit => (self.previous, GuardEnd::Unused),
            // A panic may leave the protected data half-written.
            Stage::Received if std::thread::panicking() => (Previous::Abandoned, GuardEnd::Abandoned),
            // The future of a `run` was dropped, or its work was cancelled at a loss.
            Stage::Working => (Previous::Abandoned, GuardEnd::Abandoned),
            Stage::Received => (Previous::Clean, GuardEnd::Released),
        };
        let _ = self.end_hold(Ending { ended, min_hold_until: None }, end);
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
