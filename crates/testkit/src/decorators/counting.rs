//! Counts calls and their items.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Conversions, Diagnostic, Engine, EngineError, Followed,
    Guarantee, Hold, How, Inspect, Memo, MemoWrite, Memos, Name, NoticeSender, Notification, Profile,
    Release, Released, Renewed, Upgraded, View, Watched, Written,
};

use super::{
    conversions_of, memos_of,
    verb::{PerVerb, Verb},
};

/// Counts calls to an engine. A call counts at its first poll; a batch of notifications counts when it is delivered.
pub struct Counting {
    inner: Arc<dyn Engine>,
    counts: PerVerb<Counter>,
}

/// The counts of one verb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of calls.
    pub calls: u64,
    /// The number of items in all calls: holds, releases, notifications, claims of one `claim_all`; 1 for each
    /// other claim and inspection.
    pub items: u64,
    /// The largest number of items in one call.
    pub largest: u64,
}

/// The [`Count`] of one verb while calls are added to it.
#[derive(Debug, Default)]
struct Counter {
    calls: AtomicU64,
    items: AtomicU64,
    largest: AtomicU64,
}

impl Counting {
    /// Counts the calls to `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        Self { inner, counts: PerVerb::default() }
    }

    /// The counts of `verb` so far.
    #[must_use]
    pub fn count(&self, verb: Verb) -> Count {
        let counter = self.counts.get(verb);
        Count {
            calls: counter.calls.load(Ordering::Relaxed),
            items: counter.items.load(Ordering::Relaxed),
            largest: counter.largest.load(Ordering::Relaxed),
        }
    }

    /// Resets all counts.
    pub fn reset(&self) {
        for verb in Verb::ALL {
            let counter = self.counts.get(verb);
            for number in [&counter.calls, &counter.items, &counter.largest] {
                number.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Counts one call with this number of items.
    fn add(&self, verb: Verb, items: usize) {
        let items = items as u64;
        let counter = self.counts.get(verb);
        counter.calls.fetch_add(1, Ordering::Relaxed);
        counter.items.fetch_add(items, Ordering::Relaxed);
        counter.largest.fetch_max(items, Ordering::Relaxed);
    }
}

#[deny(clippy::missing_trait_methods)]
impl Engine for Counting {
    fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move {
            self.add(Verb::Claim, 1);
            self.inner.claim(claim, how).await
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        Box::pin(async move {
            self.add(Verb::Claim, claims.len());
            self.inner.claim_all(claims).await
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            self.add(Verb::Renew, holds.len());
            self.inner.renew(holds).await
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            self.add(Verb::Release, releases.len());
            self.inner.release(releases).await
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(async move {
            let batch = self.inner.notifications().await;
            self.add(Verb::Notification, batch.len());
            batch
        })
    }

    fn memos(&self) -> Option<&dyn Memos> {
        self.inner.memos().map(|_| self as &dyn Memos)
    }

    fn conversions(&self) -> Option<&dyn Conversions> {
        self.inner.conversions().map(|_| self as &dyn Conversions)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Memos for Counting {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(async move {
            self.add(Verb::Inspect, 1);
            memos_of(&*self.inner).read(name).await
        })
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(async move {
            self.add(Verb::Memo, 1);
            memos_of(&*self.inner).write(write).await
        })
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        memos_of(&*self.inner).follow(name)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Conversions for Counting {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            self.add(Verb::Convert, 1);
            conversions_of(&*self.inner).downgrade(hold).await
        })
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        Box::pin(async move {
            self.add(Verb::Convert, 1);
            conversions_of(&*self.inner).upgrade(hold, claim).await
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Inspect for Counting {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        self.add(Verb::Inspect, 1);
        self.inner.ping()
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        self.add(Verb::Inspect, 1);
        self.inner.guarantee()
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        self.add(Verb::Inspect, 1);
        self.inner.diagnose()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        self.add(Verb::Inspect, 1);
        self.inner.list(prefix)
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        self.add(Verb::Inspect, 1);
        self.inner.show(name)
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        self.add(Verb::Inspect, 1);
        self.inner.break_hold(name, token, force)
    }

    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        self.inner.tell_changes(watched, notices)
    }
}
