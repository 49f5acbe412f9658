//! Runs the ticks of a schedule: waits for each of them, and runs its work if no other process does.

use std::{fmt::Display, pin::pin, time::Duration};

use crate::{
    Due, Error, ErrorKind, Loss, Missed, Schedule, Tick, TickError,
    schedule::{
        plan::{Progress, Step, awaited_at},
        record::CLOCK_TOLERANCE,
        turn::{Begun, OpenTick, Place, Recorded},
    },
    turn::Waiting,
};

/// The pause before work that failed is tried again, and before a further request after an error of the engine. It
/// doubles with each failure in a row.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest sleep before the time of day is read again: a clock that is set forward delays a tick by at most this.
const LONGEST_SLEEP: Duration = Duration::from_secs(10);

impl Schedule {
    /// Runs `work` for each tick, until the timetable has no further tick. At the moment at which the lock is lost, the
    /// work is cancelled by dropping its future. Work that fails is logged, and tried again.
    ///
    /// An outage of the engine is waited for: ticks that were due meanwhile are missed.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # pollster::block_on(async {
    /// # async fn make_report(token: leasehold::Token) -> Result<(), std::io::Error> { Ok(()) }
    /// # let locks = leasehold::Locks::connect("memory:")?;
    /// use leasehold::Every;
    /// let hourly = Every::new(std::time::Duration::from_secs(3600));
    /// locks.schedule("report", hourly).run(async |tick| make_report(tick.token()).await).await?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Errors that do not pass: [`is_misconfigured`](Error::is_misconfigured) if the engine stores no memos (then
    /// nothing was sent), or if a memo of another kind is stored under the name; [`is_invalid`](Error::is_invalid) for
    /// an invalid name, timetable or option; [`is_denied`](Error::is_denied); [`is_closed`](Error::is_closed) after
    /// `Locks::close`; [`ErrorKind::Forked`] and [`ErrorKind::Internal`]. Other errors are logged, and tried again.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, or drops the work and then releases in the background. The tick that ran
    /// is not recorded then, except with [`at_most_once`](Self::at_most_once). [`run_until`](Self::run_until) stops
    /// after the work.
    pub fn run<E, W>(&self, work: W) -> impl Future<Output = Result<(), Error>> + use<E, W>
    where
        W: AsyncFnMut(&Tick) -> Result<(), E>,
        E: Display,
    {
        run_ticks(self.clone(), std::future::pending(), work)
    }

    /// [`run`](Self::run), until `stop` is done: then no tick begins any more, and work that runs is awaited.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub fn run_until<E, W, S>(
        &self,
        stop: S,
        work: W,
    ) -> impl Future<Output = Result<(), Error>> + use<E, W, S>
    where
        W: AsyncFnMut(&Tick) -> Result<(), E>,
        E: Display,
        S: Future<Output = ()>,
    {
        run_ticks(self.clone(), stop, work)
    }

    /// [`run`](Self::run) for code without an executor: blocks the thread, until the timetable has no further tick or
    /// the `Locks` is closed. The work is not cancelled when the lock is lost: it looks at
    /// [`Guard::check`](crate::Guard::check) before each step that others can see.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn run_blocking<E: Display>(
        &self,
        mut work: impl FnMut(&Tick) -> Result<(), E>,
    ) -> Result<(), Error> {
        let mut runner = Runner::new(self.clone());
        while let Some(open) = self.options.block_on(runner.next_tick())? {
            let done = work(&open.tick);
            self.options.block_on(async {
                runner.end(open, Ok(done)).await;
                Ok(())
            })?;
        }
        Ok(())
    }
}

async fn run_ticks<E: Display>(
    schedule: Schedule,
    stop: impl Future<Output = ()>,
    mut work: impl AsyncFnMut(&Tick) -> Result<(), E>,
) -> Result<(), Error> {
    let (mut runner, mut stop) = (Runner::new(schedule), pin!(stop));
    loop {
        let next = tokio::select! {
            biased;
            () = stop.as_mut() => return Ok(()),
            next = runner.next_tick() => next?,
        };
        let Some(mut open) = next else { return Ok(()) };
        open.tick.set_working(true);
        let done = open.tick.guard().run(work(&open.tick)).await;
        open.tick.set_working(done.is_err());
        runner.end(open, done).await;
    }
}

/// Why a sleep has ended.
enum Woken {
    /// The time has come.
    InTime,
    /// The clock was set back, so another tick may be next.
    ClockSetBack,
}

/// What ends a pause after a failure.
#[derive(Clone, Copy)]
enum Pause {
    At(Due),
    /// This tick becomes due before the pause is over. It is awaited as any other tick.
    Tick(Due),
}

/// A process that runs a schedule.
struct Runner {
    schedule: Schedule,
    progress: Progress,
    /// The record was read.
    has_begun: bool,
    /// How many attempts have failed in a row.
    failures: u32,
    /// The pause after a failure.
    pause: Option<Pause>,
    /// The tick of a fast clock of which the log was told.
    reported: Option<Due>,
}

impl Runner {
    const fn new(schedule: Schedule) -> Self {
        let progress = Progress::NONE;
        Self { schedule, progress, has_begun: false, failures: 0, pause: None, reported: None }
    }

    /// Waits for the next tick that this process is to run; `None` if the timetable has none.
    async fn next_tick(&mut self) -> Result<Option<OpenTick>, Error> {
        self.schedule.options.checked()?;
        if let Some(problem) = self.schedule.plan.problem() {
            return Err(Error::invalid(format!("schedule {:?}: {problem}", self.name())));
        }
        if !self.has_begun {
            // An outage at this time does not put off the begin of the schedule.
            let begins_at = self.progress.floor.unwrap_or_else(|| self.schedule.options.now());
            self.progress.floor = Some(begins_at);
        }
        loop {
            match self.try_next_tick().await {
                Err(error) if !is_final(&error) => self.note_failure(&error, true),
                next => return next,
            }
        }
    }

    async fn try_next_tick(&mut self) -> Result<Option<OpenTick>, Error> {
        match self.pause {
            // If the clock is set back, the pause ends early.
            Some(Pause::At(until)) => {
                let _ = self.sleep_until(until).await?;
            }
            Some(Pause::Tick(due)) => self.wait_for(due).await?,
            None => {}
        }
        self.pause = None;
        if !self.has_begun {
            self.begin().await?;
        }
        loop {
            let now = self.schedule.options.now();
            self.progress.note_time(now);
            match self.schedule.plan.next_step(&self.progress, now) {
                Step::End => return Ok(None),
                Step::Wait(due) => self.wait_for(due).await?,
                Step::Run(due) => {
                    let before = self.schedule.plan.before(due);
                    let place = Place { due, before, begins_schedule: true };
                    match self.schedule.options.begin(place, self.waiting(now)).await {
                        Ok(Begun::Open(open)) => return Ok(Some(open)),
                        Ok(Begun::Done(record)) => {
                            self.progress.record = record;
                            self.failures = 0;
                        }
                        // The next tick is due.
                        Err(error) if error.is_timed_out() => {}
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }

    /// How long to wait for a run elsewhere: until the next tick is due, unless missed ticks are run too.
    fn waiting(&self, now: Due) -> Waiting {
        match (self.schedule.plan.missed, self.schedule.plan.timetable.next_after(now)) {
            (Missed::Skip | Missed::Latest, Some(next)) => Waiting::AtMost(next.since(now)),
            (Missed::All(_), _) | (_, None) => Waiting::UntilDone,
        }
    }

    /// Reads the record. If there is one, the schedule began before this process.
    async fn begin(&mut self) -> Result<(), Error> {
        let options = &self.schedule.options;
        let (record, _) = options.read(&options.request.valid_name()?).await?;
        self.progress.floor = self.progress.floor.filter(|_| record.is_empty());
        self.progress.record = record;
        self.has_begun = true;
        self.report_fast_clock();
        Ok(())
    }

    async fn wait_for(&mut self, due: Due) -> Result<(), Error> {
        let jitter = self.random_jitter();
        let woken = self.sleep_until(due.plus(jitter)).await?;
        self.progress.awaited = match woken {
            Woken::InTime => awaited_at(due, jitter, self.schedule.options.now()),
            Woken::ClockSetBack => None,
        };
        Ok(())
    }

    /// Ends the tick whose work has ended with `done`; an error if it was cancelled.
    async fn end<E: Display>(&mut self, open: OpenTick, done: Result<Result<(), E>, Error>) {
        let due = open.tick.due();
        let error = match self.schedule.options.end(open, done).await {
            Ok(record) => {
                self.progress.record = record;
                self.failures = 0;
                self.report_fast_clock();
                return;
            }
            Err(error) => error,
        };
        self.note_failure(&error, self.schedule.options.recorded == Recorded::AfterWork);
        if is_of_work(&error) {
            let now = self.schedule.options.now();
            self.progress.note_failed(due, self.schedule.plan.timetable.next_after(now));
        }
    }

    /// Logs the failure, and pauses before the next attempt, at most until the next tick.
    fn note_failure(&mut self, error: &impl Display, is_retried: bool) {
        let name = self.name();
        if is_retried {
            tracing::warn!(name, %error, "a tick of the schedule has failed: it is tried again");
        } else {
            tracing::warn!(name, %error, "a tick of the schedule has failed: it runs at most once, so it is over");
        }
        let doubled = FIRST_PAUSE * 2_u32.saturating_pow(self.failures.min(16));
        self.failures += 1;
        let now = self.schedule.options.now();
        let end = now.plus(doubled.min(LONGEST_PAUSE));
        let next = self.schedule.plan.timetable.next_after(now);
        self.pause = Some(next.filter(|next| *next <= end).map_or(Pause::At(end), Pause::Tick));
    }

    /// Logs, one time for each, a tick that was recorded far ahead of the clock of this process.
    fn report_fast_clock(&mut self) {
        let now = self.schedule.options.now();
        let latest = self.progress.record.latest().filter(|latest| latest.since(now) > CLOCK_TOLERANCE);
        if latest.is_some() && self.reported != latest {
            let ahead = latest.unwrap_or(now).since(now);
            tracing::warn!(
                name = self.name(),
                ?ahead,
                "a tick was recorded that is ahead of the clock of this machine: one of the clocks is wrong"
            );
            self.reported = latest;
        }
    }

    /// Sleeps until the time of day is `until`, or until the clock is set back.
    async fn sleep_until(&self, until: Due) -> Result<Woken, Error> {
        let shared = self.schedule.options.locks.shared();
        let mut latest = self.schedule.options.now();
        loop {
            shared.ensure_served()?;
            let now = self.schedule.options.now();
            let left = until.since(now);
            if left.is_zero() {
                return Ok(Woken::InTime);
            }
            if latest.since(now) > CLOCK_TOLERANCE {
                return Ok(Woken::ClockSetBack);
            }
            latest = latest.max(now);
            // The alarm ends early with the keeper; the loop then ends with an error.
            let _ = shared.alarm(shared.now().after(left.min(LONGEST_SLEEP))).await;
        }
    }

    /// A random time of at most the jitter, in milliseconds.
    fn random_jitter(&self) -> Duration {
        let jitter = self.schedule.jitter;
        let random = f64::from(self.schedule.options.locks.shared().env.jitter()) / f64::from(u32::MAX);
        Duration::from_millis((jitter.as_millis() as f64 * random) as u64)
    }

    fn name(&self) -> &str {
        self.schedule.options.request.name_text()
    }
}

/// Whether it is the work that has failed, or took longer than it may, and not the engine.
fn is_of_work<E>(error: &TickError<E>) -> bool {
    match error {
        TickError::Work(_) => true,
        TickError::Cancelled(error) => error.kind() == ErrorKind::Lost(Loss::MaxHold),
        TickError::NotBegun(_) | TickError::Unconfirmed(_) => false,
    }
}

/// Whether the error would come again at each further attempt.
fn is_final(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Denied
            | ErrorKind::Misconfigured
            | ErrorKind::Invalid
            | ErrorKind::Closed
            | ErrorKind::Forked
            | ErrorKind::Internal
    )
}
