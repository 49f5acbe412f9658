//! All names of a set in one step of the engine.

use std::{pin::pin, sync::Arc};

use super::attempt::{blocked_error, unanswered_error};
use crate::{
    AllAnswer, Claim, EngineError, Error, ErrorKind, Fault, Guard, Instant,
    driver::local::{RequestSpec, SentClaim},
    driver::shared::{Shared, SharedHandle},
};

/// The outcome of the one step.
pub(super) enum OneStep {
    Held(Vec<Guard>),
    /// The engine cannot take these names in one step, or this process holds one of them or waits for it.
    Impossible,
    /// No name is held.
    Failed {
        /// It has the name that it is about.
        error: Error,
        /// Waiting does not help.
        is_final: bool,
    },
}

impl OneStep {
    fn failed(spec: &RequestSpec, error: Error, is_final: bool) -> Self {
        Self::Failed { error: error.of_name(&spec.name), is_final }
    }
}

/// Takes all names by one request, or none. `begun`: when the first try of the request began.
pub(super) async fn in_one_step(
    handle: &Arc<SharedHandle>,
    specs: &[RequestSpec],
    until: Option<Instant>,
    begun: Instant,
) -> OneStep {
    if !is_possible(handle, specs) {
        return OneStep::Impossible;
    }
    let first_name = &specs[0].name;
    if let Err(closed) = handle.check_open() {
        return OneStep::failed(&specs[0], closed, true);
    }
    if let Some(outage) = handle.outage_error(first_name) {
        return OneStep::failed(&specs[0], outage, true);
    }
    let since = handle.now();
    let mut claims = Claims::new(handle, specs, begun);
    let answer = {
        let mut request = pin!(handle.claim_in_one_step(&claims.claims, handle.connect_deadline(since)));
        match until {
            // An engine inside the process answers at its first poll.
            Some(until) if !handle.profile.inline => tokio::select! {
                biased;
                answer = &mut request => Some(answer),
                () = handle.sleep_until(until) => None,
            },
            _ => Some(request.await),
        }
    };
    let answer = match answer {
        Some(Ok(answer)) => answer,
        Some(Err(error)) => return claims.failed(error, since),
        None => return OneStep::failed(&specs[0], unanswered_error(handle, &specs[0]), true),
    };
    handle.set_reached();
    match answer {
        AllAnswer::Held(grants) => claims.guards(&grants, since),
        AllAnswer::OneByOne => {
            claims.undo_from = claims.claims.len();
            OneStep::Impossible
        }
        AllAnswer::Taken { index, hint } => {
            claims.undo_from = claims.claims.len();
            let spec = &specs[index.min(specs.len() - 1)];
            OneStep::failed(spec, blocked_error(handle, spec, hint), false)
        }
        AllAnswer::Refused { index, error } => {
            claims.undo_from = claims.claims.len();
            let spec = &specs[index.min(specs.len() - 1)];
            let is_final = !matches!(error.fault, Fault::Retry | Fault::Full | Fault::Unknown);
            OneStep::failed(spec, Error::from_engine(error, &spec.name, handle.profile.engine), is_final)
        }
    }
}

/// Whether one step of the engine can take these names, as far as the local state knows.
fn is_possible(shared: &Shared, specs: &[RequestSpec]) -> bool {
    let group = |spec: &RequestSpec| shared.engine.group(&spec.name);
    (2..=shared.profile.claims_at_once).contains(&specs.len())
        && specs[1..].iter().all(|spec| group(spec) == group(&specs[0]))
        && shared.knows_nothing_of(specs)
}

/// The claims of one step. Its drop releases those whose outcome is not known, or that got no guard.
struct Claims<'a> {
    handle: &'a Arc<SharedHandle>,
    specs: &'a [RequestSpec],
    claims: Vec<Claim>,
    /// What was known of each name before the request was sent.
    sent: Vec<SentClaim>,
    /// The claims from this index on may be on the engine.
    undo_from: usize,
}

impl<'a> Claims<'a> {
    fn new(handle: &'a Arc<SharedHandle>, specs: &'a [RequestSpec], begun: Instant) -> Self {
        let (may_queue, others_wait) = (false, false);
        let claim = |spec: &RequestSpec| handle.new_claim(&spec.name, &spec.terms, may_queue, others_wait);
        let claims = specs.iter().map(claim).collect();
        let newest = |spec: &RequestSpec| handle.newest_tokens.newest(&spec.name);
        let sent_at = handle.now();
        let sent = |spec| SentClaim { since: begun, contended: false, sent_at, newest_token: newest(spec) };
        let sent = specs.iter().map(sent).collect();
        Self { handle, specs, claims, sent, undo_from: 0 }
    }

    /// The outcome after an error of the whole request.
    fn failed(&mut self, error: EngineError, since: Instant) -> OneStep {
        if !error.fault.may_be_applied() {
            self.undo_from = self.claims.len();
        }
        let never_reached =
            self.handle.connect_deadline(since).is_some_and(|limit| self.handle.now() >= limit);
        let is_final = never_reached || !matches!(error.fault, Fault::Retry | Fault::Full | Fault::Unknown);
        let spec = &self.specs[0];
        OneStep::failed(spec, Error::from_engine(error, &spec.name, self.handle.profile.engine), is_final)
    }

    /// A guard for each grant. If one grant is not valid, the guards and claims of all others are released.
    fn guards(&mut self, grants: &[crate::Grant], since: Instant) -> OneStep {
        if grants.len() != self.claims.len() {
            let message = format!("a bug: {} grants for {} claims", grants.len(), self.claims.len());
            return OneStep::failed(&self.specs[0], Error::new(ErrorKind::Internal, message), true);
        }
        let mut guards = Vec::with_capacity(grants.len());
        for (index, grant) in grants.iter().enumerate() {
            // This claim gets a guard, or is undone by `guard_of_try`.
            self.undo_from = index + 1;
            let (spec, claim, sent) = (&self.specs[index], &self.claims[index], self.sent[index]);
            match self.handle.guard_of_try(self.handle, spec, claim, grant, sent) {
                Ok(guard) => guards.push(guard),
                Err(error) => {
                    let is_final = !error.is_unreachable() || self.handle.connect_deadline(since).is_some();
                    return OneStep::failed(spec, error, is_final);
                }
            }
        }
        OneStep::Held(guards)
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        self.claims[self.undo_from..].iter().for_each(|claim| self.handle.undo(claim));
    }
}

impl Shared {
    /// Sends one request for all claims, with the time limits of [`ask`](Self::ask).
    async fn claim_in_one_step(
        self: &Arc<Self>,
        claims: &[Claim],
        connect_deadline: Option<Instant>,
    ) -> Result<AllAnswer, EngineError> {
        let request = pin!(async { self.engine.claim_all(claims).await });
        let undo_late = || claims.iter().for_each(|claim| self.undo(claim));
        self.answer_in_time(&claims[0].name, request, connect_deadline, undo_late).await
    }
}
