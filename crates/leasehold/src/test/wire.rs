//! The connection of one process to the store, which a test cuts and disturbs.

use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Clock, Contact, Conversions, Diagnostic, Engine,
    EngineError, Followed, Guarantee, Hold, How, Inspect, Instant, Memo, MemoWrite, Memos, Name,
    NoticeSender, Notification, Profile, Release, Released, Renewed, Upgraded, View, Watched, Written,
    memory::MemoryEngine,
};
use tokio::sync::Notify;

use super::clock::KitClock;
use crate::Verb;

/// What happens to one request of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request does not reach the store. The process does not know that: the outcome is unknown to it.
    RequestLost,
    /// The store carries out the request, and its reply is lost: the outcome is unknown to the process.
    ReplyLost,
    /// The store refuses the request, as a server that is read-only or full does.
    Refused,
}

/// The address that events of connections show.
const STORE: &str = "kit";

/// Sleeps on the time of the process.
pub(super) type Sleeper = Box<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>;

pub(super) struct Wire {
    store: MemoryEngine,
    profile: Profile,
    contact: Contact,
    clock: Arc<KitClock>,
    sleeper: Sleeper,
    state: Mutex<State>,
    /// Notified when the state changes.
    changed: Notify,
}

#[derive(Default)]
struct State {
    planned: BTreeMap<Verb, VecDeque<Fault>>,
    /// Until when the store cannot be reached; [`Instant::NEVER`]: until the test mends the connection.
    cut_until: Option<Instant>,
    /// Notifications were missed.
    missed: bool,
    pushed: Vec<Notification>,
}

impl Wire {
    pub(super) fn new(store: MemoryEngine, clock: Arc<KitClock>, sleeper: Sleeper) -> Self {
        let contact = Contact::default();
        let mut profile = store.profile().clone();
        // A server answers later than at once: so the keeper sends all requests.
        (profile.inline, profile.contact) = (false, Some(contact.clone()));
        let (state, changed) = Default::default();
        Self { store, profile, contact, clock, sleeper, state, changed }
    }

    /// Plans a fault for the next request with this verb for which none is planned.
    pub(super) fn plan(&self, verb: Verb, fault: Fault) {
        self.lock().planned.entry(verb).or_default().push_back(fault);
    }

    /// The faults that were planned and did not happen.
    pub(super) fn pending_faults(&self) -> Vec<(Verb, Fault)> {
        let state = self.lock();
        state.planned.iter().flat_map(|(verb, faults)| faults.iter().map(|fault| (*verb, *fault))).collect()
    }

    /// Cuts the connection until `until`.
    pub(super) fn cut(&self, until: Instant) {
        self.lock().cut_until = Some(until);
        self.contact.record_disconnected();
        self.changed.notify_one();
    }

    /// Mends the connection.
    pub(super) fn mend(&self) {
        if mem::take(&mut self.lock().cut_until).is_some() {
            self.lock().missed = true;
        }
        self.changed.notify_one();
    }

    /// Delivers a notification.
    pub(super) fn push(&self, notification: Notification) {
        self.lock().pushed.push(notification);
        self.changed.notify_one();
    }

    /// Until when the connection is cut, if it is.
    fn cut_until(&self) -> Option<Instant> {
        let until = self.lock().cut_until?;
        if self.clock.now() < until {
            return Some(until);
        }
        self.mend();
        None
    }

    /// Whether a request reaches the store: an error if it does not, a planned fault of its reply.
    fn send(&self, verb: Option<Verb>) -> Result<Option<Fault>, EngineError> {
        if self.cut_until().is_some() {
            return Err(error(leasehold_core::Fault::Retry, "the test has cut the connection to the store"));
        }
        self.contact.record_connected_to(STORE);
        let fault = verb.and_then(|verb| self.lock().planned.get_mut(&verb)?.pop_front());
        match fault {
            Some(Fault::RequestLost) => Err(unknown()),
            Some(Fault::Refused) => {
                Err(error(leasehold_core::Fault::Refused, "the test has the store refuse this request"))
            }
            fault => Ok(fault),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn error(fault: leasehold_core::Fault, message: &str) -> EngineError {
    EngineError::new(fault, message)
}

fn unknown() -> EngineError {
    error(leasehold_core::Fault::Unknown, "the test has lost this request or its reply")
}

impl Engine for Wire {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.store.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move {
            let fault = self.send(Some(Verb::Claim))?;
            let answer = self.store.claim(claim, how).await;
            if fault.is_some() { Err(unknown()) } else { answer }
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        Box::pin(async move {
            let fault = self.send(Some(Verb::Claim))?;
            let answer = self.store.claim_all(claims).await;
            if fault.is_some() { Err(unknown()) } else { answer }
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            let failed = match self.send(Some(Verb::Renew)) {
                Ok(None) => return self.store.renew(holds).await,
                Ok(Some(_)) => {
                    self.store.renew(holds).await;
                    unknown()
                }
                Err(error) => error,
            };
            holds.iter().map(|_| Renewed::Unknown(failed.without_source())).collect()
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            let failed = match self.send(Some(Verb::Release)) {
                Ok(None) => return self.store.release(releases).await,
                Ok(Some(_)) => {
                    self.store.release(releases).await;
                    unknown()
                }
                Err(error) => error,
            };
            releases.iter().map(|_| Released::Unknown(failed.without_source())).collect()
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(async move {
            loop {
                if let Some(until) = self.cut_until() {
                    let time_left = until.since(self.clock.now());
                    tokio::select! {
                        biased;
                        () = self.changed.notified() => {}
                        () = (self.sleeper)(time_left), if until != Instant::NEVER => {}
                    }
                    continue;
                }
                if mem::take(&mut self.lock().missed) {
                    self.contact.record_connected_to(STORE);
                    return vec![Notification::AskAll];
                }
                let pushed = mem::take(&mut self.lock().pushed);
                if !pushed.is_empty() {
                    return pushed;
                }
                tokio::select! {
                    biased;
                    () = self.changed.notified() => {}
                    batch = self.store.notifications() => return batch,
                }
            }
        })
    }

    fn memos(&self) -> Option<&dyn Memos> {
        Some(self)
    }

    fn conversions(&self) -> Option<&dyn Conversions> {
        Some(self)
    }
}

impl Memos for Wire {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(async move {
            self.send(None)?;
            self.store.read(name).await
        })
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(async move {
            let fault = self.send(Some(Verb::Memo))?;
            let written = self.store.write(write).await;
            if fault.is_some() { Err(unknown()) } else { written }
        })
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        self.store.follow(name)
    }
}

impl Conversions for Wire {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            match self.send(Some(Verb::Convert)) {
                Ok(None) => self.store.downgrade(hold).await,
                Ok(Some(_)) => {
                    self.store.downgrade(hold).await;
                    Renewed::Unknown(unknown())
                }
                Err(error) => Renewed::Unknown(error),
            }
        })
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        Box::pin(async move {
            let fault = self.send(Some(Verb::Convert))?;
            let upgraded = self.store.upgrade(hold, claim).await;
            if fault.is_some() { Err(unknown()) } else { upgraded }
        })
    }
}

impl Inspect for Wire {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            self.send(None)?;
            self.store.ping().await
        })
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(async move {
            self.send(None)?;
            self.store.guarantee().await
        })
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(async move {
            self.send(None)?;
            self.store.diagnose().await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(async move {
            self.send(None)?;
            self.store.list(prefix).await
        })
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(async move {
            self.send(None)?;
            self.store.show(name).await
        })
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(async move {
            self.send(None)?;
            self.store.break_hold(name, token, force).await
        })
    }

    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        self.store.tell_changes(watched, notices)
    }
}
