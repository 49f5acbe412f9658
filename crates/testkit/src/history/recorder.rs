//! Records events. Each process has one recorder.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    process,
    sync::{Mutex, MutexGuard, PoisonError},
};

use leasehold_core::Mode;

use super::{Attempt, AttemptId, Event, History, What, now_nanos};

/// Records the events of all tasks of one process. Share it by reference or `Arc`.
#[derive(Debug)]
pub struct Recorder {
    run: u64,
    proc: u32,
    state: Mutex<RecorderState>,
}

/// What a recorder has recorded.
#[derive(Debug)]
struct RecorderState {
    /// The sequence number of the next event.
    seq: u64,
    /// The number of attempts so far.
    attempts: u64,
    sink: Sink,
}

/// Where events are recorded.
#[derive(Debug)]
enum Sink {
    Memory(Vec<Event>),
    /// A file. Each event is one unbuffered write, so no recorded event is lost when the process is killed.
    File(File),
}

impl Recorder {
    /// Keeps the events in memory. `proc` distinguishes the simulated processes of a test.
    #[must_use]
    pub fn in_memory(run: u64, proc: u32) -> Self {
        Self::new(run, proc, Sink::Memory(Vec::new()))
    }

    /// A recorder that appends to the file at `path`. Its events have the id of this process.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn to_file(run: u64, path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self::new(run, process::id(), Sink::File(file)))
    }

    fn new(run: u64, proc: u32, sink: Sink) -> Self {
        Self { run, proc, state: Mutex::new(RecorderState { seq: 0, attempts: 0, sink }) }
    }

    /// Records that `task` is about to acquire `lock`. The caller must call the acquire immediately afterwards.
    /// `limit_nanos` is the longest wait: 0 for a try, `None` for no limit.
    pub fn attempt(&self, task: u32, lock: &str, mode: Mode, limit_nanos: Option<u64>) -> Attempt<'_> {
        Attempt::begin(self, task, lock, mode, limit_nanos, None)
    }

    /// Like [`attempt`](Self::attempt), for an acquire that enters the hold of the attempt `within` again.
    pub fn reenter(&self, task: u32, lock: &str, mode: Mode, within: AttemptId) -> Attempt<'_> {
        Attempt::begin(self, task, lock, mode, None, Some(within))
    }

    /// Records an event of the process or of the run, at the current time.
    pub fn note(&self, what: What) {
        self.record(now_nanos(), 0, "", 0, what);
    }

    /// Records an event of a lock. `t` must be a time before the request of this event was sent to the server.
    pub fn note_lock(&self, t: u64, lock: &str, what: What) {
        self.record(t, 0, lock, 0, what);
    }

    /// The events recorded in memory so far. Empty for a recorder with a file.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        match &self.lock().sink {
            Sink::Memory(events) => events.clone(),
            Sink::File(_) => Vec::new(),
        }
    }

    /// The events recorded in memory so far, as a history.
    #[must_use]
    pub fn history(&self) -> History {
        History::from_events(self.events())
    }

    /// A new attempt id: the process in the upper half, the number of the attempt in the lower half.
    pub(super) fn next_attempt(&self) -> AttemptId {
        let mut state = self.lock();
        state.attempts += 1;
        u64::from(self.proc) << u32::BITS | state.attempts
    }

    /// Records an event with the time `t`.
    ///
    /// # Panics
    /// If the event cannot be written: an incomplete history would prove nothing.
    pub(super) fn record(&self, t: u64, task: u32, lock: &str, attempt: AttemptId, what: What) {
        let mut state = self.lock();
        let event = Event {
            run: self.run,
            proc: self.proc,
            seq: state.seq,
            t,
            task,
            lock: lock.into(),
            attempt,
            what,
        };
        state.seq += 1;
        match &mut state.sink {
            Sink::Memory(events) => events.push(event),
            Sink::File(file) => {
                let mut line = serde_json::to_vec(&event).expect("every event can be written as JSON");
                line.push(b'\n');
                file.write_all(&line).expect("the history must be complete: cannot write to its file");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, RecorderState> {
        // A panic of another task must not stop the recording.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
