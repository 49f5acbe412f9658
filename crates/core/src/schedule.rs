//! Schedules: work that runs one time for each tick of a timetable, in one of several processes.

pub(crate) mod due;
pub(crate) mod outcome;
pub(crate) mod plan;
mod record;
pub(crate) mod request;
mod run;
pub(crate) mod timetable;
pub(crate) mod turn;

use std::{fmt, sync::Arc, time::Duration};

use plan::Plan;
use turn::{Recorded, TickOptions};

use crate::{Due, Error, Locks, Missed, Pace, Timetable, Token, memo::check_memos};

/// Work that runs one time for each tick of a timetable, in one of all the processes that have the same schedule. Made
/// by [`Locks::schedule`]. Nothing happens before one of the `run` methods is awaited.
///
/// - **A tick is its nominal time**, [`Tick::due`](crate::Tick::due): the same in all processes, whatever their clocks
///   show. The first process that reaches it acquires a lock of this name, runs the work, and records the tick in the
///   step that releases the lock. Processes whose clocks are slower find the record and run nothing, however short the
///   work was.
/// - **If the process of a run dies**, another process that waits for the tick runs it. If the work fails, it is tried
///   again, elsewhere at once, and here after a pause of 1 s that doubles up to 1 min, until it succeeds or the next
///   tick is due. So the work of a tick runs **at least once**; [`at_most_once`](Self::at_most_once) turns that round.
/// - **One run at a time**: a tick that is due during a run waits for the end of that run.
/// - [`missed`](Self::missed) says what happens to ticks that nobody ran when they were due. By default the latest of
///   them is run, as soon as a process can.
/// - A clock that is set back makes no tick run again. A process whose clock is fast runs its ticks too early, and
///   keeps no other process from running the ticks before them.
///
/// **Not promised:** between the work and the record of its tick a process can be killed; then the work runs again.
/// Work whose lock was lost may still run when the next one begins; let the resource refuse its writes by the
/// [token](crate::Tick::token). A process decides by its own time of day whether a tick is due, so a fast clock makes a
/// tick early. The schedule begins with its first tick after the first process began; what was due before is not
/// missed.
///
/// The record needs an engine that stores memos; [`Profile::no_memos`](crate::Profile::no_memos) says which one does
/// not. All processes must give the same timetable.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # pollster::block_on(async {
/// # async fn make_report(token: leasehold::Token) -> Result<(), std::io::Error> { Ok(()) }
/// # let locks = leasehold::Locks::connect("memory:schedule-type")?;
/// use leasehold::Every;
/// use std::time::Duration;
/// let report = locks.schedule("report", Every::new(Duration::from_secs(600)));
/// let stop = async { /* for instance until SIGTERM */ };
/// report.run_until(stop, async |tick| make_report(tick.token()).await).await?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a schedule does nothing until one of its methods is awaited"]
pub struct Schedule {
    options: TickOptions,
    plan: Plan,
    jitter: Duration,
}

/// The last run of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastTick {
    /// The latest tick that has run.
    pub due: Due,
    /// The token of the run that stored the record.
    pub token: Token,
}

impl Locks {
    /// Work that runs one time for each tick of a timetable, in one of several processes: see [`Schedule`].
    pub fn schedule(&self, name: impl AsRef<str>, timetable: impl Timetable) -> Schedule {
        let plan = Plan { timetable: Arc::new(timetable), missed: Missed::Latest, max_late: None };
        Schedule { options: TickOptions::new(self, name.as_ref()), plan, jitter: Duration::ZERO }
    }
}

impl Schedule {
    /// What happens to ticks that nobody ran when they were due: see [`Missed`]. [`Missed::Latest`] by default.
    ///
    /// ```
    /// # let locks = leasehold::Locks::connect("memory:missed")?;
    /// use leasehold::{Every, Missed};
    /// let hourly = Every::new(std::time::Duration::from_secs(3600));
    /// // One run for each hour, also for hours in which no process ran, but not for more than a day.
    /// let billing = locks.schedule("billing", hourly).missed(Missed::All(24));
    /// # let _ = billing;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub const fn missed(mut self, missed: Missed) -> Self {
        self.plan.missed = missed;
        self
    }

    /// Ticks that are older than this are not run any more, whatever [`missed`](Self::missed) says. No limit by
    /// default.
    pub const fn max_late(mut self, max_late: Duration) -> Self {
        self.plan.max_late = Some(max_late);
        self
    }

    /// Waits for a random time, at most `jitter`, after each tick, so that many schedules do not begin at one moment.
    /// [`Tick::due`](crate::Tick::due) stays the nominal time. Give less than the time between two ticks.
    pub const fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Records the tick before its work begins, so that it never runs a second time. If the process dies, the lock is
    /// lost or the work fails, the tick is not run again: for work that is worse twice than not at all. If the record
    /// is not confirmed, the work does not begin.
    pub const fn at_most_once(mut self) -> Self {
        self.options.recorded = Recorded::BeforeWork;
        self
    }

    /// For how long the name stays taken at least, counted from the begin of a run, also after work that failed. As
    /// `lockAtLeastFor` of ShedLock, but not needed for clocks that differ, because the record tells ticks apart. For
    /// work that must not begin again too soon, also for another tick. See
    /// [`Guard::release_at_least`](crate::Guard::release_at_least).
    pub const fn at_least(mut self, at_least: Duration) -> Self {
        self.options.at_least = Some(at_least);
        self
    }

    /// The longest time for the work of one tick. After it the work is cancelled, and others can run the tick. As
    /// `lockAtMostFor` of ShedLock, but by default there is no limit: the lock is renewed as long as its process lives.
    /// See [`Request::max_hold`](crate::Request::max_hold).
    pub fn at_most(self, at_most: Duration) -> Self {
        Self { options: self.options.with_request(|request| request.max_hold(at_most)), ..self }
    }

    /// For how long the record is stored after each run, by the clock of the engine: 1 ms to 400 days; 400 days by
    /// default. Give more than the longest time between two ticks. Without a record the schedule begins anew.
    pub const fn keep(mut self, keep: Duration) -> Self {
        self.options.keep = keep;
        self
    }

    /// The lease time of the lock: how long others wait for the tick of a process that has died. See
    /// [`Request::ttl`](crate::Request::ttl).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { options: self.options.with_request(|request| request.ttl(ttl)), ..self }
    }

    /// How often the lease is renewed: see [`Request::renew_every`](crate::Request::renew_every).
    pub fn renew_every(self, interval: Duration) -> Self {
        Self { options: self.options.with_request(|request| request.renew_every(interval)), ..self }
    }

    /// How often a process that waits for the run of another asks the engine: see
    /// [`Request::retry`](crate::Request::retry).
    pub fn retry(self, pace: Pace) -> Self {
        Self { options: self.options.with_request(|request| request.retry(pace)), ..self }
    }

    /// Declares that this process ends its work on SIGTERM: see
    /// [`Request::stops_on_term`](crate::Request::stops_on_term).
    pub fn stops_on_term(self, stops: bool) -> Self {
        Self { options: self.options.with_request(|request| request.stops_on_term(stops)), ..self }
    }

    /// The label of the runs for operators; `user@host:pid` by default. A label alone: two runs never share a hold.
    pub fn owner(mut self, label: &str) -> Self {
        self.options.owner = Some(label.to_owned());
        self
    }

    /// The latest tick that has run; `None` if none is recorded. One request. Cancel safe.
    ///
    /// ```
    /// # pollster::block_on(async {
    /// # let locks = leasehold::Locks::connect("memory:last-tick")?;
    /// use leasehold::{Due, Every};
    /// let schedule = locks.schedule("report", Every::new(std::time::Duration::from_secs(60)));
    /// assert_eq!(schedule.last_tick().await?, None);
    /// locks.tick("report", Due::from_unix_secs(60)).run(async |_| Ok::<_, leasehold::Error>(())).await.unwrap();
    /// assert_eq!(schedule.last_tick().await?.map(|last| last.due), Some(Due::from_unix_secs(60)));
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos (then nothing was sent), or if
    /// another memo is stored under the name; [`is_invalid`](Error::is_invalid) for an invalid name; the engine's
    /// error.
    pub async fn last_tick(&self) -> Result<Option<LastTick>, Error> {
        let name = self.options.request.valid_name()?;
        check_memos(self.options.locks.shared(), &name)?;
        let (record, token) = self.options.read(&name).await?;
        Ok(record.latest().zip(token).map(|(due, token)| LastTick { due, token }))
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("request", &self.options.request)
            .field("missed", &self.plan.missed)
            .finish_non_exhaustive()
    }
}
