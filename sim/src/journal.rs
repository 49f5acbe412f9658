//! What happened in a run: the history as users saw it, and figures.

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

/// Most runs have fewer events.
const EVENTS: usize = 512;

/// Writes down what happens. All times are the world's.
pub(crate) struct Journal {
    scheduler: Arc<Scheduler>,
    run: u64,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    /// How many events each process recorded, and how many attempts it made.
    counts: BTreeMap<Group, (u64, u64)>,
    tally: Tally,
    doubts: Vec<Doubt>,
    complaints: Vec<Complaint>,
}

/// What was recorded.
pub(crate) struct Record {
    /// As users saw it.
    pub(crate) history: History,
    /// Figures.
    pub(crate) tally: Tally,
    /// Who heard of a reason to doubt.
    pub(crate) doubts: Vec<Doubt>,
    /// What was wrong at once.
    pub(crate) complaints: Vec<Complaint>,
}

/// Who records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    /// The process.
    pub(crate) process: Group,
    /// The task.
    pub(crate) task: u32,
}

impl Journal {
    /// An empty one, of the run with this number.
    #[must_use]
    pub(crate) fn new(scheduler: Arc<Scheduler>, run: u64) -> Self {
        let inner = Inner { events: Vec::with_capacity(EVENTS), ..Inner::default() };
        Self { scheduler, run, inner: Mutex::new(inner) }
    }

    /// The clockwork by which it tells the time.
    #[must_use]
    pub(crate) const fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// The id of an attempt that is about to be made.
    pub(crate) fn new_attempt(&self, process: Group) -> AttemptId {
        let mut inner = self.lock();
        let (_, attempts) = inner.counts.entry(process).or_default();
        *attempts += 1;
        u64::from(process.number()) << 32 | *attempts
    }

    /// Something happened to an attempt, at `at`. The dead record nothing.
    pub(crate) fn record(&self, at: Instant, who: Who, lock: &str, attempt: AttemptId, what: What) {
        if !self.scheduler.is_alive(who.process) {
            return;
        }
        self.scheduler.note(attempt, || {
            format!("process {} task {} {lock} {attempt:x}: {what:?}", who.process.number(), who.task)
        });
        let mut inner = self.lock();
        let (seq, _) = inner.counts.entry(who.process).or_default();
        let event = Event {
            run: self.run,
            proc: who.process.number(),
            seq: *seq,
            t: at.as_nanos(),
            task: who.task,
            lock: lock.to_owned(),
            attempt,
            what,
        };
        *seq += 1;
        inner.events.push(event);
    }

    /// Something happened to a process, a lock or the whole world, now.
    pub(crate) fn note(&self, lock: &str, what: What) {
        self.record(self.scheduler.now(), Who { process: Group::WORLD, task: 0 }, lock, 0, what);
    }

    /// Something of this kind went wrong.
    pub(crate) fn fault(&self, kind: &'static str) {
        self.scheduler.note(0, || format!("fault: {kind}"));
        self.figures(|tally| *tally.faults.entry(kind).or_default() += 1);
    }

    /// A disturbance of the whole system begins, and ends after `length`.
    pub(crate) fn storm(self: &Arc<Self>, kind: &str, length: Duration) {
        // Two of a kind at one time are two.
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

    /// A client hears that the server's clock runs ahead.
    pub(crate) fn doubt(&self, client: Group) {
        let heard = self.scheduler.now();
        self.lock().doubts.push(Doubt { client, heard });
    }

    /// Something is wrong that no history shows.
    pub(crate) fn complain(&self, kind: &str, text: String) {
        self.lock().complaints.push(Complaint::new(kind, text));
    }

    /// What was recorded.
    #[must_use]
    pub(crate) fn take(&self) -> Record {
        let Inner { events, tally, doubts, complaints, .. } = std::mem::take(&mut *self.lock());
        Record { history: History::from_events(events), tally, doubts, complaints }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
