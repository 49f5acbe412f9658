//! `leasehold renew`: extends the hold of a handle.

use super::check::is_held;
use crate::{
    args,
    exit::{self, Failure},
    handle::Held,
    holder::link,
};

/// Extends the hold. A hold that a holder process renews is only checked.
pub(crate) fn renew(
    args: &args::Renew,
    url: impl FnOnce() -> Result<String, Failure>,
) -> Result<u8, Failure> {
    let held = Held::new(&args.handle, url)?;
    if link::is_there(&held.handle) || held.locks.profile().no_handles.is_some() {
        if args.ttl.is_some() {
            let what = "--ttl is for a hold that no process renews: this one is held until its process ends";
            return Err(held.failure(exit::USAGE, what));
        }
        return is_held(&held).map(|()| exit::DONE);
    }
    let handle = args.ttl.into_iter().fold(held.handle.clone(), leasehold::Handle::with_ttl);
    match held.locks.extend_handle_blocking(&handle) {
        Ok(_) => Ok(exit::DONE),
        Err(error) if error.is_lost() => Err(held.lost(&error)),
        Err(error) => Err(error.into()),
    }
}
