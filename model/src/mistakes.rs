//! Runs of protocols with one mistake each. The search must find every mistake, or its silence about the correct
//! protocol would prove nothing.

use crate::{
    Bug::*,
    Rules, Run,
    properties::*,
    runs::{
        BROKEN, DEAD_WAITER, DEATHS, DELAYS, FOREIGN, IN_QUEUE, KNOWN_DEAD, LOST_NOTIFICATIONS, RECONNECTING,
        RENEWALS, TWICE,
    },
};

/// The protocols with a mistake.
pub const MISTAKES: &[Run] = &[
    Run::new("no_tombstone", Rules { bugs: &[NoTombstone], ..BROKEN }).breaks(&[GONE]),
    Run::new("delete_without_compare", Rules { bugs: &[DeleteWithoutCompare], ..IN_QUEUE })
        .breaks(&[EXCLUSION]),
    Run::new("renewal_takes", Rules { bugs: &[RenewalTakes], ..RENEWALS }).breaks(&[GONE]),
    Run::new("take_without_looking", Rules { bugs: &[TakeWithoutLooking], ..FOREIGN }).breaks(&[EXCLUSION]),
    Run::new("count_from_answer", Rules { bugs: &[CountFromAnswer], ..DELAYS }).breaks(&[EXCLUSION]),
    Run::new("unknown_extends", Rules { bugs: &[UnknownExtends], ..RENEWALS }).breaks(&[EXCLUSION]),
    Run::new("push_is_truth", Rules { bugs: &[PushIsTruth], ..FOREIGN }).breaks(&[EXCLUSION]),
    Run::new("same_token", Rules { bugs: &[SameToken], ..IN_QUEUE }).breaks(&[TOKENS]),
    Run::new("barge", Rules { bugs: &[Barge], ..IN_QUEUE }).breaks(&[ORDER]),
    Run::new("stop_without_listener", Rules { bugs: &[StopWithoutListener], ..KNOWN_DEAD }).breaks(&[WAKES]),
    Run::new("stop_at_expired", Rules { bugs: &[StopAtExpired], ..KNOWN_DEAD }).breaks(&[WAKES]),
    Run::new("lapsed_stays_at_head", Rules { bugs: &[LapsedStaysAtHead], ..DEAD_WAITER }).breaks(&[WAKES]),
    Run::new("entries_never_expire", Rules { bugs: &[EntriesNeverExpire], ..DEATHS }).breaks(&[REST]),
    Run::new("no_ask_after_reconnect", Rules { bugs: &[NoAskAfterReconnect], ..RECONNECTING })
        .breaks(&[WAKES]),
    Run::new("no_poll", Rules { bugs: &[NoPoll], ..LOST_NOTIFICATIONS }).breaks(&[WAKES]),
    Run::new("no_release_after_cancel", Rules { bugs: &[NoReleaseAfterCancel], ..IN_QUEUE }).breaks(&[GONE]),
    Run::new("lapse_forgotten", Rules { bugs: &[LapseForgotten], ..DELAYS }).breaks(&[LAPSES]),
    Run::new("freed_out_of_order", Rules { bugs: &[FreedOutOfOrder], ..DELAYS }).breaks(&[TRUTH]),
    Run::new("other_grant_stays", Rules { bugs: &[OtherGrantStays], ..BROKEN }).breaks(&[GONE]),
    Run::new("gone_is_trusted", Rules { bugs: &[GoneIsTrusted], ..TWICE }).breaks(&[GONE]),
];
