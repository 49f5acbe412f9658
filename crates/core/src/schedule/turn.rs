//! One tick: waits for its turn, and records it before or after its work.

use std::{ops::ControlFlow, sync::Arc, time::Duration};

use crate::{
    Due, Error, Guard, Locks, MAX_MEMO_KEEP, MemoKind, Name, NewMemo, Request, TickError, Token,
    memo::{check_kind, check_memos},
    schedule::record::TickRecord,
    turn::{Look, Turn, Waiting, next_turn},
};

/// What the work of a tick gets: the nominal time of the tick, and the guard of the lock.
#[derive(Debug)]
pub struct Tick {
    due: Due,
    guard: Guard,
}

impl Tick {
    /// The nominal time of the tick: the same in every process that runs it, also if it runs late or again.
    #[must_use]
    pub const fn due(&self) -> Due {
        self.due
    }

    /// The token of the hold, which belongs to every write: see [`Guard::token`].
    #[must_use]
    pub fn token(&self) -> Token {
        self.guard.token()
    }

    pub(super) fn set_working(&mut self, is_working: bool) {
        self.guard.set_working(is_working);
    }

    /// The guard, for everything that a guard can do. [`Guard::previous`] is not
    /// [`Clean`](crate::Previous::Clean) if a run before this one crashed and may have left its work half done.
    pub const fn guard(&self) -> &Guard {
        &self.guard
    }
}

/// The options that a schedule and a single tick share.
#[derive(Clone, Debug)]
pub(crate) struct TickOptions {
    pub(crate) locks: Locks,
    pub(crate) request: Request,
    /// The label of the owner: each run is an owner of its own, so that no two share a hold.
    pub(crate) owner: Option<String>,
    pub(crate) keep: Duration,
    pub(crate) at_least: Option<Duration>,
    pub(crate) recorded: Recorded,
}

/// When a tick is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// With the release, after the work has succeeded: at least once.
    AfterWork,
    /// Before the work: at most once.
    BeforeWork,
}

/// A tick, and its place in the timetable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) due: Due,
    /// The tick before it, if it is one of a schedule.
    pub(crate) before: Option<Due>,
    /// If nothing is recorded, the schedule begins with this tick.
    pub(crate) begins_schedule: bool,
}

/// What became of the wait for a turn.
pub(crate) enum Begun {
    /// The tick has run: this is the record.
    Done(TickRecord),
    /// It is to be run now.
    Open(OpenTick),
}

/// A tick whose work is to be run now.
pub(crate) struct OpenTick {
    pub(crate) tick: Tick,
    /// The record with this tick.
    record: TickRecord,
}

impl TickOptions {
    pub(crate) fn new(locks: &Locks, name: &str) -> Self {
        Self {
            locks: locks.clone(),
            request: locks.mutex(name),
            owner: None,
            keep: MAX_MEMO_KEEP,
            at_least: None,
            recorded: Recorded::AfterWork,
        }
    }

    /// The same options with a changed request.
    pub(crate) fn with_request(mut self, change: impl FnOnce(Request) -> Request) -> Self {
        self.request = change(self.request);
        self
    }

    /// The name, if all options are valid and the engine stores memos. Nothing is sent.
    pub(crate) fn checked(&self) -> Result<Name, Error> {
        let name = self.request.validated(None)?.name;
        check_memos(self.locks.shared(), &name)?;
        self.memo(&TickRecord::default())?;
        Ok(name)
    }

    /// What the clock of this process shows.
    pub(crate) fn now(&self) -> Due {
        Due::of_time_of_day(self.locks.shared().env.clock.time_of_day())
    }

    /// The record, and the token of the run that wrote it; no ticks and no token if nothing is stored.
    pub(crate) async fn read(&self, name: &Name) -> Result<(TickRecord, Option<Token>), Error> {
        let Some(memo) = self.locks.read_memo_of(name).await? else {
            return Ok((TickRecord::default(), None));
        };
        let engine = self.locks.profile().engine;
        check_kind(&memo, &MemoKind::SCHEDULE, name, engine)?;
        let record = TickRecord::decode(&memo.bytes).ok_or_else(|| {
            let name_text = name.as_str();
            Error::misconfigured(format!(
                "{engine} lock {name_text:?}: its memo is no record of ticks that this version of leasehold can \
                 read: use another name"
            ))
            .of_name(name)
        })?;
        Ok((record, Some(memo.token)))
    }

    /// Waits for the turn of this tick, or until it is recorded.
    pub(crate) async fn begin(&self, place: Place, waiting: Waiting) -> Result<Begun, Error> {
        let name = self.checked()?;
        let look = LookForTick { options: self, name, due: place.due };
        let request = self.request.for_new_owner(self.owner.as_deref());
        let turn = next_turn(&self.locks, &request, waiting, &look).await?;
        let (guard, found) = match turn {
            Turn::Done(record) => return Ok(Begun::Done(record)),
            Turn::Run(guard, record) => (guard, record),
        };
        let begins = place.begins_schedule && found.is_empty();
        let found = if begins { TickRecord::beginning(before(place.due)) } else { found };
        let record = found.clone().with(place.due, place.before);
        // If this write fails, dropping the guard releases the name.
        match self.recorded {
            Recorded::BeforeWork => guard.write_memo(self.memo(&record)?).await?,
            // A process that dies in the first run leaves the record that this tick is due.
            Recorded::AfterWork if begins => guard.write_memo(self.memo(&found)?).await?,
            Recorded::AfterWork => {}
        }
        Ok(Begun::Open(OpenTick { tick: Tick { due: place.due, guard }, record }))
    }

    /// Ends a tick whose work has ended with `done`; an error if it was cancelled. Returns the record.
    pub(crate) async fn end<E>(
        &self,
        open: OpenTick,
        done: Result<Result<(), E>, Error>,
    ) -> Result<TickRecord, TickError<E>> {
        let OpenTick { tick: Tick { guard, .. }, record } = open;
        let result = done.map_err(TickError::Cancelled)?;
        if let Err(error) = result {
            // The error of the work counts, not that of the release.
            let _ = self.release(guard).await;
            return Err(TickError::Work(error));
        }
        self.confirm(guard, &record).await.map_err(TickError::Unconfirmed)?;
        Ok(record)
    }

    /// Records the tick if it is not recorded yet, and releases.
    async fn confirm(&self, guard: Guard, record: &TickRecord) -> Result<(), Error> {
        match (self.recorded, self.at_least) {
            (Recorded::BeforeWork, _) => self.release(guard).await,
            (Recorded::AfterWork, None) => guard.release_with_memo(self.memo(record)?).await,
            (Recorded::AfterWork, Some(_)) => {
                guard.write_memo(self.memo(record)?).await?;
                self.release(guard).await
            }
        }
    }

    /// Releases, and keeps the name taken for the time that the user chose.
    async fn release(&self, guard: Guard) -> Result<(), Error> {
        match self.at_least {
            Some(at_least) => guard.release_at_least(at_least).await,
            None => guard.release().await,
        }
    }

    fn memo(&self, record: &TickRecord) -> Result<NewMemo, Error> {
        NewMemo::new(MemoKind::SCHEDULE, record.encode(), self.keep)
    }

    /// Blocks the thread until `future` is done.
    #[track_caller]
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let handle = Arc::clone(self.request.handle());
        handle.block_on(future)?
    }
}

/// Looks whether a tick has run.
struct LookForTick<'a> {
    options: &'a TickOptions,
    name: Name,
    due: Due,
}

impl Look for LookForTick<'_> {
    type Done = TickRecord;
    type Open = TickRecord;

    async fn look(&self) -> Result<ControlFlow<TickRecord, TickRecord>, Error> {
        let (record, _) = self.options.read(&self.name).await?;
        let is_settled = record.is_settled(self.due, self.options.now());
        Ok(if is_settled { ControlFlow::Break(record) } else { ControlFlow::Continue(record) })
    }
}

/// The last moment before a tick.
fn before(due: Due) -> Due {
    due.minus(Duration::from_millis(1))
}
