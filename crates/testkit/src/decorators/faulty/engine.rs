//! The verbs, each sent through the faulty network.

use std::time::Instant;

use leasehold_core::{
    AllAnswer, Answer, BoxFuture, Broken, Claim, Conversions, Diagnostic, Engine, EngineError, Followed,
    Guarantee, Hold, How, Inspect, Memo, MemoWrite, Memos, Name, NoticeSender, Notification, Profile,
    Release, Released, Renewed, Upgraded, View, Watched, Written,
};
use tokio::sync::oneshot;

use super::{
    Fault, Faulty, Late, MAX_HELD,
    wire::{Reply, Request},
};
use crate::decorators::{Verb, memos_of};

/// The error of a call whose request or answer was lost.
const NO_ANSWER: &str = "no answer came in time (a planned fault)";
/// The error of a call without a session.
const NO_SESSION: &str = "the session is gone (a planned fault)";

impl Faulty {
    /// One call over the network.
    async fn call(&self, request: Request) -> Reply {
        let unknown = request.failed(leasehold_core::Fault::Unknown, NO_ANSWER);
        if self.state().gone {
            return request.failed(leasehold_core::Fault::Retry, NO_SESSION);
        }
        let verb = request.verb();
        let fault = self.state().plan.draw(verb);
        self.deliver_due().await;
        let reply = match fault {
            None => self.apply(&request).await,
            Some(Fault::RequestLost) => unknown,
            Some(Fault::ReplyLost) => {
                self.apply(&request).await;
                unknown
            }
            Some(Fault::Late) => {
                let mut state = self.state();
                assert!(state.late.len() < MAX_HELD, "{MAX_HELD} late requests were never delivered");
                let arrival = state.plan.arrival();
                state.late.push((request, arrival, Instant::now() + self.profile.request_life / 2));
                unknown
            }
            Some(Fault::Duplicated) => {
                let first = self.apply(&request).await;
                self.apply(&request).await;
                first
            }
            // A reordered request overtakes no waiting request: it waits with them for a later call. Otherwise two
            // reordered requests in a row would overtake each other.
            Some(Fault::Reordered) => return self.wait_to_be_overtaken(request).await.unwrap_or(unknown),
            Some(Fault::SessionGone) => {
                self.lose_session().await;
                return unknown;
            }
        };
        self.apply_overtaken(verb).await;
        reply
    }

    /// Applies a request on the inner engine.
    pub(super) async fn apply(&self, request: &Request) -> Reply {
        let created = request.created().iter().map(|claim| (claim.id, (claim.name.clone(), claim.mode)));
        self.state().live.extend(created);
        let reply = request.send(&*self.inner).await;
        if let (Request::Release(orders), Reply::Release(answers)) = (request, &reply) {
            let mut state = self.state();
            for (order, answer) in orders.iter().zip(answers) {
                if !matches!(answer, Released::Unknown(_)) {
                    state.live.remove(&order.id);
                }
            }
        }
        reply
    }

    async fn wait_to_be_overtaken(&self, request: Request) -> Option<Reply> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.state();
            assert!(state.overtaken.len() < MAX_HELD, "{MAX_HELD} requests wait to be overtaken");
            state.overtaken.push((request, answer));
        }
        answered.await.ok()
    }

    async fn apply_overtaken(&self, verb: Verb) {
        let overtaken: Vec<_> =
            self.state().overtaken.extract_if(.., |(held, _)| held.verb() == verb).collect();
        for (request, answer) in overtaken {
            let reply = self.apply(&request).await;
            // If the caller has given up, nobody gets the answer. The request was in flight, so it is applied
            // nevertheless.
            drop(answer.send(reply));
        }
    }

    /// With a seed, delivers the late requests that are due at this call. Without a seed, none is due: the test
    /// delivers them.
    async fn deliver_due(&self) {
        let due: Vec<_> = {
            let mut state = self.state();
            let calls = state.plan.calls();
            state.late.extract_if(.., |(_, arrival, _)| arrival.is_some_and(|call| call <= calls)).collect()
        };
        self.arrive(due).await;
    }

    /// Applies late requests in the order in which they were sent. Requests older than `request_life` are dropped.
    pub(super) async fn arrive(&self, late: Vec<Late>) {
        for (request, _, until) in late {
            if Instant::now() <= until {
                self.apply(&request).await;
            }
        }
    }

    /// One inspection over the network: its request or its answer is lost, or both pass.
    async fn look<T>(&self, looking: BoxFuture<'_, Result<T, EngineError>>) -> Result<T, EngineError> {
        if self.state().gone {
            return Err(EngineError::new(leasehold_core::Fault::Retry, NO_SESSION));
        }
        let unknown = EngineError::new(leasehold_core::Fault::Unknown, NO_ANSWER);
        let fault = self.state().plan.draw(Verb::Inspect);
        match fault {
            Some(Fault::RequestLost) => Err(unknown),
            Some(Fault::ReplyLost) => {
                looking.await.ok();
                Err(unknown)
            }
            Some(Fault::SessionGone) => {
                self.lose_session().await;
                Err(unknown)
            }
            None | Some(Fault::Late | Fault::Duplicated | Fault::Reordered) => looking.await,
        }
    }
}

#[deny(clippy::missing_trait_methods)]
impl Engine for Faulty {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn group(&self, name: &Name) -> Option<u16> {
        self.inner.group(name)
    }

    fn claim<'a>(&'a self, claim: &'a Claim, how: How) -> BoxFuture<'a, Result<Answer, EngineError>> {
        Box::pin(async move {
            match self.call(Request::Claim(claim.clone(), how)).await {
                Reply::Claim(answer) => answer,
                _ => unreachable!("a claim is answered by the answer to a claim"),
            }
        })
    }

    fn claim_all<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<AllAnswer, EngineError>> {
        Box::pin(async move {
            match self.call(Request::ClaimAll(claims.to_vec())).await {
                Reply::ClaimAll(answer) => answer,
                _ => unreachable!("claims of several names are answered by their answer"),
            }
        })
    }

    fn renew<'a>(&'a self, holds: &'a [Hold]) -> BoxFuture<'a, Vec<Renewed>> {
        Box::pin(async move {
            match self.call(Request::Renew(holds.to_vec())).await {
                Reply::Renew(answers) => answers,
                _ => unreachable!("a renewal is answered by the answer to a renewal"),
            }
        })
    }

    fn release<'a>(&'a self, releases: &'a [Release]) -> BoxFuture<'a, Vec<Released>> {
        Box::pin(async move {
            match self.call(Request::Release(releases.to_vec())).await {
                Reply::Release(answers) => answers,
                _ => unreachable!("a release is answered by the answer to a release"),
            }
        })
    }

    fn notifications(&self) -> BoxFuture<'_, Vec<Notification>> {
        Box::pin(self.next_notifications())
    }

    fn memos(&self) -> Option<&dyn Memos> {
        self.inner.memos().map(|_| self as &dyn Memos)
    }

    fn conversions(&self) -> Option<&dyn Conversions> {
        self.inner.conversions().map(|_| self as &dyn Conversions)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Memos for Faulty {
    fn read<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<Option<Memo>, EngineError>> {
        Box::pin(self.look(memos_of(&*self.inner).read(name)))
    }

    fn write<'a>(&'a self, write: &'a MemoWrite) -> BoxFuture<'a, Result<Written, EngineError>> {
        Box::pin(async move {
            match self.call(Request::Memo(Box::new(write.clone()))).await {
                Reply::Memo(answer) => answer,
                _ => unreachable!("the write of a memo is answered by the answer to that"),
            }
        })
    }

    fn follow(&self, name: &Name) -> Option<Followed> {
        memos_of(&*self.inner).follow(name)
    }
}

#[deny(clippy::missing_trait_methods)]
impl Conversions for Faulty {
    fn downgrade<'a>(&'a self, hold: &'a Hold) -> BoxFuture<'a, Renewed> {
        Box::pin(async move {
            match self.call(Request::Downgrade(Box::new(hold.clone()))).await {
                Reply::Downgrade(answer) => answer,
                _ => unreachable!("a downgrade is answered by the answer to a downgrade"),
            }
        })
    }

    fn upgrade<'a>(
        &'a self,
        hold: &'a Hold,
        claim: &'a Claim,
    ) -> BoxFuture<'a, Result<Upgraded, EngineError>> {
        Box::pin(async move {
            match self.call(Request::Upgrade(Box::new((hold.clone(), claim.clone())))).await {
                Reply::Upgrade(answer) => answer,
                _ => unreachable!("an upgrade is answered by the answer to an upgrade"),
            }
        })
    }
}

#[deny(clippy::missing_trait_methods)]
impl Inspect for Faulty {
    fn ping(&self) -> BoxFuture<'_, Result<(), EngineError>> {
        Box::pin(self.look(self.inner.ping()))
    }

    fn guarantee(&self) -> BoxFuture<'_, Result<Guarantee, EngineError>> {
        Box::pin(self.look(self.inner.guarantee()))
    }

    fn diagnose(&self) -> BoxFuture<'_, Result<Vec<Diagnostic>, EngineError>> {
        Box::pin(self.look(self.inner.diagnose()))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<View>, EngineError>> {
        Box::pin(self.look(self.inner.list(prefix)))
    }

    fn show<'a>(&'a self, name: &'a Name) -> BoxFuture<'a, Result<View, EngineError>> {
        Box::pin(self.look(self.inner.show(name)))
    }

    fn break_hold<'a>(
        &'a self,
        name: &'a Name,
        token: u64,
        force: bool,
    ) -> BoxFuture<'a, Result<Broken, EngineError>> {
        Box::pin(self.look(self.inner.break_hold(name, token, force)))
    }

    fn tell_changes<'a>(
        &'a self,
        watched: &'a Watched,
        notices: &'a NoticeSender,
    ) -> BoxFuture<'a, Result<(), EngineError>> {
        self.inner.tell_changes(watched, notices)
    }
}
