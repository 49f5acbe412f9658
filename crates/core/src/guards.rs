//! The guards of several names that one request acquired.

use std::{
    fmt,
    future::Future,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use crate::{BoxFuture, Error, Guard, Loss, Name, Stop, Token, driver::shared::SharedHandle, guard::Ended};

/// The holds of all names of one [`All`](crate::All) request. Dropping it releases all of them, in the background where
/// the engine has a server; [`release`](Self::release) waits for the engine's answers.
///
/// The holds belong together until [`split`](Self::split): the set is valid while every hold is valid. A hold that is
/// lost does not end the others; they end with this value.
///
/// ```
/// # let locks = leasehold::Locks::connect("memory:")?;
/// let guards = locks.all().mutex("desk/1").mutex("desk/2").blocking().acquire()?;
/// assert!(guards.check());
/// for guard in guards.iter() {
///     println!("{} has token {}", guard.name(), guard.token());
/// }
/// guards.release_blocking()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[must_use = "guards that are dropped at once release at once"]
pub struct Guards(Held);

/// The guards, in the byte order of their names.
enum Held {
    /// Kept in place, so that a request for one name costs no more than one without a set.
    One(Guard),
    Several(Vec<Guard>),
}

impl Guards {
    pub(crate) const fn one(guard: Guard) -> Self {
        Self(Held::One(guard))
    }

    /// The guards of a set, now that the user has them.
    pub(crate) fn received(guards: Vec<Guard>) -> Self {
        Self(Held::Several(guards.into_iter().map(Guard::received).collect()))
    }

    /// All guards; at least one.
    fn held(&self) -> &[Guard] {
        match &self.0 {
            Held::One(guard) => std::slice::from_ref(guard),
            Held::Several(guards) => guards,
        }
    }

    /// The guard of this name, if the name is in the set.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("shelf/1").read("shelf/2").blocking().acquire()?;
    /// assert_eq!(guards.get("shelf/2").map(|guard| guard.mode()), Some(leasehold::Mode::Shared));
    /// assert!(guards.get("shelf/3").is_none());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    #[must_use]
    pub fn get(&self, name: impl AsRef<str>) -> Option<&Guard> {
        let name = name.as_ref();
        let index = self.held().binary_search_by(|guard| guard.name().as_str().cmp(name)).ok()?;
        self.held().get(index)
    }

    /// The fencing token of this name, if the name is in the set: see [`Guard::token`]. Tokens of different names
    /// cannot be compared.
    #[must_use]
    pub fn token(&self, name: impl AsRef<str>) -> Option<Token> {
        self.get(name).map(Guard::token)
    }

    /// The guards, in the byte order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Guard> {
        self.held().iter()
    }

    /// Whether every hold is valid now: see [`Guard::check`].
    #[must_use]
    pub fn check(&self) -> bool {
        self.iter().all(Guard::check)
    }

    /// How long all holds stay valid if no further answer comes from the engine: the least [`Guard::remaining`]. `None`
    /// where no hold can lapse and no `max_hold` was set.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        self.iter().filter_map(Guard::remaining).min()
    }

    /// Until when all holds stay valid if no further answer comes from the engine: the earliest [`Guard::deadline`].
    #[must_use]
    pub fn deadline(&self) -> Option<std::time::Instant> {
        self.iter().filter_map(Guard::deadline).min()
    }

    /// When to notify work under these holds to stop, and when that work has to be over: the earliest
    /// [`Guard::stop`].
    #[must_use]
    pub fn stop(&self, grace: Duration) -> Option<Stop> {
        self.iter().filter_map(|guard| guard.stop(grace)).reduce(Stop::earlier)
    }

    /// Resolves when the first hold is lost, with its name, before anybody else can be granted this name. Cancel safe.
    ///
    /// The future does not borrow the guards.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("tank/1").mutex("tank/2").acquire().await?;
    /// let lost = guards.lost();
    /// // An operator breaks one of the holds.
    /// locks.break_hold("tank/2", guards.token("tank/2").unwrap().number, true).await?;
    /// assert_eq!(lost.await.0.as_str(), "tank/2");
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub fn lost(&self) -> impl Future<Output = (Name, Loss)> + Send + Sync + use<> {
        let mut losses: Vec<_> =
            self.iter().map(|guard| (guard.name().clone(), Box::pin(guard.lost()))).collect();
        std::future::poll_fn(move |cx| {
            let lost = losses.iter_mut().find_map(|(name, loss)| match loss.as_mut().poll(cx) {
                Poll::Ready(loss) => Some((name.clone(), loss)),
                Poll::Pending => None,
            });
            lost.map_or(Poll::Pending, Poll::Ready)
        })
    }

    /// Calls `callback` with the name and the reason when the first hold is lost: see [`Guard::on_lost`].
    ///
    /// # Errors
    /// As [`Guard::on_lost`].
    pub fn on_lost(&self, callback: impl FnOnce(&Name, Loss) + Send + 'static) -> Result<(), Error> {
        let callback = Arc::new(Mutex::new(Some(callback)));
        for guard in self.iter() {
            let (name, callback) = (guard.name().clone(), Arc::clone(&callback));
            guard.on_lost(move |loss| {
                let callback = callback.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(callback) = callback {
                    callback(&name, loss);
                }
            })?;
        }
        Ok(())
    }

    /// Runs `work`, and cancels it, by dropping its future, at the moment at which the first hold is lost.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("lane/1").mutex("lane/2").acquire().await?;
    /// assert_eq!(guards.run(async { "swapped" }).await?, "swapped");
    /// guards.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_lost`](Error::is_lost) if a hold was lost before `work` was done;
    /// [`ErrorKind::Forked`](crate::ErrorKind::Forked) in a child process.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let mut watches: Vec<_> =
            self.iter().map(|guard| Box::pin(guard.run(std::future::pending::<T>()))).collect();
        let mut work = pin!(work);
        std::future::poll_fn(|cx| {
            for watch in &mut watches {
                if let Poll::Ready(lost) = watch.as_mut().poll(cx) {
                    return Poll::Ready(lost);
                }
            }
            work.as_mut().poll(cx).map(Ok)
        })
        .await
    }

    /// Asks the engine now whether every hold still exists, and extends them. Cancel safe.
    ///
    /// # Errors
    /// As [`Guard::confirm`], for one name: the first that is lost, else the first that has an error.
    pub async fn confirm(&self) -> Result<(), Error> {
        all_of(self.iter().map(|guard| Box::pin(guard.confirm()) as Pin<Box<_>>).collect()).await
    }

    /// Releases every hold and waits for the engine's answers. Dropping the future does not stop the releases.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let guards = locks.all().mutex("gate/1").mutex("gate/2").acquire().await?;
    /// guards.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Guard::release`], for one name: the first that was lost, else the first that has an error. All other holds
    /// are released all the same.
    pub fn release(self) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.end(Guard::release_now)
    }

    /// Like [`release`](Self::release), but each name stays taken, without a holder, until `at_least` has passed since
    /// its own grant: see [`Guard::release_at_least`].
    ///
    /// # Errors
    /// As [`Guard::release_at_least`], for one name: the first that was lost, else the first that has an error.
    pub fn release_at_least(
        self,
        at_least: Duration,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        self.end(move |guard| guard.release_at_least_now(at_least))
    }

    /// [`release`](Self::release) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    #[track_caller]
    pub fn release_blocking(self) -> Result<(), Error> {
        let handle = self.handle();
        handle.block_on(async { self.release().await })?
    }

    /// [`release_at_least`](Self::release_at_least) for code without an executor.
    ///
    /// # Errors
    /// As [`release_at_least`](Self::release_at_least).
    #[track_caller]
    pub fn release_at_least_blocking(self, at_least: Duration) -> Result<(), Error> {
        let handle = self.handle();
        handle.block_on(async { self.release_at_least(at_least).await })?
    }

    /// [`confirm`](Self::confirm) for code without an executor: blocks the thread until the engine has answered.
    ///
    /// # Errors
    /// As [`confirm`](Self::confirm).
    #[track_caller]
    pub fn confirm_blocking(&self) -> Result<(), Error> {
        self.handle().block_on(self.confirm())?
    }

    /// The single guards, in the byte order of their names: from now on each hold ends by itself.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// let mut guards = locks.all().mutex("room/1").mutex("room/2").blocking().acquire()?.split();
    /// let last = guards.pop().expect("there are two");
    /// drop(guards);
    /// assert!(last.check() && last.name().as_str() == "room/2");
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn split(self) -> Vec<Guard> {
        match self.0 {
            Held::One(guard) => vec![guard],
            Held::Several(guards) => guards,
        }
    }

    /// Ends every hold, beginning now and not at the first poll. A single hold costs no more than without a set.
    fn end(self, end: impl Fn(Guard) -> Ended) -> EndOfAll {
        match self.0 {
            Held::One(guard) => EndOfAll::One(end(guard)),
            Held::Several(guards) => {
                let ends = guards.into_iter().map(|guard| Box::pin(end(guard))).collect();
                EndOfAll::All(Box::pin(all_of(ends)))
            }
        }
    }

    fn handle(&self) -> Arc<SharedHandle> {
        Arc::clone(self.held()[0].shared_handle())
    }
}

/// The end of all holds.
enum EndOfAll {
    One(Ended),
    All(BoxFuture<'static, Result<(), Error>>),
}

impl Future for EndOfAll {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::One(end) => Pin::new(end).poll(cx),
            Self::All(ends) => ends.as_mut().poll(cx),
        }
    }
}

/// Waits for all results. Returns the first loss, else the first error (I10): an error with an unknown outcome must not
/// hide that another name was certainly lost.
async fn all_of<F>(mut futures: Vec<Pin<Box<F>>>) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>> + ?Sized,
{
    let mut results: Vec<Option<Result<(), Error>>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none()
                && let Poll::Ready(done) = future.as_mut().poll(cx)
            {
                *result = Some(done);
            }
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    let errors = results.into_iter().flatten().filter_map(Result::err);
    // The first of equals is the least.
    errors.min_by_key(|error| !error.is_lost()).map_or(Ok(()), Err)
}

impl IntoIterator for Guards {
    type Item = Guard;
    type IntoIter = std::vec::IntoIter<Guard>;

    fn into_iter(self) -> Self::IntoIter {
        self.split().into_iter()
    }
}

impl fmt::Debug for Guards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
