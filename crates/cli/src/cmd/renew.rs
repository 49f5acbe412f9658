//! `leasehold renew`: extends the hold of a handle.

use super::check::is_held;
use crate::{
    args,
    exit::{self, Failure},
    handle::{Held, Shown, Wish},
    holder::link,
    source::Given,
};

/// Extends the hold. A hold that a holder process renews is only checked.
pub(crate) fn renew(
    args: &args::Renew,
    given: impl FnOnce() -> Result<Given, Failure>,
) -> Result<u8, Failure> {
    let held = Held::new(&args.handle, Wish::Keep, given)?;
    if link::is_there(&held.handle) || held.locks.profile().no_handles.is_some() {
        if args.ttl.is_some() {
            let what = "--ttl is for a hold that no process renews: this one is held until its process ends";
            return Err(held.failure(exit::USAGE, what));
        }
        return is_held(&held).map(|()| exit::DONE);
    }
    held.extend(args.ttl.unwrap_or_else(|| held.handle.ttl()))?;
    // That the hold was extended is known, whatever the look gives.
    if let Ok(Shown::Held(holder)) = held.look() {
        held.warn_of_holder(&holder);
    }
    Ok(exit::DONE)
}
