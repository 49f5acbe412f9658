//! Ends a hold whose guardian was killed. All processes of CMD have ended, so the name need not stay taken until the
//! lease has ended.

use std::time::Duration;

use leasehold::{Connect, Error, Locks};

use crate::{event_loop::EventLoop, plan::Run, signals::interrupts_wait};

/// The time limit for ending the hold. Without an answer, the name is free when the lease has ended.
const BREAK_LIMIT: Duration = Duration::from_secs(5);

/// Ends the holds of `claims`, ids with spaces between them. Uses a new connection, because the connection of the
/// guardian is closed. Returns true only if all names are certainly free.
pub(crate) fn free_names(plan: &Run, claims: &str, event_loop: &EventLoop) -> bool {
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
        event_loop.block_on(end_holds(plan, &locks, claims), Some(BREAK_LIMIT), interrupts_wait),
        Ok(Some(Ok(())))
    )
}

/// Ends the holds of all names of the run. Tries every name, and returns the first error.
async fn end_holds(plan: &Run, locks: &Locks, claims: &str) -> Result<(), Error> {
    let mut result = Ok(());
    for name in plan.names() {
        let ended = end_hold(locks, name.as_str(), claims).await;
        result = result.and(ended);
    }
    result
}

/// Ends the hold of one of these claims, and no other hold of the name. If there is none, does nothing and returns
/// `Ok`. No keeper renews the claim any more, and no request of the claim is in flight that could still have an effect.
async fn end_hold(locks: &Locks, name: &str, claims: &str) -> Result<(), Error> {
    let view = locks.show(name).await?;
    let own = view.holders.iter().find(|holder| claims.split(' ').any(|claim| claim == holder.id));
    match own.and_then(|holder| holder.token) {
        Some(token) => locks.break_hold(name, token, true).await.map(drop),
        None => Ok(()),
    }
}
