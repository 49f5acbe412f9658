//! Warnings and errors of the library for Python's `logging`. A thread that exists only while there are some hands them
//! over, so no thread of the library waits for the interpreter.

use std::{
    collections::VecDeque,
    fmt::{self, Write},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use pyo3::{prelude::*, sync::PyOnceLock};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

use crate::locks::forks;

/// More records than these wait for an interpreter that is busy for long, or for a slow handler: later ones are
/// dropped, and counted.
const MOST_RECORDS: usize = 1000;

/// The queue of this process is that at the number of its forks: another thread of the parent may have had the lock of
/// its queue at the fork. So many forks of forks share no queue.
static QUEUES: [Mutex<Queue>; 16] =
    [const { Mutex::new(Queue { records: VecDeque::new(), dropped: 0, is_served: false }) }; 16];

/// Set when the interpreter ends: nobody can receive a record any more.
static IS_OVER: AtomicBool = AtomicBool::new(false);

struct Queue {
    records: VecDeque<Record>,
    dropped: u64,
    /// Whether a thread hands the records over.
    is_served: bool,
}

/// A line for `logging`: its level there, and the text.
type Record = (u8, String);

fn queue() -> MutexGuard<'static, Queue> {
    let index = usize::try_from(forks()).unwrap_or_default() % QUEUES.len();
    QUEUES[index].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends the warnings and errors of the library to `logging`, Python's module for log records.
pub fn install() {
    // It fails only if the module was loaded before.
    let _ = tracing::subscriber::set_global_default(ToLogging);
}

/// Called when the interpreter ends: accepts no more records, and waits until the last ones are handed over, for at
/// most a second. After that a thread that waits for the interpreter would be ended in the middle of a call.
#[pyfunction]
pub fn flush_log(py: Python<'_>) {
    IS_OVER.store(true, Ordering::Relaxed);
    py.detach(|| {
        for _look in 0..100 {
            if !queue().is_served {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
    });
}

struct ToLogging;

impl Subscriber for ToLogging {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().starts_with("leasehold")
    }

    /// With it all other events and spans of the library cost one comparison.
    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        if IS_OVER.load(Ordering::Relaxed) {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let level = if *event.metadata().level() == Level::ERROR { 40 } else { 30 };
        push((level, text.line()));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The message of an event, and its fields behind it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text never fails.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Text {
    fn line(self) -> String {
        self.message + &self.fields
    }
}

fn push(record: Record) {
    let mut queue = queue();
    if queue.records.len() == MOST_RECORDS {
        queue.dropped += 1;
        return;
    }
    queue.records.push_back(record);
    if !queue.is_served {
        let served = std::thread::Builder::new().name("leasehold-logging".into()).spawn(serve);
        queue.is_served = served.is_ok();
    }
}

/// Hands records over until there are none.
fn serve() {
    loop {
        let mut queue = queue();
        let records: Vec<Record> = queue.records.drain(..).collect();
        let dropped = std::mem::take(&mut queue.dropped);
        if records.is_empty() {
            queue.is_served = false;
            return;
        }
        drop(queue);
        // `None`: the interpreter ends.
        Python::try_attach(|py| {
            if let Err(error) = hand_over(py, records, dropped) {
                error.write_unraisable(py, None);
            }
        });
    }
}

fn hand_over(py: Python<'_>, records: Vec<Record>, dropped: u64) -> PyResult<()> {
    static LOG: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    LOG.import(py, "leasehold._logging", "log")?.call1((records, dropped)).map(drop)
}
