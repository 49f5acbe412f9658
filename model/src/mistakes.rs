//! Runs of protocols with one mistake each. The search must find every mistake; otherwise it would prove nothing that
//! it finds none in the correct protocol.

use crate::{
    Bug::*,
    Rules, Run,
    properties::*,
    runs::{
        BROKEN, BROKEN_TWICE, DEAD_WAITER, DEATHS, DELAYS, FOREIGN, IN_QUEUE, KNOWN_DEAD, LOST_NOTIFICATIONS,
        RECONNECTING, RENEWALS,
    },
};

/// The protocols with a mistake.
pub const MISTAKES: &[Run] = &[
    Run::new("no_tombstone", Rules { bugs: &[NoTombstone], ..BROKEN }).breaks(&[NOTHING_LEFT_OF_CLAIM]),
    Run::new("delete_without_compare", Rules { bugs: &[DeleteWithoutCompare], ..IN_QUEUE })
        .breaks(&[EXCLUSION]),
    Run::new("renewal_takes", Rules { bugs: &[RenewalTakes], ..RENEWALS }).breaks(&[NOTHING_LEFT_OF_CLAIM]),
    Run::new("take_without_looking", Rules { bugs: &[TakeWithoutLooking], ..FOREIGN }).breaks(&[EXCLUSION]),
    Run::new("count_from_answer", Rules { bugs: &[CountFromAnswer], ..DELAYS }).breaks(&[EXCLUSION]),
    Run::new("unknown_extends", Rules { bugs: &[UnknownExtends], ..RENEWALS }).breaks(&[EXCLUSION]),
    Run::new("push_is_truth", Rules { bugs: &[PushIsTruth], ..FOREIGN }).breaks(&[EXCLUSION]),
    Run::new("same_token", Rules { bugs: &[SameToken], ..IN_QUEUE }).breaks(&[GROWING_TOKENS]),
    Run::new("barge", Rules { bugs: &[Barge], ..IN_QUEUE }).breaks(&[QUEUE_ORDER]),
    Run::new("stop_without_listener", Rules { bugs: &[StopWithoutListener], ..KNOWN_DEAD })
        .breaks(&[NO_LOST_WAKE_UP]),
    Run::new("stop_at_expired", Rules { bugs: &[StopAtExpired], ..KNOWN_DEAD }).breaks(&[NO_LOST_WAKE_UP]),
    Run::new("lapsed_stays_at_head", Rules { bugs: &[LapsedStaysAtHead], ..DEAD_WAITER })
        .breaks(&[NO_LOST_WAKE_UP]),
    Run::new("entries_never_expire", Rules { bugs: &[EntriesNeverExpire], ..DEATHS }).breaks(&[NOTHING_LEFT]),
    Run::new("no_ask_after_reconnect", Rules { bugs: &[NoAskAfterReconnect], ..RECONNECTING })
        .breaks(&[NO_LOST_WAKE_UP]),
    Run::new("no_poll", Rules { bugs: &[NoPoll], ..LOST_NOTIFICATIONS }).breaks(&[NO_LOST_WAKE_UP]),
    Run::new("no_release_after_cancel", Rules { bugs: &[NoReleaseAfterCancel], ..IN_QUEUE })
        .breaks(&[NOTHING_LEFT_OF_CLAIM]),
    Run::new("lapse_forgotten", Rules { bugs: &[LapseForgotten], ..DELAYS }).breaks(&[LAPSES_REPORTED]),
    Run::new("freed_out_of_order", Rules { bugs: &[FreedOutOfOrder], ..DELAYS }).breaks(&[TRUE_RELEASES]),
    Run::new("other_grant_stays", Rules { bugs: &[OtherGrantStays], ..BROKEN })
        .breaks(&[NOTHING_LEFT_OF_CLAIM]),
    Run::new("gone_is_trusted", Rules { bugs: &[GoneIsTrusted], ..BROKEN_TWICE })
        .breaks(&[NOTHING_LEFT_OF_CLAIM]),
];
