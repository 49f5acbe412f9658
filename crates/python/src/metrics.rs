//! Series for `prometheus_client`: an observer counts the events of the library in memory, and Python reads the sums.
//! No event needs the interpreter.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use leasehold::{Event, GuardEnd, Mode, Observe};
use pyo3::prelude::*;

use crate::locks::{forks, is_any_connected};

/// Whether locks that are connected from now on are recorded.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);
/// It is locked only by threads that are attached to the interpreter, for a moment. So no thread has it at a fork.
static RECORDERS: Mutex<Recorders> =
    Mutex::new(Recorders { forks: 0, live: Vec::new(), ended: Series::new() });

/// The upper ends of the buckets of durations, in seconds.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0];
/// The upper ends of the buckets of places in a queue.
const PLACES: [f64; 15] =
    [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0, 1000.0];

/// The recorders of this process.
struct Recorders {
    /// A forked child counts from zero: what came before is in the series of its parent.
    forks: u32,
    live: Vec<Arc<Recorder>>,
    /// The sums of recorders whose locks are gone.
    ended: Series,
}

/// What a series is: its name and the names and values of its labels.
type Key = (&'static str, String, Vec<(&'static str, &'static str)>);
type Series = BTreeMap<Key, Value>;

#[derive(Clone)]
enum Value {
    Counter(u64),
    Gauge(i64),
    Histogram { buckets: [u64; 15], count: u64, sum: f64 },
}

/// Counts the events of one `Locks`.
#[derive(Default)]
pub struct Recorder(Mutex<Series>);

impl Recorder {
    /// A recorder for locks that are connected now; `None` if nobody installed metrics.
    pub fn new() -> Option<Arc<Self>> {
        if !IS_INSTALLED.load(Ordering::Relaxed) {
            return None;
        }
        let recorder = Arc::new(Self::default());
        recorders().live.push(Arc::clone(&recorder));
        Some(recorder)
    }

    fn series(&self) -> MutexGuard<'_, Series> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(
        &self,
        event: &Event<'_>,
        name: &'static str,
        more: &[(&'static str, &'static str)],
        by: Change,
    ) {
        self.change_of_mode(event, event.mode(), name, more, by);
    }

    fn change_of_mode(
        &self,
        event: &Event<'_>,
        mode: Option<Mode>,
        name: &'static str,
        more: &[(&'static str, &'static str)],
        by: Change,
    ) {
        let mut labels = Vec::with_capacity(3);
        labels.extend(mode.map(|mode| ("mode", mode_word(mode))));
        labels.extend_from_slice(more);
        by.apply(self.series().entry((name, event.engine().to_owned(), labels)));
    }

    fn wait_ended(&self, event: &Event<'_>, waited: Duration, outcome: &'static str, contended: bool) {
        let contended = if contended { "true" } else { "false" };
        let labels = [("outcome", outcome), ("contended", contended)];
        self.change(event, "leasehold_acquire_duration_seconds", &labels, Change::took(waited));
        self.change(event, "leasehold_waiter_count", &[], Change::Move(-1));
    }
}

/// What an event does to a series.
enum Change {
    Count,
    Move(i64),
    Sort(f64, &'static [f64; 15]),
}

impl Change {
    const fn took(time: Duration) -> Self {
        Self::Sort(time.as_secs_f64(), &SECONDS)
    }

    fn apply(self, series: std::collections::btree_map::Entry<'_, Key, Value>) {
        match self {
            Self::Count => {
                if let Value::Counter(count) = series.or_insert(Value::Counter(0)) {
                    *count += 1;
                }
            }
            Self::Move(by) => {
                if let Value::Gauge(level) = series.or_insert(Value::Gauge(0)) {
                    *level += by;
                }
            }
            Self::Sort(value, ends) => {
                let empty = Value::Histogram { buckets: [0; 15], count: 0, sum: 0.0 };
                if let Value::Histogram { buckets, count, sum } = series.or_insert(empty) {
                    // Values above the last end are in `count` alone.
                    if let Some(bucket) = ends.iter().position(|end| value <= *end) {
                        buckets[bucket] += 1;
                    }
                    *count += 1;
                    *sum += value;
                }
            }
        }
    }
}

/// The names, labels and meanings are those of `leasehold::Metrics`.
impl Observe for Recorder {
    fn event(&self, event: &Event<'_>) {
        match *event {
            Event::WaitBegun { .. } => self.change(event, "leasehold_waiter_count", &[], Change::Move(1)),
            Event::Queued { ahead: Some(ahead), .. } => {
                self.change(event, "leasehold_queue_position", &[], Change::Sort(f64::from(ahead), &PLACES));
            }
            Event::Granted { waited, contended, .. } => {
                self.wait_ended(event, waited, "granted", contended);
                self.change(event, "leasehold_holder_count", &[], Change::Move(1));
            }
            Event::Cancelled { waited, contended, .. } => {
                self.wait_ended(event, waited, "cancelled", contended)
            }
            Event::Refused { error, waited, .. } => {
                self.wait_ended(event, waited, error.kind().as_str(), error.is_taken());
            }
            Event::Renewed { margin, .. } => {
                self.change(event, "leasehold_renewals_total", &[("outcome", "kept")], Change::Count);
                if let Some(margin) = margin {
                    self.change(event, "leasehold_renewal_margin_seconds", &[], Change::took(margin));
                }
            }
            Event::RenewalFailed { .. } => {
                self.change(event, "leasehold_renewals_total", &[("outcome", "unknown")], Change::Count);
            }
            Event::Lost { loss, at_release, .. } => {
                self.change(event, "leasehold_losses_total", &[("cause", loss.as_str())], Change::Count);
                // A guard whose release was answered with the loss does not count as a holder any more.
                if !at_release {
                    self.change(event, "leasehold_holder_count", &[], Change::Move(-1));
                }
            }
            Event::Converted { from, .. } => {
                self.change(event, "leasehold_holder_count", &[], Change::Move(1));
                self.change_of_mode(event, Some(from), "leasehold_holder_count", &[], Change::Move(-1));
            }
            Event::Released { held, end, .. } => {
                let took = Change::took(held);
                self.change(event, "leasehold_hold_duration_seconds", &[("end", end_word(end))], took);
                if !matches!(end, GuardEnd::Lost(_)) {
                    self.change(event, "leasehold_holder_count", &[], Change::Move(-1));
                }
            }
            Event::Answered { verb, took, error, .. } => {
                let error = error.map_or("none", leasehold::ErrorKind::as_str);
                let labels = [("verb", verb.as_str()), ("error_type", error)];
                self.change(event, "leasehold_request_duration_seconds", &labels, Change::took(took));
            }
            Event::Connected { again, .. } => {
                self.change(event, "leasehold_connects_total", &[], Change::Count);
                if again {
                    self.change(event, "leasehold_reconnects_total", &[], Change::Count);
                }
            }
            Event::Disconnected { .. } => {
                self.change(event, "leasehold_disconnects_total", &[], Change::Count);
            }
            Event::Switched { .. } => {
                self.change(event, "leasehold_server_switches_total", &[], Change::Count);
            }
            _ => {}
        }
    }
}

const fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        _ => "permits",
    }
}

const fn end_word(end: GuardEnd) -> &'static str {
    match end {
        GuardEnd::Released => "released",
        GuardEnd::Abandoned => "abandoned",
        GuardEnd::Lost(_) => "lost",
        GuardEnd::Left => "left",
        _ => "unused",
    }
}

/// The recorders of this process, without those of its parent.
fn recorders() -> MutexGuard<'static, Recorders> {
    let mut recorders = RECORDERS.lock().unwrap_or_else(PoisonError::into_inner);
    if recorders.forks != forks() {
        // A thread of the parent may have been in one of them at the fork, so they are not touched.
        std::mem::forget(std::mem::take(&mut recorders.live));
        recorders.ended.clear();
        recorders.forks = forks();
    }
    recorders
}

/// Locks that are connected from now on are recorded. Returns whether there are locks that are not.
#[pyfunction]
pub fn record_metrics() -> bool {
    !IS_INSTALLED.swap(true, Ordering::Relaxed) && is_any_connected()
}

/// One series for Python: name, engine, labels, and the value: an int, or ends and counts of the buckets, count, sum.
type Sample<'py> = (&'static str, String, Vec<(&'static str, &'static str)>, Bound<'py, PyAny>);

/// The sums of all locks of this process.
#[pyfunction]
pub fn recorded_metrics(py: Python<'_>) -> PyResult<Vec<Sample<'_>>> {
    let mut recorders = recorders();
    let (live, ended): (Vec<_>, Vec<_>) =
        std::mem::take(&mut recorders.live).into_iter().partition(|recorder| Arc::strong_count(recorder) > 1);
    for recorder in ended {
        add(&mut recorders.ended, &recorder.series());
    }
    let mut sums = recorders.ended.clone();
    for recorder in &live {
        add(&mut sums, &recorder.series());
    }
    recorders.live = live;
    drop(recorders);
    sums.into_iter().map(|(key, value)| sample(py, key, value)).collect()
}

fn add(sums: &mut Series, series: &Series) {
    for (key, value) in series {
        let Some(sum) = sums.get_mut(key) else {
            sums.insert(key.clone(), value.clone());
            continue;
        };
        match (sum, value) {
            (Value::Counter(sum), Value::Counter(count)) => *sum += count,
            (Value::Gauge(sum), Value::Gauge(level)) => *sum += level,
            (
                Value::Histogram { buckets, count, sum },
                Value::Histogram { buckets: more, count: more_count, sum: more_sum },
            ) => {
                buckets.iter_mut().zip(more).for_each(|(bucket, more)| *bucket += more);
                *count += more_count;
                *sum += more_sum;
            }
            _ => unreachable!("a name has one type of series"),
        }
    }
}

fn sample(py: Python<'_>, (name, engine, labels): Key, value: Value) -> PyResult<Sample<'_>> {
    let value = match value {
        Value::Counter(count) => count.into_pyobject(py)?.into_any(),
        Value::Gauge(level) => level.into_pyobject(py)?.into_any(),
        Value::Histogram { buckets, count, sum } => {
            let ends = if name == "leasehold_queue_position" { PLACES } else { SECONDS };
            let mut below = 0;
            let buckets: Vec<(f64, u64)> = ends
                .into_iter()
                .zip(buckets)
                .map(|(end, bucket)| {
                    below += bucket;
                    (end, below)
                })
                .collect();
            (buckets, count, sum).into_pyobject(py)?.into_any()
        }
    };
    Ok((name, engine, labels, value))
}
