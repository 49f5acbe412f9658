//! Several names by one request: all or none.

mod events;
mod faults;
mod guards;
mod order;
mod request;
mod storm;
mod waits;

use std::sync::Arc;

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Claim, Engine, EngineError, Hold, How, Locks, Memos, Name, Notification,
    Profile, Release, Released, Renewed, cannot_claim_all,
};

use crate::inspect_macro::inspects_by;

/// An engine that takes one name at a time, as its profile says, or as it answers to each set.
pub(crate) struct OneByOne {
    inner: Arc<dyn Engine>,
    profile: Profile,
}

impl OneByOne {
    pub(crate) fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        let mut profile = inner.profile().clone();
        profile.claims_at_once = 1;
        Arc::new(Self { inner, profile })
    }

    /// The same, and its profile does not say so.
    pub(crate) fn by_answer(inner: Arc<dyn Engine>) -> Arc<Self> {
        let profile = inner.profile().clone();
        Arc::new(Self { inner, profile })
    }
}

impl Engine for OneByOne {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        self.inner.claim(claim, how)
    }

    fn claim_all<'a>(&'a self, _: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        if self.profile.claims_at_once > 1 {
            return Box::pin(async { Ok(AllAnswer::OneByOne) });
        }
        cannot_claim_all()
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        self.inner.renew(holds)
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        self.inner.release(releases)
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        self.inner.notifications()
    }

    fn memos(&self) -> Option<&dyn Memos> {
        self.inner.memos()
    }

    fn conversions(&self) -> Option<&dyn leasehold_core::Conversions> {
        self.inner.conversions()
    }
}

inspects_by!(OneByOne, |this| this.inner);

/// The names that are held or waited for, as `locks` sees them.
pub(crate) fn names_in_use(locks: &Locks) -> Vec<String> {
    let views = pollster::block_on(locks.list("")).unwrap();
    views.into_iter().map(|view| view.name.as_str().to_owned()).collect()
}
