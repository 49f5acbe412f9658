//! What user code owns while it holds a name.

use std::{fmt, future::Future, pin::pin, sync::Arc, task::Poll, time::Duration};

use crate::{
    ClaimId, Error, ErrorKind, Instant, Loss, Mode, Name, Previous, Stop, Token,
    contract::observe::Event,
    driver::keeper::{TimerKey, keep},
    driver::local::{Ending, LetGo, Parting, unheard},
    driver::shared::Lifeline,
    driver::validity::{Lost, Validity},
};

/// A hold of a name. Dropping it releases, in the background where the engine has a server;
/// [`release`](Self::release) waits for the engine's word.
///
/// A guard that is dropped by a panic tells the next holder so: its [`previous`](Self::previous) is
/// [`Previous::Abandoned`]. In a process that was forked from the holder's, guards do nothing.
#[must_use = "a guard that is dropped at once releases at once"]
pub struct Guard {
    pub(crate) life: Arc<Lifeline>,
    pub(crate) validity: Arc<Validity>,
    pub(crate) name: Name,
    pub(crate) id: ClaimId,
    pub(crate) mode: Mode,
    pub(crate) previous: Previous,
    pub(crate) since: Instant,
    /// The timer of `max_hold`; boxed because few guards have one.
    pub(crate) max_hold: Option<Box<TimerKey>>,
    pub(crate) stage: Stage,
}

/// How far a guard came.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// On its way to the request that waits for it.
    Unseen,
    /// In the hands of the user.
    Seen,
    Released,
}

impl Guard {
    /// The user has it from here on.
    pub(crate) fn seen(mut self) -> Self {
        self.stage = Stage::Seen;
        self
    }

    /// What is held.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// How it is held.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The claim on the engine; guards that share a hold share it.
    #[must_use]
    pub const fn id(&self) -> ClaimId {
        self.id
    }

    /// The fencing token: larger than that of every grant before. Let the protected resource refuse smaller ones.
    #[must_use]
    pub fn token(&self) -> Token {
        self.validity.token()
    }

    /// How the hold before this one ended; after anything but [`Previous::Clean`] the protected data may be half-written.
    #[must_use]
    pub const fn previous(&self) -> Previous {
        self.previous
    }

    /// Whether the hold is still valid, now. One atomic load and one reading of the clock.
    ///
    /// False from the deadline on, whatever else is stuck, and then never true again. False for a while when the engine's clock was
    /// set forward, or another server has its locks now, or one that was started anew (Redis): until the hold has been confirmed, or is
    /// lost, which [`lost`](Self::lost) tells. What happens *after* the check is only safe with a fence: see [`token`](Self::token).
    #[must_use]
    pub fn check(&self) -> bool {
        self.life.is_home() && self.life.now() < self.validity.deadline()
    }

    /// How long the hold is valid if nothing is heard from the engine any more; zero once it is lost, and while
    /// [`check`](Self::check) is false.
    /// `None` where it cannot lapse (the file engine) and no `max_hold` was set.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        match self.validity.deadline() {
            Instant::NEVER => None,
            deadline => Some(deadline.since(self.life.now())),
        }
    }

    /// When work under this hold has to be told to stop, and when it has to be over, if nothing more is heard from the engine:
    /// it wants `grace` to stop in. `None` where the hold cannot lapse (the file engine) and no `max_hold` was set.
    ///
    /// Each renewal moves both, so ask again before acting. A hold that is only unconfirmed, see [`check`](Self::check), moves neither: the
    /// engine is asked, and most stand. Once it is lost both are zero. The grace counts as at most a third of what the engine granted, or
    /// of `max_hold`: a renewal that is answered in time never finds work that was told to stop already.
    #[must_use]
    pub fn stop(&self, grace: Duration) -> Option<Stop> {
        // In this order: what was granted is then not newer than the deadline.
        let granted = self.validity.granted();
        let (deadline, end, now) = (self.validity.lasts(), self.validity.end(), self.life.now());
        let lease = (deadline < end).then(|| Stop::new(deadline.since(now), granted, grace, Loss::Lapsed));
        let max_hold = (end != Instant::NEVER)
            .then(|| Stop::new(end.since(now), end.since(self.since), grace, Loss::MaxHold));
        match (lease, max_hold) {
            (Some(lease), Some(max_hold)) => Some(lease.or_before(max_hold)),
            (lease, max_hold) => lease.or(max_hold),
        }
    }

    /// Resolves when the hold is lost, before anybody else can be granted the name. Cancel safe.
    ///
    /// The future does not borrow the guard.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + Sync + use<> {
        let validity = Arc::clone(&self.validity);
        async move { validity.told().await }
    }

    /// What went wrong with the last renewal, on one line, as the engine or the connection said it; `None` if it was confirmed, or there was
    /// none. Of a hold that [lapsed](Loss::Lapsed), why: the errors that tell of its loss say it, too.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.validity.trouble().map(|trouble| trouble.as_ref().to_owned())
    }

    /// Calls `then` with the reason when the hold is lost, once, at the moment at which [`lost`](Self::lost) resolves; now, if it is lost
    /// already. Never when the guard was released or dropped before.
    ///
    /// For code that awaits nothing. It runs on a thread that all guards of this [`Locks`](crate::Locks) share for this: it may block, and
    /// only calls for other guards wait for it, while renewals go on. A panic of it is told to `tracing` and ends nothing. Where work
    /// can be cancelled, [`run`](Self::run) does so itself.
    ///
    /// # Errors
    /// [`is_refused`](Error::is_refused) if the system has no thread left; [`ErrorKind::Forked`] in a child process.
    pub fn on_lost(&self, then: impl FnOnce(Loss) + Send + 'static) -> Result<(), Error> {
        if !self.life.is_home() {
            return Err(forked());
        }
        self.validity.on_lost(self.life.calls.prepare(then)?);
        Ok(())
    }

    /// Runs `work` and cancels it, by dropping its future, the moment the hold is lost.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold was lost before `work` was done; [`ErrorKind::Forked`] in a child process.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        if !self.life.is_home() {
            return Err(forked());
        }
        let span = tracing::debug_span!("hold", name = %self.name, token = self.token().number);
        let mut lost = pin!(self.lost());
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            let _entered = span.enter();
            if let Some(lost) = self.validity.lost(self.life.now()) {
                return Poll::Ready(Err(self.lost_error(&lost)));
            }
            if let Poll::Ready(loss) = lost.as_mut().poll(cx) {
                let lost = self.validity.lost(self.life.now()).unwrap_or(loss.into());
                return Poll::Ready(Err(self.lost_error(&lost)));
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Asks the engine now whether the hold still stands, and extends it. Cancel safe.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if it does not; [`is_unknown`](Error::is_unknown) if the engine did not say.
    pub async fn confirm(&self) -> Result<(), Error> {
        self.life.ready()?;
        if let Some(lost) = self.validity.lost(self.life.now()) {
            return Err(self.lost_error(&lost));
        }
        self.life.confirm(&self.name, self.id).await?;
        match self.validity.lost(self.life.now()) {
            None => Ok(()),
            Some(lost) => Err(self.lost_error(&lost)),
        }
    }

    /// Releases and waits for the engine's word. Dropping the future does not stop the release.
    ///
    /// Of several guards of one hold only the last asks the engine. The others are told at once what is known here: that the hold was
    /// valid until now, as [`check`](Self::check) has it, that it was lost, or that it is in doubt. [`confirm`](Self::confirm), called
    /// before, asks the engine for them.
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if the hold had ended before; [`is_unknown`](Error::is_unknown) if the engine did not
    /// say, which for the last guard means that the name is free when its lease has run out, at the latest.
    pub fn release(self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.let_go_now()
    }

    /// Like [`release`](Self::release), but keeps the name taken, by nobody, until `at_least` has passed since the grant. Of
    /// several guards of one hold the last does it for all, unless the hold is lost before.
    ///
    /// Where the engine cannot do that, because a hold ends with the session of its process (ZooKeeper), this process goes on
    /// holding, renewed, whatever its lease and `max_hold` were, and releases then: the future resolves no earlier. Dropping the
    /// future does not end that; [`close`](crate::Locks::close) and the end of the process do.
    ///
    /// # Errors
    /// As [`release`](Self::release), and what the engine says that refuses to keep the name now, as a full server does: the name is
    /// free when its lease has run out, at the latest.
    pub fn release_at_least(
        mut self,
        at_least: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let until = self.since.after(at_least);
        let kept = keep(&self, until);
        let outcome = self.let_go(Ending { ended: Previous::Clean, keep_until: Some(until) });
        word(self.name.clone(), kept.or(outcome))
    }

    /// [`release`](Self::release) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    #[track_caller]
    pub fn release_blocking(self) -> Result<(), Error> {
        let life = Arc::clone(&self.life);
        life.keeper.block_on(self.release())
    }

    /// [`release_at_least`](Self::release_at_least) for code without an executor.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn release_at_least_blocking(self, at_least: Duration) -> Result<(), Error> {
        let life = Arc::clone(&self.life);
        life.keeper.block_on(self.release_at_least(at_least))
    }

    /// [`confirm`](Self::confirm) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn confirm_blocking(&self) -> Result<(), Error> {
        self.life.keeper.block_on(self.confirm())
    }

    pub(crate) fn life(&self) -> &Arc<Lifeline> {
        &self.life
    }

    fn lost_error(&self, lost: &Lost) -> Error {
        let name = self.name.as_str();
        Error::new(ErrorKind::Lost(lost.loss), format!("the hold of {name:?} was lost: {lost}"))
    }

    /// The release begins here, not at the first poll of the future.
    fn let_go_now(mut self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let outcome = self.let_go(Ending { ended: Previous::Clean, keep_until: None });
        word(self.name.clone(), outcome)
    }

    fn let_go(&mut self, ending: Ending) -> Option<LetGo> {
        self.stage = Stage::Released;
        let shared = &self.life;
        if !shared.is_home() {
            return None;
        }
        self.validity.forget_calls();
        if let Some(timer) = self.max_hold.take() {
            shared.timers.remove(*timer);
        }
        let now = shared.now();
        let held = now.since(self.since);
        shared.observer.event(&Event::Released { name: &self.name, held });
        Some(shared.let_go(&Parting { name: &self.name, id: self.id, validity: &self.validity, ending, now }))
    }
}

/// What is said of a release.
async fn word(name: Name, outcome: Option<LetGo>) -> Result<(), Error> {
    match outcome {
        Some(LetGo::Done(result)) => result,
        Some(LetGo::Sent(answer)) => answer.await.unwrap_or_else(|_| Err(unheard(&name))),
        None => Err(forked()),
    }
}

fn forked() -> Error {
    Error::new(ErrorKind::Forked, "this guard belongs to the parent process")
}

impl Drop for Guard {
    fn drop(&mut self) {
        let ended = match self.stage {
            Stage::Released => return,
            // Its request was dropped meanwhile: nobody used the hold, so the one before it is still the last one.
            Stage::Unseen => self.previous,
            // A panic leaves the protected data in doubt.
            Stage::Seen if std::thread::panicking() => Previous::Abandoned,
            Stage::Seen => Previous::Clean,
        };
        let _ = self.let_go(Ending { ended, keep_until: None });
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
