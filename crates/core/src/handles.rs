//! Holds across processes: a guard becomes a handle, and a handle becomes a guard, here or in another process.

use std::{sync::Arc, time::Duration};

use crate::{
    Error, ErrorKind, Grant, Guard, GuardEnd, Handle, Hold, Instant, Locks, Loss, Name, Previous, Renewed,
    contract::time::format_duration,
    driver::local::{Terms, already_here},
    guard::Stage,
    pure::lease::{self, Renewal},
};

/// How long a release by handle is sent again while the engine does not answer. To ask whether the hold still exists,
/// the release first extends the hold, by at most this time.
const RELEASED_WITHIN: Duration = Duration::from_secs(10);
/// The least time for which a program waits for the confirmation of a resumed hold.
const LEAST_ANSWER_TIME: Duration = Duration::from_secs(1);

impl Guard {
    /// The data by which another process can find this hold, and, after [`into_handle`](Self::into_handle), take it up.
    /// While this guard lives, its hold is renewed and released here. From this call on, the hold is not handed over to
    /// the next request of this process, and no reader joins it: the handle names no hold of another guard. Guards of
    /// the same [owner](crate::Owner) share the hold, and so the handle.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guard = locks.mutex("deploy").blocking().acquire()?;
    /// assert_eq!((guard.handle().id(), guard.handle().token()), (guard.id(), guard.token()));
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn handle(&self) -> Handle {
        let (id, token) = (self.id, self.token());
        let shared = self.shared_handle();
        let of_hold = shared.fix_to_handle(self.name(), id);
        let (first_token, ttl) = of_hold.unwrap_or_else(|| (token.number, self.validity.granted()));
        let engine = shared.profile.engine;
        Handle::new(engine, self.name(), (id, self.mode()), (token, first_token), ttl)
    }

    /// Leaves the hold without a process: from now on it is a fixed lease, which nobody renews in the background. It
    /// ends at the [`deadline`](Self::deadline) that this guard has now, a little later on the server, unless a process
    /// resumes it with the handle. Call [`extend`](Self::extend) before, if the hold has to last longer. A `max_hold`
    /// does not apply any more. Sends nothing to the engine.
    ///
    /// ```
    /// # fn main() -> Result<(), leasehold::Error> {
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use std::time::Duration;
    /// // The first step of a job.
    /// let guard = locks.mutex("deploy").ttl(Duration::from_secs(600)).acquire().await?;
    /// let text = guard.into_handle()?.to_string();
    ///
    /// // A later step, in another process.
    /// let handle: leasehold::Handle = text.parse()?;
    /// assert!(locks.mutex("deploy").try_acquire().await.unwrap_err().is_taken());
    /// let guard = locks.resume(&handle).await?;
    /// assert!(guard.check());
    /// guard.release().await
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) on an engine whose holds end with their process or its session:
    /// [`Profile::no_handles`](crate::Profile::no_handles) has the reason; [`is_lost`](Error::is_lost) and
    /// [`is_unknown`](Error::is_unknown) if the hold is lost or in doubt; [`is_invalid`](Error::is_invalid) if other
    /// guards share the hold. After each of these errors the hold is released, as by a drop of the guard.
    pub fn into_handle(mut self) -> Result<Handle, Error> {
        let shared = Arc::clone(self.shared_handle());
        shared.check_open()?;
        if let Some(reason) = shared.profile.no_handles {
            return Err(no_handles(self.name(), shared.profile.engine, reason));
        }
        let handle = self.handle();
        shared.leave_hold(&self)?;
        self.end_without_release(GuardEnd::Left);
        Ok(handle)
    }

    /// Ends this guard, whose hold this process has forgotten.
    fn end_without_release(&mut self, end: GuardEnd) {
        self.stage = Stage::Released;
        let reported_loss = self.validity.end();
        let shared = Arc::clone(self.shared_handle());
        if let Some(max_hold) = self.max_hold.take() {
            shared.timers.remove(max_hold.timer);
        }
        self.report_end(reported_loss, end, shared.now());
    }
}

impl Locks {
    /// Takes up the hold of a handle: asks the engine whether the hold still exists, and extends it to at least the
    /// [ttl](Handle::ttl) of the handle from now on. Never shortens the hold. The guard renews the hold in the
    /// background and releases it when it is dropped, as every guard; [`Guard::into_handle`] leaves the hold again.
    ///
    /// Only one process may use a handle at a time: all guards and commands of a handle have one hold, and the first
    /// release ends it for all. [`Guard::previous`] of the guard is unknown.
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
        let shared = self.handle();
        let Extended { sent_at, granted } = self.ask_to_extend(handle).await?;
        let terms = Terms {
            mode: handle.mode(),
            ttl: handle.ttl(),
            renewal: Renewal::Background,
            owner: None,
            stops_on_term: false,
            hands_over: false,
        };
        let grant =
            Grant { token: handle.grant_token(), tokens: 1, ttl: granted, previous: Previous::Unknown };
        shared.resume_hold(shared, handle, &terms, &grant, sent_at)
    }

    /// [`resume`](Self::resume) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    #[track_caller]
    pub fn resume_blocking(&self, handle: &Handle) -> Result<Guard, Error> {
        self.handle().block_on(self.resume(handle))?
    }

    /// Extends the hold of a handle to at least the [ttl](Handle::ttl) of the handle from now on, without taking it up:
    /// it stays without a process. Never shortens the hold. Returns for how long it is valid from now on, at least.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    ///
    /// # Cancel safety
    /// If the future is dropped, it is not known whether the hold was extended.
    pub async fn extend_handle(&self, handle: &Handle) -> Result<Duration, Error> {
        let Extended { sent_at, granted } = self.ask_to_extend(handle).await?;
        let valid_until = lease::deadline(sent_at, granted.unwrap_or(handle.ttl()));
        Ok(valid_until.since(self.shared().now()))
    }

    /// [`extend_handle`](Self::extend_handle) for code without an executor: blocks the thread until the engine has
    /// answered.
    ///
    /// # Errors
    /// As [`extend_handle`](Self::extend_handle).
    #[track_caller]
    pub fn extend_handle_blocking(&self, handle: &Handle) -> Result<Duration, Error> {
        self.handle().block_on(self.extend_handle(handle))?
    }

    /// Releases the hold of a handle, after it has asked the engine whether the hold still exists. Of a hold that an
    /// operator broke, this frees the name for the next holder, which waits for the end of the broken one.
    ///
    /// # Errors
    /// As [`resume`](Self::resume), and as [`Guard::release`]: [`is_lost`](Error::is_lost) if the hold had ended
    /// before.
    ///
    /// # Cancel safety
    /// Dropping the future after its request was sent does not stop the release.
    pub async fn release_handle(&self, handle: &Handle) -> Result<(), Error> {
        // The release of a broken hold frees what the break has left, and is answered like any other. So the engine is
        // asked for the hold first.
        let shortest = *self.profile().ttl.start();
        let within = handle.ttl().min(RELEASED_WITHIN);
        let asked = self.ask_to_extend(&handle.clone().with_ttl(within.max(shortest))).await;
        if asked.as_ref().is_err_and(|error| error.kind() == ErrorKind::Lost(Loss::Broken)) {
            // The next holder waits for the end of the broken one, and this is it.
            let _ = self.shared().release_handle(handle, within).await;
        }
        asked?;
        self.shared().release_handle(handle, within).await.map_err(|error| error.of_name(handle.name()))
    }

    /// [`release_handle`](Self::release_handle) for code without an executor: blocks the thread until the engine has
    /// answered.
    ///
    /// # Errors
    /// As [`release_handle`](Self::release_handle).
    #[track_caller]
    pub fn release_handle_blocking(&self, handle: &Handle) -> Result<(), Error> {
        self.handle().block_on(self.release_handle(handle))?
    }

    /// Asks the engine to extend the hold of a handle, unless a guard of this process has it.
    async fn ask_to_extend(&self, handle: &Handle) -> Result<Extended, Error> {
        let (shared, name) = (self.handle(), handle.name());
        self.check_handle(handle)?;
        // A renewal makes no connection.
        self.ping().await.map_err(|error| error.of_name(name))?;
        let sent_at = shared.now();
        match self.renew_once(handle).await? {
            Renewed::Extended { ttl: granted, .. } => Ok(Extended { sent_at, granted }),
            Renewed::Lost(loss) => {
                let message = format!("the hold of {:?} was lost: {loss}", name.as_str());
                Err(Error::new(ErrorKind::Lost(loss), message).of_name(name))
            }
            Renewed::Unknown(error) => Err(Error::from_engine(error, name, shared.profile.engine)),
        }
    }

    /// An error if the engine of this `Locks` cannot have the hold of the handle, or if a guard of this process has it.
    fn check_handle(&self, handle: &Handle) -> Result<(), Error> {
        self.shared().check_open()?;
        let (profile, name) = (self.profile(), handle.name());
        let invalid =
            |what: String| Error::invalid(format!("lock {:?}: {what}", name.as_str())).of_name(name);
        if handle.engine() != profile.engine {
            let (of, here) = (handle.engine(), profile.engine);
            return Err(invalid(format!(
                "the handle is of a hold on {of}, and this is {here}: use the same URL"
            )));
        }
        if let Some(reason) = profile.no_handles {
            return Err(no_handles(name, profile.engine, reason));
        }
        if !profile.ttl.contains(&handle.ttl()) {
            let [ttl, min, max] =
                [handle.ttl(), *profile.ttl.start(), *profile.ttl.end()].map(format_duration);
            return Err(invalid(format!("ttl {ttl} is out of range: {min} to {max} are allowed")));
        }
        if self.shared().has_hold(name, handle.id()) {
            return Err(already_here(name));
        }
        Ok(())
    }

    /// Asks the engine to extend the hold of the handle.
    async fn renew_once(&self, handle: &Handle) -> Result<Renewed, Error> {
        let (name, id, mode, ttl) = (handle.name().clone(), handle.id(), handle.mode(), handle.ttl());
        let hold = Hold { id, name, mode, token: handle.grant_token(), ttl };
        let shared = Arc::clone(self.shared());
        let limit = shared.profile.request_timeout.min(ttl.max(LEAST_ANSWER_TIME));
        let no_answer = move || {
            let message = format!("no answer within {limit:.0?}");
            Renewed::Unknown(crate::EngineError::new(crate::Fault::Unknown, message))
        };
        self.inspect(handle.name().as_str(), move |engine| {
            Box::pin(async move {
                let request = engine.renew(std::slice::from_ref(&hold));
                // An engine inside the process answers at the first poll, without a timer.
                let answers = match shared.profile.inline {
                    true => Some(request.await),
                    false => shared.with_timeout(limit, request).await,
                };
                Ok(answers.and_then(|mut answers| answers.pop()).unwrap_or_else(no_answer))
            })
        })
        .await
    }
}

/// A hold of a handle that the engine has extended.
struct Extended {
    /// When the request was sent.
    sent_at: Instant,
    /// The granted time; `None` where holds never lapse.
    granted: Option<Duration>,
}

/// The error on an engine without handles.
fn no_handles(name: &Name, engine: &str, reason: &str) -> Error {
    let name_text = name.as_str();
    Error::misconfigured(format!("{engine} lock {name_text:?}: no handle: {reason}")).of_name(name)
}
