//! The runs of the model of blocks, and the expected result of each.

use super::{
    SearchResult,
    action::{EXCLUSION, NO_TOKEN_TWICE, NO_WAIT_IN_VAIN, ONE_BLOCK, Protocol, TAKES_TURNS, TOKENS},
};

/// The rules of a run: how long things take, what may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The number of tokens of a block.
    pub(crate) block: u8,
    /// The length of a lease, in ticks.
    pub(crate) ttl: u8,
    /// The time, in ticks, after which no more time passes.
    pub(crate) horizon: u8,
    /// No key is created at this revision or later.
    pub(crate) max_revision: u8,
    /// Whether another program has a key in the queue too.
    pub(crate) other_program: bool,
    /// How often something other than the owner of a key may delete the key.
    pub(crate) deletions: u8,
    pub(crate) bug: Option<Bug>,
}

/// A mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The token is the number of the key plus the step. It should be the number times the length of a block, plus the
    /// step.
    NumberAlone,
    /// A hold is handed over after its lease has ended.
    HandOverAfterLease,
    /// A hold is handed over beyond its block.
    EndlessBlock,
    /// After a renewal the steps of the block begin again at 0.
    StepsBeginAgain,
    /// A claim that takes over a watch counts a report of an earlier deletion, from before it read the queue, as the
    /// deletion that it waits for.
    EarlierReportCounts,
    /// A claim that takes over a watch does not look for reports that arrived after it read the queue.
    ReportBeforeTakeOverLost,
    /// A claim that begins a watch does not look for changes that happened after it read the queue.
    ChangeBeforeWatchLost,
}

impl Rules {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// A set of rules to search, and whether the search is expected to find a violation.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The subject of the run.
    pub name: &'static str,
    rules: Rules,
    /// The properties that the search must find broken. If the list is empty, all properties must hold in all worlds.
    pub breaks: &'static [&'static str],
}

/// Two processes. No lease ends.
const PLAIN: Rules =
    Rules { block: 2, ttl: 1, horizon: 0, max_revision: 8, other_program: false, deletions: 0, bug: None };
const AMONG_OTHERS: Rules = Rules { other_program: true, max_revision: 7, ..PLAIN };
const LEASES: Rules = Rules { ttl: 2, horizon: 4, max_revision: 6, ..PLAIN };

/// The runs in which every property holds. Each run takes some seconds.
pub const HOLDS: &[Run] = &[
    Run::new("plain", PLAIN),
    Run::new("among_others", AMONG_OTHERS),
    Run::new("leases", LEASES),
    Run::new("leases_among_others", Rules { other_program: true, ..LEASES }),
    Run::new("long_blocks", Rules { block: 4, ..AMONG_OTHERS }),
    Run::new("deleted_by_another_hand", Rules { deletions: 1, ..AMONG_OTHERS }),
];

/// The runs that must break a property, because their protocol has a mistake.
pub const MISTAKES: &[Run] = &[
    Run::new("number_alone", Rules { bug: Some(Bug::NumberAlone), ..PLAIN }).breaks(&[TOKENS]),
    Run::new("hand_over_after_lease", Rules { bug: Some(Bug::HandOverAfterLease), ..LEASES })
        .breaks(&[TOKENS]),
    Run::new("endless_block", Rules { bug: Some(Bug::EndlessBlock), ..AMONG_OTHERS })
        .breaks(&[ONE_BLOCK, TOKENS]),
    Run::new("steps_begin_again", Rules { bug: Some(Bug::StepsBeginAgain), ..LEASES })
        .breaks(&[NO_TOKEN_TWICE]),
    Run::new("earlier_report_counts", Rules { bug: Some(Bug::EarlierReportCounts), ..PLAIN })
        .breaks(&[EXCLUSION]),
    Run::new("report_before_take_over_lost", Rules { bug: Some(Bug::ReportBeforeTakeOverLost), ..PLAIN })
        .breaks(&[NO_WAIT_IN_VAIN]),
    Run::new("change_before_watch_lost", Rules { bug: Some(Bug::ChangeBeforeWatchLost), ..PLAIN })
        .breaks(&[NO_WAIT_IN_VAIN]),
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
        SearchResult::of(Protocol { rules: self.rules }, self.breaks, TAKES_TURNS)
    }

    /// The differences between the result and the expected result. The list is empty if there are none.
    #[must_use]
    pub fn complaints(&self, result: &SearchResult) -> Vec<String> {
        result.complaints(self.breaks, TAKES_TURNS)
    }
}
