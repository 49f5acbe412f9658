//! A hold whose guardian was killed. Nothing of CMD runs any more, so the name need not stay taken until the lease has run out.

use std::time::Duration;

use leasehold::{Connect, Error, Locks};

use crate::{plan::Run, signals::ends_wait, waiter::Waiter};

/// How long it may take: without an answer the name is free when the lease has run out.
const WITHIN: Duration = Duration::from_secs(5);

/// Frees what the claim holds; whether that is certain. Over a connection of its own: that of the guardian has ended with it.
pub(crate) fn free(plan: &Run, claim: &str, waiter: &Waiter) -> bool {
    // The kernel has freed a lock of the file engine with its process.
    if plan.url.starts_with("file:") {
        return true;
    }
    // It may have been released for that already, and who breaks it now frees a name that is kept.
    if plan.at_least.is_some() {
        return false;
    }
    let Ok(locks) = Connect::default().connect(&plan.url) else { return false };
    matches!(
        waiter.block_on(end(&locks, plan.name.as_str(), claim), Some(WITHIN), ends_wait),
        Ok(Some(Ok(())))
    )
}

/// Ends the hold of this claim, whatever else holds the name. Nobody renews it, and no request for it is under way that counts.
async fn end(locks: &Locks, name: &str, claim: &str) -> Result<(), Error> {
    let view = locks.show(name).await?;
    let own = view.holders.iter().find(|holder| holder.id == claim);
    match own.and_then(|holder| holder.token) {
        Some(token) => locks.break_hold(name, token, true).await.map(drop),
        None => Ok(()),
    }
}
