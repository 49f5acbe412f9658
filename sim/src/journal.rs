//! The record of a run: the history as users saw it, and the figures.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::Instant;
use leasehold_testkit::history::{AttemptId, Event, History, What};

use crate::{
    notice::Doubt,
    scheduler::{Group, Scheduler},
    tally::Tally,
    verdict::Complaint,
};

/// The initial capacity for events: most runs have fewer events.
const EVENT_CAPACITY: usize = 512;

/// Records the events of a run. All times are times of the world's clock.
pub(crate) struct Journal {
    scheduler: Arc<Scheduler>,
    run: u64,
    inner: Mutex<JournalState>,
}

/// What was recorded so far.
#[derive(Default)]
struct JournalState {
    events: Vec<Event>,
    /// How many events each process recorded, and how many attempts it made.
    counts: BTreeMap<Group, (u64, u64)>,
    tally: Tally,
    doubts: Vec<Doubt>,
    complaints: Vec<Complaint>,
}

/// All that was recorded.
pub(crate) struct Record {
    /// The history as users saw it.
    pub(crate) history: History,
    /// The figures.
    pub(crate) tally: Tally,
    /// The clients that learned that the server's clock runs ahead, each with the time at which it learned this. A
    /// clock that runs ahead is a reason to doubt the client's holds.
    pub(crate) doubts: Vec<Doubt>,
    /// Violations that were found during the run.
    pub(crate) complaints: Vec<Complaint>,
}

/// The task that an event belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Actor {
    /// The process.
    pub(crate) process: Group,
    /// The task.
    pub(crate) task: u32,
}

impl Journal {
    /// An empty journal for the run with this number.
    #[must_use]
    pub(crate) fn new(scheduler: Arc<Scheduler>, run: u64) -> Self {
        let inner = JournalState { events: Vec::with_capacity(EVENT_CAPACITY), ..JournalState::default() };
        Self { scheduler, run, inner: Mutex::new(inner) }
    }

    /// The scheduler whose clock the journal uses.
    #[must_use]
    pub(crate) const fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// A new id for an attempt of this process.
    pub(crate) fn new_attempt(&self, process: Group) -> AttemptId {
        let mut inner = self.lock();
        let (_, attempts) = inner.counts.entry(process).or_default();
        *attempts += 1;
        u64::from(process.number()) << 32 | *attempts
    }

    /// Records an event of an attempt that happened at `at`. Events of killed processes are ignored.
    pub(crate) fn record(&self, at: Instant, actor: Actor, lock: &str, attempt: AttemptId, what: What) {
        if !self.scheduler.is_alive(actor.process) {
            return;
        }
        self.scheduler.note(attempt, || {
            format!("process {} task {} {lock} {attempt:x}: {what:?}", actor.process.number(), actor.task)
        });
        let mut inner = self.lock();
        let (seq, _) = inner.counts.entry(actor.process).or_default();
        let event = Event {
            run: self.run,
            proc: actor.process.number(),
            seq: *seq,
            t: at.as_nanos(),
            task: actor.task,
            lock: lock.to_owned(),
            attempt,
            what,
        };
        *seq += 1;
        inner.events.push(event);
    }

    /// Records an event of a process, a lock or the whole world, now.
    pub(crate) fn note(&self, lock: &str, what: What) {
        self.record(self.scheduler.now(), Actor { process: Group::WORLD, task: 0 }, lock, 0, what);
    }

    /// Counts a fault of this kind.
    pub(crate) fn fault(&self, kind: &'static str) {
        self.scheduler.note(0, || format!("fault: {kind}"));
        self.figures(|tally| *tally.faults.entry(kind).or_default() += 1);
    }

    /// Records a disturbance of the whole system that begins now and ends after `length`.
    pub(crate) fn storm(self: &Arc<Self>, kind: &str, length: Duration) {
        // The kind has the time, so that two disturbances of one kind that overlap are told apart.
        let kind = format!("{kind} {}", self.scheduler.now().as_nanos());
        self.note("", What::NemesisBegin { kind: kind.clone() });
        let journal = Arc::clone(self);
        let end = self.scheduler.now().after(length);
        self.scheduler.at(end, move || journal.note("", What::NemesisEnd { kind }));
    }

    /// Changes the figures.
    pub(crate) fn figures(&self, change: impl FnOnce(&mut Tally)) {
        change(&mut self.lock().tally);
    }

    /// Records that a client has just learned that the server's clock runs ahead.
    pub(crate) fn doubt(&self, client: Group) {
        let learned = self.scheduler.now();
        self.lock().doubts.push(Doubt { client, learned });
    }

    /// Records a violation that the history does not show.
    pub(crate) fn complain(&self, kind: &str, text: String) {
        self.lock().complaints.push(Complaint::new(kind, text));
    }

    /// Takes all that was recorded.
    #[must_use]
    pub(crate) fn take(&self) -> Record {
        let JournalState { events, tally, doubts, complaints, .. } = std::mem::take(&mut *self.lock());
        Record { history: History::from_events(events), tally, doubts, complaints }
    }

    fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
