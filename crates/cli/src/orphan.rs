//! Ends a hold whose guardian was killed. All processes of CMD have ended, so the name need not stay taken until the
//! lease has ended.

use std::time::Duration;

use leasehold::{Connect, Error, Locks};

use crate::{event_loop::EventLoop, plan::Run, signals::interrupts_wait};

/// The time limit for ending the hold. Without an answer, the name is free when the lease has ended.
const BREAK_LIMIT: Duration = Duration::from_secs(5);

/// Ends the hold of `claim`. Uses a new connection, because the connection of the guardian is closed. Returns true only
/// if the name is certainly free.
pub(crate) fn free_name(plan: &Run, claim: &str, event_loop: &EventLoop) -> bool {
    // The kernel released the lock of the file engine when the guardian ended.
    if plan.url.starts_with("file:") {
        return true;
    }
    // The guardian may have released the hold with `--at-least` already. Then a break would free a name that is to stay
    // taken.
    if plan.at_least.is_some() {
        return false;
    }
    let Ok(locks) = Connect::default().connect(&plan.url) else { return false };
    matches!(
        event_loop.block_on(end_hold(&locks, plan.name.as_str(), claim), Some(BREAK_LIMIT), interrupts_wait),
        Ok(Some(Ok(())))
    )
}

/// Ends the hold of this claim, and no other hold of the name. If the claim has no hold, does nothing and returns `Ok`.
/// No keeper renews the claim any more, and no request of the claim is in flight that could still have an effect.
async fn end_hold(locks: &Locks, name: &str, claim: &str) -> Result<(), Error> {
    let view = locks.show(name).await?;
    let own = view.holders.iter().find(|holder| holder.id == claim);
    match own.and_then(|holder| holder.token) {
        Some(token) => locks.break_hold(name, token, true).await.map(drop),
        None => Ok(()),
    }
}
