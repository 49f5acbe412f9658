//! One tick, without a schedule: for programs that have a clock or a queue of their own.

use std::{fmt, time::Duration};

use crate::{
    Due, Error, Locks, Tick, TickError, Ticked,
    contract::time::format_duration,
    schedule::{
        record::CLOCK_TOLERANCE,
        turn::{Begun, Place, Recorded, TickOptions},
    },
    turn::Waiting,
};

/// One tick of the work `name`, made by [`Locks::tick`]: the work runs for each due time at most one time after
/// another has succeeded, in all processes. Nothing happens before one of the `run` methods is awaited.
///
/// It is what [`Schedule`](crate::Schedule) does for each tick, without waiting for the time: for programs that are
/// started by a timer of their own (cron, a systemd timer, a job of Kubernetes) on several machines, and know the
/// nominal time for which they were started.
///
/// - A tick **runs if its due time is later than that of every tick that has run**. So the due times must grow, and
///   they must be the same in all processes: a nominal time, and not what the clock shows.
/// - A call for a tick that runs elsewhere **waits for that run**, and takes its place if it fails.
///
/// The engine must store memos: [`Profile::no_memos`](crate::Profile::no_memos).
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # pollster::block_on(async {
/// # async fn make_report(token: leasehold::Token) -> Result<(), std::io::Error> { Ok(()) }
/// # let locks = leasehold::Locks::connect("memory:tick-type")?;
/// use leasehold::{Due, Ticked};
/// let tick = locks.tick("report", Due::from_unix_secs(1_767_225_600));
/// assert_eq!(tick.run(async |tick| make_report(tick.token()).await).await?, Ticked::Ran);
/// assert_eq!(tick.run(async |tick| make_report(tick.token()).await).await?, Ticked::Done);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
#[must_use = "this does nothing until one of its methods is awaited"]
pub struct TickRequest {
    options: TickOptions,
    due: Due,
}

impl Locks {
    /// One tick of the work `name`: see [`TickRequest`].
    pub fn tick(&self, name: impl AsRef<str>, due: impl Into<Due>) -> TickRequest {
        TickRequest { options: TickOptions::new(self, name.as_ref()), due: due.into() }
    }
}

impl TickRequest {
    /// Records the tick before its work begins, so that it never runs a second time: see
    /// [`Schedule::at_most_once`](crate::Schedule::at_most_once).
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:tick-at-most-once")?;
    /// use leasehold::{Due, Ticked};
    /// let tick = locks.tick("report", Due::from_unix_secs(60)).at_most_once();
    /// assert!(tick.run_blocking(|_| Err("no paper")).is_err());
    /// assert_eq!(tick.run_blocking(|_| Ok::<_, &str>(())).unwrap(), Ticked::Done);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn at_most_once(mut self) -> Self {
        self.options.recorded = Recorded::BeforeWork;
        self
    }

    /// For how long the name stays taken at least: see [`Schedule::at_least`](crate::Schedule::at_least).
    pub const fn at_least(mut self, at_least: Duration) -> Self {
        self.options.at_least = Some(at_least);
        self
    }

    /// The longest time for the work: see [`Schedule::at_most`](crate::Schedule::at_most).
    pub fn at_most(self, at_most: Duration) -> Self {
        Self { options: self.options.with_request(|request| request.max_hold(at_most)), ..self }
    }

    /// The lease time of the lock: see [`Request::ttl`](crate::Request::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { options: self.options.with_request(|request| request.ttl(ttl)), ..self }
    }

    /// For how long the record is stored: see [`Schedule::keep`](crate::Schedule::keep).
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.options.keep = keep;
        self
    }

    /// The label of the run for operators; `user@host:pid` by default. A label alone: two runs never share a hold.
    pub fn owner(mut self, label: &str) -> Self {
        self.options.owner = Some(label.to_owned());
        self
    }

    /// Runs the work of the tick, unless it has run. Waits for a run of the tick that is going on. At the moment at
    /// which the lock is lost, the work is cancelled by dropping its future.
    ///
    /// # Errors
    /// - [`TickError::NotBegun`]: nothing ran. With the errors of [`Request::acquire`](crate::Request::acquire);
    ///   [`is_invalid`](Error::is_invalid) also if the tick is more than a minute ahead of the clock of this machine,
    ///   because recording it would keep earlier ticks from running; [`is_misconfigured`](Error::is_misconfigured) if
    ///   the engine stores no memos (then nothing was sent), or if a memo of another kind is stored under the name;
    ///   [`is_unreachable`](Error::is_unreachable) if the engine cannot be reached when the call begins.
    /// - [`TickError::Work`], [`TickError::Cancelled`], [`TickError::Unconfirmed`]: the work ran.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, or drops the work and then releases in the background. The tick is not
    /// recorded then, except with [`at_most_once`](Self::at_most_once).
    pub fn run<E, W>(&self, work: W) -> impl Future<Output = Result<Ticked, TickError<E>>> + use<E, W>
    where
        W: AsyncFnOnce(&Tick) -> Result<(), E>,
    {
        self.clone().run_or_skip(Waiting::UntilDone, work)
    }

    /// [`run`](Self::run), but waits for at most `limit` for a run that is going on. The limit includes the requests
    /// after the grant, which look whether the tick has run.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`is_timed_out`](Error::is_timed_out) if another run went on all the time.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn run_within<E, W>(
        &self,
        limit: Duration,
        work: W,
    ) -> impl Future<Output = Result<Ticked, TickError<E>>> + use<E, W>
    where
        W: AsyncFnOnce(&Tick) -> Result<(), E>,
    {
        self.clone().run_or_skip(Waiting::AtMost(limit), work)
    }

    /// [`run`](Self::run), but does not wait for a run that is going on.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`is_taken`](Error::is_taken) if another run goes on now.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn try_run<E, W>(&self, work: W) -> impl Future<Output = Result<Ticked, TickError<E>>> + use<E, W>
    where
        W: AsyncFnOnce(&Tick) -> Result<(), E>,
    {
        self.clone().run_or_skip(Waiting::Never, work)
    }

    /// [`run`](Self::run) for code without an executor: blocks the thread. The work is not cancelled when the lock is
    /// lost: it looks at [`Guard::check`](crate::Guard::check) before each step that others can see.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:tick-blocking")?;
    /// use leasehold::{Due, Ticked};
    /// let ran = locks.tick("report", Due::from_unix_secs(60)).run_blocking(|tick| {
    ///     println!("the report of {}", tick.due());
    ///     Ok::<_, std::io::Error>(())
    /// });
    /// assert_eq!(ran.unwrap(), Ticked::Ran);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run), without [`TickError::Cancelled`].
    #[track_caller]
    pub fn run_blocking<E>(&self, work: impl FnOnce(&Tick) -> Result<(), E>) -> Result<Ticked, TickError<E>> {
        let begun = self.options.block_on(self.begin(Waiting::UntilDone));
        let open = match begun.map_err(TickError::NotBegun)? {
            Begun::Done(_) => return Ok(Ticked::Done),
            Begun::Open(open) => open,
        };
        let done = work(&open.tick);
        let ended = self.options.block_on(async { Ok(self.options.end(open, Ok(done)).await) });
        ended.map_err(TickError::Unconfirmed)?.map(|_| Ticked::Ran)
    }

    async fn run_or_skip<E>(
        self,
        waiting: Waiting,
        work: impl AsyncFnOnce(&Tick) -> Result<(), E>,
    ) -> Result<Ticked, TickError<E>> {
        let mut open = match self.begin(waiting).await.map_err(TickError::NotBegun)? {
            Begun::Done(_) => return Ok(Ticked::Done),
            Begun::Open(open) => open,
        };
        open.tick.set_working(true);
        let done = open.tick.guard().run(work(&open.tick)).await;
        open.tick.set_working(done.is_err());
        self.options.end(open, done).await.map(|_| Ticked::Ran)
    }

    async fn begin(&self, waiting: Waiting) -> Result<Begun, Error> {
        let name = self.options.checked()?;
        let ahead = self.due.since(self.options.now());
        if ahead > CLOCK_TOLERANCE {
            let (name_text, tolerance) = (name.as_str(), format_duration(CLOCK_TOLERANCE));
            let ahead = format_duration(Duration::from_secs(ahead.as_secs()));
            return Err(Error::invalid(format!(
                "lock {name_text:?}: the tick {} is {ahead} ahead of the clock of this machine, and at most \
                 {tolerance} is allowed: check the clocks, and how the tick is computed",
                self.due
            ))
            .of_name(&name));
        }
        let place = Place { due: self.due, before: None, begins_schedule: false };
        self.options.begin(place, waiting).await
    }
}

impl fmt::Debug for TickRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TickRequest")
            .field("due", &self.due)
            .field("request", &self.options.request)
            .finish_non_exhaustive()
    }
}
