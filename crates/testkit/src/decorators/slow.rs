//! Holds calls at gates that the test opens. So a test can model a slow engine without a clock.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Contact, Conversions, Diagnostic, Engine, EngineError,
    Followed, Guarantee, Hold, How, Inspect, Memo, MemoWrite, Memos, Name, NoticeSender, Notification,
    Profile, Release, Released, Renewed, Upgraded, View, Watched, Written, is_on_calling_thread,
};
use tokio::sync::watch;

use super::{
    conversions_of, memos_of,
    verb::{PerVerb, Verb},
};

/// Two gates for each verb: a call waits at the first before its request is applied, and at the second before its
/// answer is delivered. All gates are open at first.
///
/// A call can be dropped at a gate. At the first gate its request was not applied; at the second gate its request was
/// applied.
pub struct Slow {
    inner: Arc<dyn Engine>,
    profile: Profile,
    gates: PerVerb<Gates>,
}

/// The gates of one verb.
#[derive(Debug, Default)]
struct Gates {
    /// The number of calls that started on the thread of the caller.
    started_on_calling_thread: AtomicUsize,
    /// The gate before the request is applied.
    requests: Gate,
    /// The gate before the answer is delivered.
    replies: Gate,
}

/// A gate at which calls wait while it is closed.
#[derive(Debug, Default)]
struct Gate {
    closed: watch::Sender<bool>,
    /// The number of calls that wait.
    waiting: watch::Sender<usize>,
}

impl Slow {
    /// Puts gates around `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>) -> Self {
        let profile = super::waiting_profile(&*inner);
        Self { inner, profile, gates: PerVerb::default() }
    }

    /// Sets `contact` in the profile of this decorator: whether the engine ever had contact with its server.
    #[must_use]
    pub fn with_contact(mut self, contact: Contact) -> Self {
        self.profile.contact = Some(contact);
        self
    }

    /// Sets `direct` in the profile of this decorator: requests are allowed to start on the thread of the caller.
    #[must_use]
    pub fn direct(mut self) -> Self {
        self.profile.direct = true;
        self
    }

    /// How many calls of `verb` started on the thread of the caller.
    #[must_use]
    pub fn started_on_calling_thread(&self, verb: Verb) -> usize {
        self.gates.get(verb).started_on_calling_thread.load(Ordering::Relaxed)
    }

    /// From now on, requests of `verb` wait before they are applied.
    pub fn hold_requests(&self, verb: Verb) {
        self.gates.get(verb).requests.closed.send_replace(true);
    }

    /// From now on, requests of `verb` are applied and their answers wait.
    pub fn hold_replies(&self, verb: Verb) {
        self.gates.get(verb).replies.closed.send_replace(true);
    }

    /// Opens both gates of `verb`.
    pub fn open(&self, verb: Verb) {
        let gates = self.gates.get(verb);
        gates.requests.closed.send_replace(false);
        gates.replies.closed.send_replace(false);
    }

    /// How many calls of `verb` wait at the gates.
    #[must_use]
    pub fn waiting(&self, verb: Verb) -> usize {
        let gates = self.gates.get(verb);
        *gates.requests.waiting.borrow() + *gates.replies.waiting.borrow()
    }

    /// Resolves when at least `count` requests of `verb` wait before they are applied.
    pub async fn requests_held(&self, verb: Verb, count: usize) {
        self.gates.get(verb).requests.until_waiting(count).await;
    }

    /// Resolves when at least `count` answers of `verb` wait.
    pub async fn replies_held(&self, verb: Verb, count: usize) {
        self.gates.get(verb).replies.until_waiting(count).await;
    }

    /// Makes a call of `verb` through both gates.
    async fn through<T>(&self, verb: Verb, call: impl Future<Output = T>) -> T {
        let gates = self.gates.get(verb);
        gates.started_on_calling_thread.fetch_add(usize::from(is_on_calling_thread()), Ordering::Relaxed);
        gates.requests.pass().await;
        let answer = call.await;
        gates.replies.pass().await;
        answer
    }
}

impl Gate {
    /// Returns when the gate is open.
    async fn pass(&self) {
        let mut closed = self.closed.subscribe();
        if !*closed.borrow_and_update() {
            return;
        }
        let _ticket = GateTicket::take(&self.waiting);
        closed.wait_for(|&closed| !closed).await.expect("the sender lives in the same gate");
    }

    /// Returns when at least `count` calls wait.
    async fn until_waiting(&self, count: usize) {
        let mut waiting = self.waiting.subscribe();
        waiting.wait_for(|&waiting| waiting >= count).await.expect("the sender lives in the same gate");
    }
}

/// Counts a call that waits at a gate, until the call passes or is dropped.
struct GateTicket<'a>(&'a watch::Sender<usize>);

impl<'a> GateTicket<'a> {
    fn take(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|waiting| *waiting += 1);
        Self(waiting)
    }
}

impl Drop for GateTicket<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

#[deny(clippy::missing_trait_methods)]
impl Engine for Slow {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(self.through(Verb::Claim, async move { self.inner.claim(claim, how).await }))
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        Box::pin(self.through(Verb::Claim, async move { self.inner.claim_all(claims).await }))
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(self.through(Verb::Renew, async move { self.inner.renew(holds).await }))
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(self.through(Verb::Release, async move { self.inner.release(releases).await }))
    }

    /// Waits at the first gate only. A batch that was taken from the engine, and then dropped at the second gate, would
    /// be lost.
    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(async move {
            self.gates.get(Verb::Notification).requests.pass().await;
            self.inner.notifications().await
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
impl Memos for Slow {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(self.through(Verb::Inspect, async move { memos_of(&*self.inner).read(name).await }))
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(self.through(Verb::Memo, async move { memos_of(&*self.inner).write(write).await }))
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        memos_of(&*self.inner).follow(name)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Conversions for Slow {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        let call = async move { conversions_of(&*self.inner).downgrade(hold).await };
        Box::pin(self.through(Verb::Convert, call))
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        let call = async move { conversions_of(&*self.inner).upgrade(hold, claim).await };
        Box::pin(self.through(Verb::Convert, call))
    }
}

#[deny(clippy::missing_trait_methods)]
impl Inspect for Slow {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(self.through(Verb::Inspect, async move { self.inner.ping().await }))
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(self.through(Verb::Inspect, async move { self.inner.guarantee().await }))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(self.through(Verb::Inspect, async move { self.inner.diagnose().await }))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(self.through(Verb::Inspect, async move { self.inner.list(prefix).await }))
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(self.through(Verb::Inspect, async move { self.inner.show(name).await }))
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(self.through(Verb::Inspect, async move { self.inner.break_hold(name, token, force).await }))
    }

    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        // As long as it lasts, it is no request.
        self.inner.tell_changes(watched, notices)
    }
}
