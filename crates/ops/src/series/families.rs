//! The names, kinds and help texts of all series of this module. The page docs/observability.md has the same list.
//!
//! The series that a program exports about its own guards (`leasehold::Metrics`) have other names, because the same
//! grant would count twice if both were scraped.

/// A family of series: the samples with one name.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Family {
    /// The name, with the prefix and the unit.
    pub name: &'static str,
    /// The kind.
    pub kind: Kind,
    /// What a sample says.
    pub help: &'static str,
}

/// The kind of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows until the exporter starts anew.
    Counter,
    /// Counts of durations by their length.
    Histogram,
}

impl Kind {
    /// The kind as the word after `# TYPE`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, help }
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Histogram, help }
}

// Of each engine.
pub(super) static ENGINE_UP: Family =
    gauge("leasehold_engine_up", "1 if the last look at the engine succeeded, else 0");
pub(super) static LAST_LOOK: Family = gauge(
    "leasehold_last_look_timestamp_seconds",
    "Unix time of the last look at the engine that succeeded; absent before the first one",
);
pub(super) static LEVEL: Family = gauge(
    "leasehold_guarantee_level",
    "The guarantee of the engine: 2 exact, 1 lease-bounded, 0 best effort; absent if it is not known",
);
pub(super) static DIAGNOSTIC: Family =
    gauge("leasehold_diagnostic", "1 for each thing that leasehold doctor finds, with its id and severity");
pub(super) static HOLDERS: Family = gauge("leasehold_holders", "Holds of all names at the last look");
pub(super) static WAITERS: Family =
    gauge("leasehold_waiters", "Waiting claims of all names at the last look");
pub(super) static UNREADABLE: Family =
    gauge("leasehold_unreadable_names", "Names whose holders cannot be read at the last look");
pub(super) static OLDEST_HOLD: Family = gauge(
    "leasehold_oldest_hold_since_timestamp_seconds",
    "Unix time of the grant of the oldest hold of all names; absent if nothing is held",
);
pub(super) static OLDEST_WAITER: Family = gauge(
    "leasehold_oldest_waiter_since_timestamp_seconds",
    "Unix time at which the oldest waiter of all names began to wait; absent if nothing waits",
);
pub(super) static LONGEST_QUEUE: Family =
    gauge("leasehold_longest_queue", "Waiting claims of the name that has most of them");
pub(super) static LONG_WAITS: Family = gauge(
    "leasehold_long_waits",
    "Names with a wait that is far longer than their holds, by cause: hold, overtaken or queue",
);

// Of all engines together.
pub(super) static DEADLOCKS: Family = gauge(
    "leasehold_deadlocks",
    "Deadlocks over the engines of this exporter that answer; absent while none of them does",
);

// Of each selected name.
pub(super) static LOCK_HELD_SINCE: Family = gauge(
    "leasehold_lock_held_since_timestamp_seconds",
    "Unix time of the grant of the oldest hold of a name; absent if it is free",
);
pub(super) static LOCK_WAITERS: Family = gauge("leasehold_lock_waiters", "Waiting claims of a name");
pub(super) static LOCK_OLDEST_WAITER: Family = gauge(
    "leasehold_lock_oldest_waiter_since_timestamp_seconds",
    "Unix time at which the oldest waiter of a name began to wait; absent if nothing waits",
);
pub(super) static NAMES_DROPPED: Family = gauge(
    "leasehold_lock_names_dropped",
    "Names that the selection of names includes and that have no series, because it includes too many",
);

// Of what happened between two looks at an engine.
pub(super) static GRANTS: Family = counter(
    "leasehold_observed_grants_total",
    "Holds that began between two looks and were held at the second",
);
pub(super) static LOSSES: Family = counter(
    "leasehold_observed_losses_total",
    "Holds that ended when their lease can have run out, by cause",
);
pub(super) static LEFT: Family = counter(
    "leasehold_observed_waits_left_total",
    "Waiting claims that ended without a grant that a look saw",
);
pub(super) static BREAKS: Family =
    counter("leasehold_breaks_total", "Holds that an operator broke by way of this process");
pub(super) static WAIT_DURATION: Family = histogram(
    "leasehold_observed_wait_duration_seconds",
    "How long a granted claim had waited at the last look before its grant; 0 if no look saw it wait",
);
pub(super) static HOLD_DURATION: Family = histogram(
    "leasehold_observed_hold_duration_seconds",
    "How long a hold that ended had lasted at the last look before its end",
);

/// The families about engines, which `leasehold serve` exports.
pub static FAMILIES: [&Family; 22] = [
    &ENGINE_UP,
    &LAST_LOOK,
    &LEVEL,
    &DIAGNOSTIC,
    &HOLDERS,
    &WAITERS,
    &UNREADABLE,
    &OLDEST_HOLD,
    &OLDEST_WAITER,
    &LONGEST_QUEUE,
    &LONG_WAITS,
    &DEADLOCKS,
    &LOCK_HELD_SINCE,
    &LOCK_WAITERS,
    &LOCK_OLDEST_WAITER,
    &NAMES_DROPPED,
    &GRANTS,
    &LOSSES,
    &LEFT,
    &BREAKS,
    &WAIT_DURATION,
    &HOLD_DURATION,
];

// Of the runs of one job.
pub(super) static RUN_BEGIN: Family =
    gauge("leasehold_run_last_begin_timestamp_seconds", "Unix time at which the newest run began");
pub(super) static RUN_END: Family =
    gauge("leasehold_run_last_end_timestamp_seconds", "Unix time at which a run ended last");
pub(super) static RUN_SUCCESS: Family = gauge(
    "leasehold_run_last_success_timestamp_seconds",
    "Unix time at which a run ended last with exit code 0; absent before the first one",
);
pub(super) static RUN_EXIT: Family =
    gauge("leasehold_run_last_exit_code", "Exit code of the run that ended last");
pub(super) static RUN_WAIT: Family = gauge(
    "leasehold_run_last_wait_seconds",
    "How long the run that was granted or ended last waited for the lock",
);
pub(super) static RUN_HOLD: Family =
    gauge("leasehold_run_last_hold_seconds", "How long the run that ended last held the lock");
pub(super) static RUN_LOST: Family =
    gauge("leasehold_run_last_lost", "1 if the run that ended last lost its lock, else 0");
pub(super) static RUN_HELD: Family = gauge(
    "leasehold_run_held",
    "1 from the grant of the run that was granted last to its end, else 0; after a crash 1 until the next grant",
);
pub(super) static RUN_HELD_SINCE: Family = gauge(
    "leasehold_run_held_since_timestamp_seconds",
    "Unix time of that grant; absent while leasehold_run_held is 0",
);
pub(super) static RUN_ENDS: Family = counter("leasehold_run_ends_total", "Runs that have ended, by outcome");

/// The families about runs, which `--metrics-file` writes.
pub static RUN_FAMILIES: [&Family; 10] = [
    &RUN_BEGIN,
    &RUN_END,
    &RUN_SUCCESS,
    &RUN_EXIT,
    &RUN_WAIT,
    &RUN_HOLD,
    &RUN_LOST,
    &RUN_HELD,
    &RUN_HELD_SINCE,
    &RUN_ENDS,
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_follow_the_conventions_and_are_unique() {
        let mut names = HashSet::new();
        for family in FAMILIES.iter().chain(&RUN_FAMILIES) {
            let name = family.name;
            assert!(names.insert(name), "{name}");
            assert!(name.starts_with("leasehold_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            assert!(family.kind != Kind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(!family.help.is_empty() && !family.help.ends_with('.'), "{name}");
        }
    }
}
