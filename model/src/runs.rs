//! The runs of the Redis model, and the expected result of each.

use crate::{
    Rules, Sight,
    Sight::*,
    properties::{OVERTAKEN, WHOLE},
    rules::{Faults, Section},
};

/// A set of rules to search, and whether the search is expected to find a violation.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The subject of the run.
    pub name: &'static str,
    /// The rules.
    pub rules: Rules,
    /// The properties that must be found broken. If there are none, all must hold in all worlds.
    pub breaks: &'static [&'static str],
    /// The events that must be seen.
    pub shows: &'static [Sight],
}

pub(crate) const NO_FAULTS: Faults =
    Faults { cancels: 0, timeouts: 0, breaks: 0, losses: 0, dead_waiters: 0, dead_holders: 0 };

/// Two clients. Every step may take any time, and waiters may ask at any time.
pub(crate) const SLOW: Rules = Rules {
    clients: 2,
    foreign: 0,
    ttl: 3,
    claim_time: 2,
    entry_life: 3,
    request_life: 2,
    poll: 0,
    renews: true,
    section: Section::Empty,
    slow: true,
    half_open: true,
    faults: NO_FAULTS,
    most_grants: 6,
    bugs: &[],
};

/// The same with shorter times, and without renewals.
pub(crate) const SHORT: Rules = Rules { ttl: 2, claim_time: 1, entry_life: 2, renews: false, ..SLOW };

/// Three clients. Time passes only when nothing else can happen, so no client waits in vain.
pub(crate) const PROMPT: Rules = Rules { clients: 3, slow: false, poll: 2, ..SLOW };

pub(crate) const DELAYS: Rules = Rules { faults: Faults { cancels: 1, ..NO_FAULTS }, ..SLOW };
pub(crate) const BROKEN: Rules = Rules { faults: Faults { breaks: 1, cancels: 1, ..NO_FAULTS }, ..SHORT };
pub(crate) const TWICE: Rules = Rules { ttl: 1, faults: Faults { breaks: 2, ..NO_FAULTS }, ..SHORT };
pub(crate) const RENEWALS: Rules = Rules { renews: true, faults: Faults { breaks: 1, ..NO_FAULTS }, ..SHORT };
pub(crate) const DEATHS: Rules =
    Rules { faults: Faults { dead_waiters: 1, dead_holders: 1, ..NO_FAULTS }, ..SLOW };
pub(crate) const FOREIGN: Rules = Rules { foreign: 1, ..SHORT };
pub(crate) const IN_QUEUE: Rules = Rules { faults: Faults { cancels: 1, ..NO_FAULTS }, ..PROMPT };
pub(crate) const RECONNECTING: Rules =
    Rules { renews: false, faults: Faults { breaks: 1, ..NO_FAULTS }, ..PROMPT };
pub(crate) const LOST_NOTIFICATIONS: Rules = Rules { faults: Faults { losses: 1, ..NO_FAULTS }, ..PROMPT };
pub(crate) const DEAD_WAITER: Rules = Rules { faults: Faults { dead_waiters: 1, ..NO_FAULTS }, ..PROMPT };
pub(crate) const KNOWN_DEAD: Rules = Rules { half_open: false, ..DEAD_WAITER };

/// The runs of the tests: seconds each.
pub const SMALL: &[Run] = &[
    Run::new("delays", DELAYS).shows(&[MissedItsGrant, UndatedPush, GrantCameTooLate, RenewedTooLate]),
    Run::new("timeouts", Rules { faults: Faults { timeouts: 1, cancels: 1, ..NO_FAULTS }, ..SHORT })
        .shows(&[RefusedByTombstone, ReleasedAgain]),
    Run::new("broken_connections", BROKEN).shows(&[
        PassedOver,
        QueuedAgain,
        RefusedByTombstone,
        ReleasedAgain,
    ]),
    Run::new("broken_twice", TWICE).shows(&[RefusedByTombstone, ReleasedAgain]),
    Run::new("renewals", RENEWALS).shows(&[RenewedTooLate]),
    Run::new("deaths", DEATHS).shows(&[PassedOver, MissedItsGrant]),
    Run::new("another_program", FOREIGN).shows(&[ForeignBetween, LatePush, WentOn]),
    Run::new("unfenced", Rules { section: Section::Unfenced, ..SLOW })
        .breaks(&[OVERTAKEN, WHOLE])
        .shows(&[Overtaken]),
    Run::new("fenced", Rules { section: Section::Fenced, ..SLOW }).breaks(&[WHOLE]).shows(&[Overtaken]),
    Run::new("sealed", Rules { section: Section::Sealed, ..SLOW }).shows(&[
        Overtaken,
        WriteRefused,
        SealRefused,
    ]),
    Run::new("in_queue", IN_QUEUE).shows(&[HandedOn, WentOn]),
    Run::new("in_queue_reconnecting", RECONNECTING).shows(&[PassedOver, QueuedAgain, WentOn]),
    Run::new("in_queue_with_lost_notifications", LOST_NOTIFICATIONS).shows(&[QueuedAgain]),
    Run::new("in_queue_behind_dead_waiters", DEAD_WAITER).shows(&[PassedOver, MissedItsGrant, WentOn]),
    Run::new("in_queue_behind_known_dead_waiters", KNOWN_DEAD).shows(&[PassedOver]),
    Run::new(
        "in_queue_behind_a_dead_holder",
        Rules { faults: Faults { dead_holders: 1, ..NO_FAULTS }, ..PROMPT },
    ),
    Run::new("in_queue_behind_another_program", Rules { foreign: 1, ..PROMPT }).shows(&[ForeignBetween]),
    Run::new(
        "in_queue_behind_dead_waiters_and_another_program",
        Rules { foreign: 1, renews: false, ..KNOWN_DEAD },
    )
    .shows(&[ForeignBetween, PassedOver]),
];

/// The further runs of the program: minutes each.
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
    Run::new("slow_another_program", Rules { foreign: 1, faults: Faults { breaks: 1, ..NO_FAULTS }, ..SLOW }),
    Run::new("slow_another_program_twice", Rules { foreign: 2, ..SLOW }),
    Run::new("slow_sealed", {
        Rules { section: Section::Sealed, faults: Faults { breaks: 1, ..NO_FAULTS }, ..SLOW }
    }),
    Run::new("crowd", Rules { clients: 3, faults: Faults { cancels: 1, ..NO_FAULTS }, ..SHORT }),
    Run::new("crowd_and_another_program", Rules { clients: 3, foreign: 1, ..SHORT }),
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
    Run::new("in_queue_behind_another_program_twice", Rules { foreign: 2, ..PROMPT }),
];

impl Run {
    pub(crate) const fn new(name: &'static str, rules: Rules) -> Self {
        Self { name, rules, shows: &[], breaks: &[] }
    }

    pub(crate) const fn breaks(self, breaks: &'static [&'static str]) -> Self {
        Self { breaks, ..self }
    }

    const fn shows(self, shows: &'static [Sight]) -> Self {
        Self { shows, ..self }
    }
}
