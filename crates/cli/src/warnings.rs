//! Warnings about options that are allowed and often do harm: one line each, before CMD starts.

use std::time::Duration;

use leasehold::{Locks, View};

use crate::{
    cmd::run::lock_label,
    log,
    plan::{Purpose, Run},
    text::short_duration,
};

/// A shorter ttl can end while a busy machine or a slow server does nothing wrong.
const SHORT_TTL: Duration = Duration::from_secs(1);

/// Prints the warnings about the options of a run.
pub(crate) fn print(plan: &Run, locks: &Locks) {
    if plan.quiet {
        return;
    }
    let lock = lock_label(plan, locks);
    if let Some(warning) = locks.warning() {
        log::print_message(&format!("{lock}: warning: {warning}"));
    }
    // Where no time ends a hold, its length does not matter.
    if !locks.profile().life.lapses() {
        return;
    }
    if plan.ttl < SHORT_TTL {
        let ttl = short_duration(plan.ttl);
        let and_cmd = if plan.purpose == Purpose::Acquire { "" } else { ", and CMD" };
        log::print_message(&format!(
            "{lock}: warning: --ttl {ttl} is short: a pause of the machine or the server can end the hold{and_cmd}"
        ));
    }
    if !plan.renew {
        let ttl = short_duration(plan.ttl);
        log::print_message(&format!(
            "{lock}: warning: with --no-renew, CMD is ended before the lease of {ttl} has passed, finished or not"
        ));
    }
}

/// What to add to a message about the holder: that the holder cannot be told from this run, because both have the same
/// `--owner` text.
pub(crate) fn same_owner(plan: &Run, view: &View) -> &'static str {
    let Some(owner) = &plan.owner else { return "" };
    let is_same = view.holders.iter().any(|holder| !holder.foreign && holder.owner == owner.label());
    if is_same { " (with the same --owner text as this run)" } else { "" }
}
