//! The runs of the Redis model, and the expected result of each.

use crate::{
    Event,
    Event::*,
    Rules,
    properties::{NO_LOST_WRITE, WRITES_IN_ORDER},
    rules::{Faults, Section},
};

/// A set of rules to search, and whether the search is expected to find a violation.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The subject of the run.
    pub name: &'static str,
    /// The rules.
    pub rules: Rules,
    /// The properties that the search must find broken. If the list is empty, all properties must hold in all worlds.
    pub breaks: &'static [&'static str],
    /// The events that the search must see.
    pub must_see: &'static [Event],
}

pub(crate) const NO_FAULTS: Faults =
    Faults { cancels: 0, timeouts: 0, breaks: 0, losses: 0, dead_waiters: 0, dead_holders: 0 };

/// Two clients. Every step may take any time, and waiters may ask at any time.
pub(crate) const SLOW: Rules = Rules {
    clients: 2,
    foreign_takes: 0,
    ttl: 3,
    claim_time: 2,
    entry_life: 3,
    request_life: 2,
    poll_interval: 0,
    renews: true,
    section: Section::Empty,
    slow: true,
    half_open: true,
    faults: NO_FAULTS,
    max_grants: 6,
    bugs: &[],
};

/// Like [`SLOW`], with shorter times and without renewals.
pub(crate) const SHORT: Rules = Rules { ttl: 2, claim_time: 1, entry_life: 2, renews: false, ..SLOW };

/// Three clients. Time passes only when nothing else can happen, so every waiter must be granted in time.
pub(crate) const PROMPT: Rules = Rules { clients: 3, slow: false, poll_interval: 2, ..SLOW };

pub(crate) const DELAYS: Rules = Rules { faults: Faults { cancels: 1, ..NO_FAULTS }, ..SLOW };
pub(crate) const BROKEN: Rules = Rules { faults: Faults { breaks: 1, cancels: 1, ..NO_FAULTS }, ..SHORT };
pub(crate) const BROKEN_TWICE: Rules = Rules { ttl: 1, faults: Faults { breaks: 2, ..NO_FAULTS }, ..SHORT };
pub(crate) const RENEWALS: Rules = Rules { renews: true, faults: Faults { breaks: 1, ..NO_FAULTS }, ..SHORT };
pub(crate) const DEATHS: Rules =
    Rules { faults: Faults { dead_waiters: 1, dead_holders: 1, ..NO_FAULTS }, ..SLOW };
pub(crate) const FOREIGN: Rules = Rules { foreign_takes: 1, ..SHORT };
pub(crate) const IN_QUEUE: Rules = Rules { faults: Faults { cancels: 1, ..NO_FAULTS }, ..PROMPT };
pub(crate) const RECONNECTING: Rules =
    Rules { renews: false, faults: Faults { breaks: 1, ..NO_FAULTS }, ..PROMPT };
pub(crate) const LOST_NOTIFICATIONS: Rules = Rules { faults: Faults { losses: 1, ..NO_FAULTS }, ..PROMPT };
pub(crate) const DEAD_WAITER: Rules = Rules { faults: Faults { dead_waiters: 1, ..NO_FAULTS }, ..PROMPT };
pub(crate) const KNOWN_DEAD: Rules = Rules { half_open: false, ..DEAD_WAITER };

/// The runs that the tests search. Each takes some seconds.
pub const SMALL: &[Run] = &[
    Run::new("delays", DELAYS).must_see(&[MissedItsGrant, UndatedPush, GrantCameTooLate, RenewedTooLate]),
    Run::new("timeouts", Rules { faults: Faults { timeouts: 1, cancels: 1, ..NO_FAULTS }, ..SHORT })
        .must_see(&[RefusedByTombstone, ReleasedAgain]),
    Run::new("broken_connections", BROKEN).must_see(&[
        PassedOver,
        QueuedAgain,
        RefusedByTombstone,
        ReleasedAgain,
    ]),
    Run::new("broken_twice", BROKEN_TWICE).must_see(&[RefusedByTombstone, ReleasedAgain]),
    Run::new("renewals", RENEWALS).must_see(&[RenewedTooLate]),
    Run::new("deaths", DEATHS).must_see(&[PassedOver, MissedItsGrant]),
    Run::new("another_program", FOREIGN).must_see(&[ForeignBetween, LatePush, PassedToNextWaiter]),
    Run::new("unfenced", Rules { section: Section::Unfenced, ..SLOW })
        .breaks(&[WRITES_IN_ORDER, NO_LOST_WRITE])
        .must_see(&[Overtaken]),
    Run::new("fenced", Rules { section: Section::Fenced, ..SLOW })
        .breaks(&[NO_LOST_WRITE])
        .must_see(&[Overtaken]),
    Run::new("sealed", Rules { section: Section::Sealed, ..SLOW }).must_see(&[
        Overtaken,
        WriteRefused,
        SealRefused,
    ]),
    Run::new("in_queue", IN_QUEUE).must_see(&[HandedOver, PassedToNextWaiter]),
    Run::new("in_queue_reconnecting", RECONNECTING).must_see(&[PassedOver, QueuedAgain, PassedToNextWaiter]),
    Run::new("in_queue_with_lost_notifications", LOST_NOTIFICATIONS).must_see(&[QueuedAgain]),
    Run::new("in_queue_behind_dead_waiters", DEAD_WAITER).must_see(&[
        PassedOver,
        MissedItsGrant,
        PassedToNextWaiter,
    ]),
    Run::new("in_queue_behind_known_dead_waiters", KNOWN_DEAD).must_see(&[PassedOver]),
    Run::new(
        "in_queue_behind_a_dead_holder",
        Rules { faults: Faults { dead_holders: 1, ..NO_FAULTS }, ..PROMPT },
    ),
    Run::new("in_queue_behind_another_program", Rules { foreign_takes: 1, ..PROMPT })
        .must_see(&[ForeignBetween]),
    Run::new(
        "in_queue_behind_dead_waiters_and_another_program",
        Rules { foreign_takes: 1, renews: false, ..KNOWN_DEAD },
    )
    .must_see(&[ForeignBetween, PassedOver]),
];

/// The runs that the search program searches in addition to [`SMALL`]. Each takes some minutes.
pub const LARGE: &[Run] = &[
    Run::new("slow_timeouts_and_breaks", {
        Rules { faults: Faults { timeouts: 1, breaks: 1, ..NO_FAULTS }, ..SLOW }
    }),
    Run::new("slow_broken_twice", Rules { faults: Faults { breaks: 2, cancels: 1, ..NO_FAULTS }, ..SLOW }),
    Run::new("slow_with_a_whole_lease_to_claim", {
        Rules { claim_time: 3, faults: Faults { breaks: 1, cancels: 1, ..NO_FAULTS }, ..SLOW }
    }),
    Run::new("slow_deaths", {
        Rules {
            faults: Faults { breaks: 1, losses: 1, dead_waiters: 1, dead_holders: 1, ..NO_FAULTS },
            ..SLOW
        }
    }),
    Run::new(
        "slow_another_program",
        Rules { foreign_takes: 1, faults: Faults { breaks: 1, ..NO_FAULTS }, ..SLOW },
    ),
    Run::new("slow_another_program_twice", Rules { foreign_takes: 2, ..SLOW }),
    Run::new("slow_sealed", {
        Rules { section: Section::Sealed, faults: Faults { breaks: 1, ..NO_FAULTS }, ..SLOW }
    }),
    Run::new("crowd", Rules { clients: 3, faults: Faults { cancels: 1, ..NO_FAULTS }, ..SHORT }),
    Run::new("crowd_and_another_program", Rules { clients: 3, foreign_takes: 1, ..SHORT }),
    Run::new("crowd_sealed", Rules { clients: 3, section: Section::Sealed, ..SHORT }),
    Run::new(
        "crowd_reconnecting",
        Rules { clients: 3, ttl: 1, faults: Faults { breaks: 1, ..NO_FAULTS }, ..SHORT },
    ),
    Run::new("in_queue_reconnecting_or_giving_up", {
        Rules { faults: Faults { breaks: 1, cancels: 1, ..NO_FAULTS }, ..PROMPT }
    }),
    Run::new(
        "in_queue_reconnecting_twice",
        Rules { faults: Faults { breaks: 2, ..NO_FAULTS }, ..RECONNECTING },
    ),
    Run::new("in_queue_among_dead_clients", {
        let faults = Faults { cancels: 1, losses: 1, dead_waiters: 2, dead_holders: 1, ..NO_FAULTS };
        Rules { faults, ..PROMPT }
    }),
    Run::new("in_queue_behind_another_program_twice", Rules { foreign_takes: 2, ..PROMPT }),
];

impl Run {
    pub(crate) const fn new(name: &'static str, rules: Rules) -> Self {
        Self { name, rules, must_see: &[], breaks: &[] }
    }

    pub(crate) const fn breaks(self, breaks: &'static [&'static str]) -> Self {
        Self { breaks, ..self }
    }

    const fn must_see(self, must_see: &'static [Event]) -> Self {
        Self { must_see, ..self }
    }
}
