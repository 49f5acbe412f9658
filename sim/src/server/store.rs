//! The server's data and its verbs. The time is an argument, so that a fail-over can serve old requests again.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::Duration,
};

use leasehold_core::{
    Answer, Broken, Claim, EngineError, Fault, Grant, Hold, How, Instant, Lineage, Loss, Name, Previous,
    Release, Released, Renewed, TimeLeft, Token, View,
    lock_state::{LockState, Pushed, Refusal, StepContext, Tombstones},
};

use super::{Mail, Notification, Reply, Request};
use crate::{bug::Bug, plan::Protocol, scheduler::Group};

/// How long a request may be in flight before it arrives.
pub(crate) const REQUEST_LIFE: Duration = Duration::from_secs(2);

/// The lineage of all tokens.
const LINEAGE: Lineage = Lineage::new(7);
/// A bug that shows only sometimes shows in one of this many requests.
const ERR_EVERY: u64 = 4;

/// The server's data.
pub(crate) struct Store {
    protocol: Protocol,
    bug: Option<Bug>,
    /// The lock state of each name in use.
    names: BTreeMap<Name, LockState<Group>>,
    tombstones: Tombstones,
    /// The newest token.
    newest: u64,
    /// The number of requests so far.
    served: u64,
}

/// The context of a request.
pub(crate) struct RequestContext<'a> {
    /// The reading of the server's clock.
    pub(crate) now: Instant,
    /// The clients that the server knows to be gone.
    pub(crate) disconnected: &'a BTreeSet<Group>,
    /// The notifications to be sent to clients.
    pub(crate) mail: Vec<Mail>,
}

impl Store {
    /// An empty store.
    #[must_use]
    pub(crate) fn new(protocol: Protocol, bug: Option<Bug>) -> Self {
        Self {
            protocol,
            bug,
            names: BTreeMap::new(),
            tombstones: Tombstones::default(),
            newest: 0,
            served: 0,
        }
    }

    /// Serves a request of a client.
    pub(crate) fn serve(
        &mut self,
        context: &mut RequestContext<'_>,
        from: Group,
        request: &Request,
    ) -> Reply {
        self.served += 1;
        match request {
            Request::Hello | Request::Time => Reply::Time,
            Request::Claim(claim, how) => Reply::Claim(self.claim(context, from, claim, *how)),
            Request::Renew(holds) => {
                Reply::Renew(holds.iter().map(|hold| self.renew(context, hold)).collect())
            }
            Request::Release(releases) => {
                let freed = |freed| if freed { Released::Freed } else { Released::NotThere };
                let release = |(release, leaves_tombstone): &(Release, bool)| {
                    self.release(context, release, *leaves_tombstone)
                };
                Reply::Release(releases.iter().map(release).map(freed).collect())
            }
            Request::Break(name, token, force) => {
                Reply::Break(self.break_hold(context, name, *token, *force))
            }
        }
    }

    /// The holders and waiters of every name.
    #[must_use]
    pub(crate) fn views(&self, now: Instant) -> Vec<View> {
        self.names.iter().map(|(name, queue)| queue.view(name, name.as_str(), now)).collect()
    }

    /// The number of names in use at `now`.
    pub(crate) fn in_use(&mut self, now: Instant) -> usize {
        let mut context = RequestContext { now, disconnected: &BTreeSet::new(), mail: Vec::new() };
        let names: Vec<Name> = self.names.keys().cloned().collect();
        for name in &names {
            self.step(&mut context, name, REQUEST_LIFE, LockState::settle);
        }
        self.names.values().filter(|queue| queue.is_used()).count()
    }

    fn claim(
        &mut self,
        context: &mut RequestContext<'_>,
        from: Group,
        claim: &Claim,
        how: How,
    ) -> Result<Answer, EngineError> {
        let stored = Claim { ttl: self.real_ttl(claim.ttl), ..claim.clone() };
        let answer = self
            .step(context, &claim.name, REQUEST_LIFE, |queue, step| queue.claim(&stored, how, &from, step))
            .map_err(refused)?;
        Ok(match answer {
            Answer::Held(grant) => {
                Answer::Held(Grant { ttl: Some(claim.ttl), token: self.shown_token(grant.token), ..grant })
            }
            Answer::Waiting(_) if self.errs_now(Bug::GrantsTwice) => {
                Answer::Held(self.unstored_grant(context, claim, claim.ttl))
            }
            Answer::Waiting(hint) if self.errs_now(Bug::PushesUnstored) => {
                let grant = self.unstored_grant(context, claim, claim.claim_time);
                context.notify(from, &claim.name, Pushed { client: from, id: claim.id, grant });
                Answer::Waiting(hint)
            }
            answer => answer,
        })
    }

    fn renew(&mut self, context: &mut RequestContext<'_>, hold: &Hold) -> Renewed {
        let (token, real_ttl) = (self.shown_token(hold.token), self.real_ttl(hold.ttl));
        let extended = self.step(context, &hold.name, REQUEST_LIFE, |queue, step| {
            queue.renew(hold.id, token, real_ttl, step)
        });
        match extended {
            Err(loss) if !(loss == Loss::Gone && self.has(Bug::ExtendsAnyClaim)) => Renewed::Lost(loss),
            _ => Renewed::Extended { ttl: Some(hold.ttl), left: TimeLeft::Unknown },
        }
    }

    fn release(
        &mut self,
        context: &mut RequestContext<'_>,
        release: &Release,
        leaves_tombstone: bool,
    ) -> bool {
        if self.has(Bug::FreesNothing) {
            return true;
        }
        if self.has(Bug::FreesAnyHolder) {
            return self.free_any_holder(context, &release.name);
        }
        let release =
            Release { token: release.token.map(|token| self.shown_token(token)), ..release.clone() };
        let request_life = if leaves_tombstone { REQUEST_LIFE } else { Duration::ZERO };
        self.step(context, &release.name, request_life, |queue, step| queue.release(&release, step))
    }

    fn break_hold(
        &mut self,
        context: &mut RequestContext<'_>,
        name: &Name,
        token: u64,
        force: bool,
    ) -> Broken {
        let broken =
            self.step(context, name, REQUEST_LIFE, |queue, step| queue.break_hold(token, force, step));
        let Some(broken) = broken else { return Broken::NotHeld };
        if let Some(to) = broken.client {
            context
                .mail
                .push(Mail { to, notification: Notification::Broken { name: name.clone(), id: broken.id } });
        }
        Broken::Done
    }

    /// One step on the lock state of a name. A grant to a waiter is pushed to the waiter's client. If the server knows
    /// that the client is gone, the grant is taken back.
    fn step<R>(
        &mut self,
        context: &mut RequestContext<'_>,
        name: &Name,
        request_life: Duration,
        act: impl FnOnce(&mut LockState<Group>, &mut StepContext<'_, Group>) -> R,
    ) -> R {
        let mut queue = self.names.remove(name).unwrap_or_default();
        let request_life = if self.has(Bug::KeepsNoTombstones) { Duration::ZERO } else { request_life };
        let (protocol, newest, now) = (self.protocol, &mut self.newest, context.now);
        let mut mint = |tokens| mint(protocol, newest, now, tokens);
        let mut step = StepContext::new(now, request_life, &mut self.tombstones, &mut mint);
        let answer = act(&mut queue, &mut step);
        let mut all_pushed = Vec::new();
        while !step.pushed.is_empty() {
            for pushed in mem::take(&mut step.pushed) {
                if context.disconnected.contains(&pushed.client) {
                    queue.take_back_undelivered(pushed.id, &mut step);
                } else {
                    all_pushed.push(pushed);
                }
            }
        }
        if !queue.is_idle(now) {
            self.names.insert(name.clone(), queue);
        }
        for mut pushed in all_pushed {
            pushed.grant.token = self.shown_token(pushed.grant.token);
            if !self.has(Bug::NotifiesNoClient) {
                context.notify(pushed.client, name, pushed);
            }
        }
        answer
    }

    /// Whether the server has this bug.
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether the server has this bug and makes the mistake at this request.
    fn errs_now(&self, bug: Bug) -> bool {
        self.has(bug) && self.served.is_multiple_of(ERR_EVERY)
    }

    /// For how long a lease really lasts. A bug may make it shorter than the ttl.
    fn real_ttl(&self, ttl: Duration) -> Duration {
        if self.has(Bug::ExpiresEarly) { ttl * 3 / 4 } else { ttl }
    }

    /// Converts a token to the token that clients see, and back. With [`Bug::TokensFall`], later grants show smaller
    /// tokens to clients.
    fn shown_token(&self, token: Token) -> Token {
        let number = if self.has(Bug::TokensFall) { (1 << 62) - token.number } else { token.number };
        Token { number, ..token }
    }

    /// Makes a grant that the server does not store, as a deliberate bug.
    fn unstored_grant(&mut self, context: &RequestContext<'_>, claim: &Claim, ttl: Duration) -> Grant {
        let token = mint(self.protocol, &mut self.newest, context.now, claim.tokens);
        Grant { token, tokens: claim.tokens, ttl: Some(ttl), previous: Previous::Clean }
    }

    /// Frees a name even if another claim holds it, as a deliberate bug.
    fn free_any_holder(&mut self, context: &mut RequestContext<'_>, name: &Name) -> bool {
        let view = self.names.get(name).map(|queue| queue.view(name, name.as_str(), context.now));
        let token = view.and_then(|view| view.holders.first()?.token);
        token.is_some_and(|token| self.break_hold(context, name, token, true) == Broken::Done)
    }
}

impl RequestContext<'_> {
    /// Notifies a client of a pushed grant.
    fn notify(&mut self, to: Group, name: &Name, pushed: Pushed<Group>) {
        let at = Duration::from_micros(micros(self.now));
        let (name, id, grant) = (name.clone(), pushed.id, pushed.grant);
        self.mail.push(Mail { to, notification: Notification::Granted { name, id, grant, at } });
    }
}

/// The server's clock in microseconds, as the server reports it.
pub(crate) fn micros(now: Instant) -> u64 {
    now.as_nanos() / 1000
}

/// Creates a token that is larger than all earlier ones. If the protocol is like that of Redis, whose counter may be
/// lost, the token is at least the clock's time in microseconds. Otherwise it is one more than the newest token.
fn mint(protocol: Protocol, newest: &mut u64, now: Instant, tokens: u32) -> Token {
    let floor = if protocol == Protocol::Push { micros(now) } else { 0 };
    let first = floor.max(*newest + 1);
    *newest = first + u64::from(tokens) - 1;
    Token { lineage: LINEAGE, number: first }
}

/// The error for a claim that the lock rules refuse.
fn refused(refusal: Refusal) -> EngineError {
    let fault = match refusal {
        Refusal::QueueFull => Fault::Refused,
        Refusal::Clash { .. } => Fault::Misconfigured,
        _ => Fault::Internal,
    };
    EngineError::new(fault, refusal.to_string())
}
