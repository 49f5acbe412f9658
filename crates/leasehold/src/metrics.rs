//! An observer that turns events into series of the crate `metrics`.

use std::{borrow::Cow, fmt, sync::Once};

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use leasehold_core::KnownMode;

use crate::{Event, GuardEnd, Mode, Name, Observe};

const ACQUIRE: &str = "leasehold_acquire_duration_seconds";
const HOLD: &str = "leasehold_hold_duration_seconds";
const WAITERS: &str = "leasehold_waiter_count";
const HOLDERS: &str = "leasehold_holder_count";
const POSITION: &str = "leasehold_queue_position";
const LOSSES: &str = "leasehold_losses_total";
const RENEWALS: &str = "leasehold_renewals_total";
const MARGIN: &str = "leasehold_renewal_margin_seconds";
const REQUEST: &str = "leasehold_request_duration_seconds";
const CONNECTS: &str = "leasehold_connects_total";
const RECONNECTS: &str = "leasehold_reconnects_total";
const DISCONNECTS: &str = "leasehold_disconnects_total";
const SWITCHES: &str = "leasehold_server_switches_total";

/// An observer that records series with the crate [`metrics`](https://docs.rs/metrics), for the exporter that the
/// program has installed. The page [Observability](https://github.com/leasehold/leasehold/blob/main/docs/observability.md)
/// lists the series.
///
/// The number of series does not depend on the number of names, unless [`label_names`](Self::label_names) is called.
/// To tell locks apart, give the classes of names: see [`class`](Self::class).
///
/// ```
/// # fn main() -> Result<(), leasehold::Error> {
/// let metrics = leasehold::Metrics::new().class(|name| match name.as_str().split_once('/') {
///     Some(("order", _)) => "order",
///     _ => "other",
/// });
/// let locks = leasehold::Connect::default().observe(std::sync::Arc::new(metrics)).connect("memory:")?;
/// # drop(locks);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use]
pub struct Metrics {
    class: Option<Box<Classify>>,
    label_names: bool,
    described: DescribeOnce,
}

/// Gives the class of a name.
type Classify = dyn Fn(&Name) -> Cow<'static, str> + Send + Sync;

/// The series are described at the first event, because the program may install its exporter after it made this value.
struct DescribeOnce(Once);

impl Default for DescribeOnce {
    fn default() -> Self {
        Self(Once::new())
    }
}

impl Metrics {
    /// Series with the labels of the engine and the mode.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the label `class`: what `class_of` returns for the name of a lock. Return one of a few texts, and never a
    /// part of the name that differs from order to order or from user to user: each class makes new series. The
    /// function is called for each event, on threads of the program and on the keeper's thread.
    pub fn class<S: Into<Cow<'static, str>>>(
        mut self,
        class_of: impl Fn(&Name) -> S + Send + Sync + 'static,
    ) -> Self {
        self.class = Some(Box::new(move |name| class_of(name).into()));
        self
    }

    /// Adds the label `name`: for programs with a few fixed names. Each name makes new series, which exporters keep for
    /// long.
    pub const fn label_names(mut self) -> Self {
        self.label_names = true;
        self
    }

    /// The labels of an event of a lock, with another mode than that of the event.
    fn labels_of_mode(&self, event: &Event<'_>, mode: Mode) -> Vec<Label> {
        let mut labels = self.labels(event, &[]);
        labels.retain(|label| label.key() != "mode");
        labels.push(Label::from_static_parts("mode", mode_word(mode)));
        labels
    }

    /// The labels of an event of a lock.
    fn labels(&self, event: &Event<'_>, more: &[(&'static str, &'static str)]) -> Vec<Label> {
        let mut labels = vec![Label::new("engine", event.engine().to_owned())];
        if let Some(name) = event.name() {
            if let Some(class_of) = &self.class {
                labels.push(Label::new("class", class_of(name)));
            }
            if self.label_names {
                labels.push(Label::new("name", name.as_str().to_owned()));
            }
        }
        labels.extend(event.mode().map(|mode| Label::from_static_parts("mode", mode_word(mode))));
        labels.extend(more.iter().map(|&(key, value)| Label::from_static_parts(key, value)));
        labels
    }

    /// Records the end of a wait.
    fn record_wait(
        &self,
        event: &Event<'_>,
        waited: std::time::Duration,
        outcome: &'static str,
        contended: bool,
    ) {
        let contended = if contended { "true" } else { "false" };
        let labels = self.labels(event, &[("outcome", outcome), ("contended", contended)]);
        histogram!(ACQUIRE, labels).record(waited);
        gauge!(WAITERS, self.labels(event, &[])).decrement(1.0);
    }
}

impl Observe for Metrics {
    fn event(&self, event: &Event<'_>) {
        self.described.0.call_once(describe);
        match *event {
            Event::WaitBegun { .. } => gauge!(WAITERS, self.labels(event, &[])).increment(1.0),
            Event::Queued { ahead, .. } => {
                let Some(ahead) = ahead else { return };
                histogram!(POSITION, self.labels(event, &[])).record(ahead);
            }
            Event::Granted { waited, contended, .. } => {
                self.record_wait(event, waited, "granted", contended);
                gauge!(HOLDERS, self.labels(event, &[])).increment(1.0);
            }
            Event::Cancelled { waited, contended, .. } => {
                self.record_wait(event, waited, "cancelled", contended);
            }
            Event::Refused { error, waited, .. } => {
                self.record_wait(event, waited, error.kind().as_str(), error.is_taken());
            }
            Event::Renewed { margin, .. } => {
                counter!(RENEWALS, self.labels(event, &[("outcome", "kept")])).increment(1);
                if let Some(margin) = margin {
                    histogram!(MARGIN, self.labels(event, &[])).record(margin);
                }
            }
            Event::RenewalFailed { .. } => {
                counter!(RENEWALS, self.labels(event, &[("outcome", "unknown")])).increment(1);
            }
            Event::Lost { loss, at_release, .. } => {
                counter!(LOSSES, self.labels(event, &[("cause", loss.as_str())])).increment(1);
                // A guard whose release was answered with the loss does not count as a holder any more.
                if !at_release {
                    gauge!(HOLDERS, self.labels(event, &[])).decrement(1.0);
                }
            }
            Event::Converted { from, .. } => {
                gauge!(HOLDERS, self.labels(event, &[])).increment(1.0);
                gauge!(HOLDERS, self.labels_of_mode(event, from)).decrement(1.0);
            }
            Event::Released { held, end, .. } => {
                histogram!(HOLD, self.labels(event, &[("end", end_word(end))])).record(held);
                if !matches!(end, GuardEnd::Lost(_)) {
                    gauge!(HOLDERS, self.labels(event, &[])).decrement(1.0);
                }
            }
            Event::Answered { verb, took, error, .. } => {
                let error = error.map_or("none", crate::ErrorKind::as_str);
                let labels = self.labels(event, &[("verb", verb.as_str()), ("error_type", error)]);
                histogram!(REQUEST, labels).record(took);
            }
            Event::Connected { again, .. } => {
                counter!(CONNECTS, self.labels(event, &[])).increment(1);
                if again {
                    counter!(RECONNECTS, self.labels(event, &[])).increment(1);
                }
            }
            Event::Disconnected { .. } => counter!(DISCONNECTS, self.labels(event, &[])).increment(1),
            Event::Switched { .. } => counter!(SWITCHES, self.labels(event, &[])).increment(1),
            _ => {}
        }
    }
}

const fn mode_word(mode: Mode) -> &'static str {
    match mode.known() {
        KnownMode::Exclusive => "exclusive",
        KnownMode::Shared => "shared",
        KnownMode::Permits { .. } => "permits",
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

fn describe() {
    let seconds = Unit::Seconds;
    describe_histogram!(ACQUIRE, seconds, "The time of a request for a lock, from its first poll to its end");
    describe_histogram!(HOLD, seconds, "The time from a grant to the end of its guard");
    describe_gauge!(WAITERS, Unit::Count, "Requests that have begun and not ended");
    describe_gauge!(HOLDERS, Unit::Count, "Guards that were granted and neither ended nor lost");
    describe_histogram!(
        POSITION,
        Unit::Count,
        "How many requests were ahead when a request was queued or moved up"
    );
    describe_counter!(LOSSES, Unit::Count, "Guards whose hold was lost");
    describe_counter!(RENEWALS, Unit::Count, "Renewals of holds");
    describe_histogram!(
        MARGIN,
        seconds,
        "For how much longer a hold would have been valid without its renewal"
    );
    describe_histogram!(REQUEST, seconds, "The time of a request to the engine");
    describe_counter!(CONNECTS, Unit::Count, "Connections that were made");
    describe_counter!(RECONNECTS, Unit::Count, "Connections that were made after an earlier one");
    describe_counter!(DISCONNECTS, Unit::Count, "Connections that were lost");
    describe_counter!(SWITCHES, Unit::Count, "Changes to another server");
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("label_names", &self.label_names).finish_non_exhaustive()
    }
}
