//! Ends a hold whose guardian was killed. No process of CMD runs any more, so the name need not stay taken until the
//! lease runs out.

use std::time::Duration;

use leasehold::{Connect, Error, Locks};

use crate::{event_loop::EventLoop, plan::Run, signals::interrupts_wait};

/// The time limit for ending the hold. Without an answer the name is free when the lease runs out.
const BREAK_LIMIT: Duration = Duration::from_secs(5);

/// Ends the hold of `claim`, on a new connection, because the connection of the guardian has ended. Returns whether the
/// name is certainly free.
pub(crate) fn free_name(plan: &Run, claim: &str, event_loop: &EventLoop) -> bool {
    // The kernel has released a lock of the file engine with its process.
    if plan.url.starts_with("file:") {
        return true;
    }
    // The hold may have been released with `--at-least` already; breaking it would free a name that is to stay taken.
    if plan.at_least.is_some() {
        return false;
    }
    let Ok(locks) = Connect::default().connect(&plan.url) else { return false };
    matches!(
        event_loop.block_on(end_hold(&locks, plan.name.as_str(), claim), Some(BREAK_LIMIT), interrupts_wait),
        Ok(Some(Ok(())))
    )
}

/// Ends the hold of this claim, and no other hold of the name. The claim has no keeper any more, and no request of it
/// that could still have an effect.
async fn end_hold(locks: &Locks, name: &str, claim: &str) -> Result<(), Error> {
    let view = locks.show(name).await?;
    let own = view.holders.iter().find(|holder| holder.id == claim);
    match own.and_then(|holder| holder.token) {
        Some(token) => locks.break_hold(name, token, true).await.map(drop),
        None => Ok(()),
    }
}
