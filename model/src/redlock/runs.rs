//! The runs of the Redlock model, and the expected result of each.

use super::{
    SearchResult,
    action::Protocol,
    properties::{EXCLUSION, GRANTED_AGAIN, TOKENS},
    rules::{Bug, Faults, Rules, Ticks},
};

/// A set of rules to search, and whether the search is expected to find a violation.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The subject of the run.
    pub name: &'static str,
    pub(crate) rules: Rules,
    /// The properties that the search must find broken. If the list is empty, all properties must hold in all worlds.
    pub breaks: &'static [&'static str],
}

const NO_FAULTS: Faults = Faults { lapses: 0, drifts: 0, steps: 0, restarts: 0, forgets: 0, losses: 0 };

/// Two clients. The clocks of the nodes are right.
const PLAIN: Rules = Rules {
    clients: 2,
    ttl: 1,
    margin: 0,
    max_clock_difference: 0,
    quarantine: 2,
    horizon: 3,
    renews: 0,
    late: false,
    tokens: false,
    max_token: Ticks::MAX,
    guesses: false,
    steps: &[],
    faults: NO_FAULTS,
    bugs: &[],
};

const LATE: Rules = Rules { late: true, ..PLAIN };
const LOST: Rules = Rules { faults: Faults { losses: 1, ..NO_FAULTS }, ..PLAIN };
/// The clocks of nodes may gain two ticks in total. The margin is one tick, and the clocks of nodes agree if they
/// differ by at most one tick.
const DRIFTING: Rules = Rules {
    ttl: 2,
    margin: 1,
    max_clock_difference: 1,
    horizon: 4,
    faults: Faults { drifts: 2, ..NO_FAULTS },
    ..PLAIN
};
const FORGETS: Rules = Rules { faults: Faults { forgets: 1, ..NO_FAULTS }, horizon: 4, ..PLAIN };
/// One clock steps forward by more than the clocks of nodes may differ, or is set back.
const STEPS: Rules =
    Rules { ttl: 2, horizon: 4, steps: &[1, 3, -2], faults: Faults { steps: 1, ..NO_FAULTS }, ..PLAIN };
/// One node loses its data, and the clock of one node steps. Both may happen to the same node.
const FORGETS_AND_STEPS: Rules =
    Rules { steps: &[3], faults: Faults { forgets: 1, steps: 1, ..NO_FAULTS }, ..FORGETS };
const RENEWED: Rules = Rules { renews: 2, ttl: 2, horizon: 4, ..PLAIN };
const REPAIRED: Rules =
    Rules { faults: Faults { forgets: 1, ..NO_FAULTS }, renews: 1, quarantine: 3, ..RENEWED };

/// Each client may lose its lock on each node: six lapses for two clients and three nodes.
const ALL_LAPSE: Faults = Faults { lapses: 6, ..NO_FAULTS };
/// Rules of runs that check tokens. No time passes in these runs.
const TOKENS_ONLY: Rules = Rules { tokens: true, max_token: 2, horizon: 1, faults: ALL_LAPSE, ..PLAIN };
/// Rules of runs that check tokens. In these runs a node may lose its data, and later gets its vote back.
const TOKENS_FORGOTTEN: Rules =
    Rules { faults: Faults { forgets: 1, lapses: 1, ..NO_FAULTS }, max_token: 3, horizon: 3, ..TOKENS_ONLY };
/// Like [`TOKENS_FORGOTTEN`]. In addition, the clock of one node may step forward, which ends the quarantine of the
/// node.
const TOKENS_FORGOTTEN_AND_STEPS: Rules = Rules {
    steps: &[3],
    max_token: 5,
    faults: Faults { forgets: 1, steps: 1, lapses: 1, ..NO_FAULTS },
    ..TOKENS_FORGOTTEN
};

/// The runs in which every property holds. Each run takes some seconds.
pub const HOLDS: &[Run] = &[
    Run::new("plain", PLAIN),
    Run::new("late_requests", LATE),
    Run::new("lost_answers", LOST),
    Run::new("drifting", DRIFTING),
    Run::new("restarts", Rules { faults: Faults { restarts: 1, ..NO_FAULTS }, ..PLAIN }),
    Run::new("forgets", FORGETS),
    Run::new("all_forget", Rules { faults: Faults { forgets: 3, ..NO_FAULTS }, ..FORGETS }),
    Run::new("steps", STEPS),
    Run::new("forgets_and_steps", FORGETS_AND_STEPS),
    Run::new("renewed", RENEWED),
    Run::new("repaired", REPAIRED),
    Run::new("tokens", TOKENS_ONLY),
    Run::new("tokens_lost_answers", Rules { faults: Faults { losses: 1, ..ALL_LAPSE }, ..TOKENS_ONLY }),
    Run::new("tokens_guessed", Rules { guesses: true, ..TOKENS_ONLY }),
    Run::new("tokens_forgotten", TOKENS_FORGOTTEN),
    Run::new("tokens_trap", TOKENS_FORGOTTEN_AND_STEPS),
];

/// The runs that must break a property: protocols with a mistake, and faults after which no Redlock can keep the
/// property.
pub const MISTAKES: &[Run] = &[
    Run::new("write_any_token", Rules { guesses: true, bugs: &[Bug::WriteAnyToken], ..TOKENS_ONLY })
        .breaks(&[TOKENS]),
    Run::new("keep_larger_token", Rules { guesses: true, bugs: &[Bug::KeepLargerToken], ..TOKENS_ONLY })
        .breaks(&[TOKENS]),
    Run::new("no_clock_in_token", Rules { bugs: &[Bug::NoClockInToken], ..TOKENS_FORGOTTEN })
        .breaks(&[TOKENS]),
    Run::new("no_quarantine_for_tokens", Rules { bugs: &[Bug::NoQuarantine], ..TOKENS_FORGOTTEN })
        .breaks(&[TOKENS]),
    Run::new("no_quarantine", Rules { bugs: &[Bug::NoQuarantine], ..FORGETS }).breaks(&[EXCLUSION]),
    Run::new("no_agreement", Rules { bugs: &[Bug::NoAgreement], ..STEPS }).breaks(&[EXCLUSION]),
    Run::new("count_from_grant", Rules { bugs: &[Bug::CountFromGrant], ..PLAIN }).breaks(&[EXCLUSION]),
    Run::new("no_margin", Rules { bugs: &[Bug::NoMargin], ..DRIFTING }).breaks(&[EXCLUSION]),
    Run::new("count_repaired", Rules { bugs: &[Bug::CountRepaired], ..REPAIRED }).breaks(&[EXCLUSION]),
    Run::new("delete_without_compare", Rules { clients: 3, bugs: &[Bug::DeleteWithoutCompare], ..PLAIN })
        .breaks(&[EXCLUSION]),
    Run::new("one_vote", Rules { bugs: &[Bug::OneVote], ..PLAIN }).breaks(&[EXCLUSION]),
    // No protocol can keep exclusion under the faults of these runs.
    Run::new("a_majority_steps", Rules { faults: Faults { steps: 2, ..NO_FAULTS }, ..STEPS })
        .breaks(&[EXCLUSION]),
];

impl Run {
    const fn new(name: &'static str, rules: Rules) -> Self {
        Self { name, rules, breaks: &[] }
    }

    const fn breaks(self, breaks: &'static [&'static str]) -> Self {
        Self { breaks, ..self }
    }

    /// Searches the worlds; worlds that are fewer steps away come first. Stops when every property that is expected to
    /// break is broken. If none is expected to break, stops at the first broken property, or when all worlds are
    /// searched.
    #[must_use]
    pub fn search(&self) -> SearchResult {
        SearchResult::of(Protocol { rules: self.rules }, self.breaks, GRANTED_AGAIN)
    }

    /// The differences between the result and the expected result. The list is empty if there are none.
    #[must_use]
    pub fn complaints(&self, result: &SearchResult) -> Vec<String> {
        result.complaints(self.breaks, GRANTED_AGAIN)
    }
}
