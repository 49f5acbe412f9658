//! Grants: which request gets a hold, and the guard made for it.

use std::{sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    Arrival, RequestSpec, Terms,
    deliver::token_went_back_error,
    reenter::hold_index_of_owner,
    set::Contention,
    state::{LocalHold, NameState, Waiter},
};
use crate::{
    Claim, ClaimId, Error, ErrorKind, Grant, Guard, Instant, Name, Previous, Token,
    driver::keeper::TimerAction,
    driver::observer::Granted,
    driver::shared::{Shared, SharedHandle},
    driver::validity::{Validity, Withheld},
    guard::{MaxHold, Stage},
    pure::lease::{self, LeaseAction},
};

/// What is to be sent to a waiting request, after the shard is unlocked.
pub(crate) enum Delivery {
    Granted(GrantedGuard),
    Refused { name: Name, waiter: Box<Waiter>, error: Error },
}

/// A guard for the request that waits for it.
pub(crate) struct GrantedGuard {
    tx: oneshot::Sender<Result<Guard, Error>>,
    guard: Guard,
    waited: Duration,
    /// The request had to wait for another holder or request.
    contended: bool,
    /// The span of the request.
    span: tracing::Span,
    /// The hold was handed over inside the process.
    handed_over: bool,
    /// See [`RequestSpec::of_set`].
    of_set: Option<Contention>,
}

impl Delivery {
    /// The refusal of a request.
    pub(super) fn refused(name: &Name, waiter: Waiter, error: Error) -> Self {
        Self::Refused { name: name.clone(), waiter: Box::new(waiter), error }
    }

    /// Sends the guard or the error. If the request was dropped meanwhile, the guard comes back and is released by its
    /// own drop.
    pub(crate) fn send(self) {
        match self {
            Self::Granted(guard) => guard.send(),
            Self::Refused { name, waiter, error } => {
                let handle = Arc::clone(&waiter.handle);
                handle.fail_request(&name, *waiter, error);
            }
        }
    }
}

impl GrantedGuard {
    fn send(self) {
        let Self { tx, guard, waited, contended, span, handed_over, of_set } = self;
        // The keeper may deliver the guard, outside the span of the request.
        span.in_scope(|| report_grant(&guard, of_set.as_ref(), waited, contended, handed_over));
        let _ = tx.send(Ok(guard));
    }
}

/// Reports a grant to the observers. The grant of a name of a set is reported with the whole set.
pub(super) fn report_grant(
    guard: &Guard,
    of_set: Option<&Contention>,
    waited: Duration,
    contended: bool,
    local: bool,
) {
    if let Some(contention) = of_set {
        contention.note(contended);
        return guard.validity.withhold(Withheld { local });
    }
    let (name, mode, token) = (guard.name(), guard.mode(), guard.token());
    guard.shared_handle().observer.granted(&Granted { name, mode, token, waited, contended, local });
}

/// When a claim was sent, and the newest token of the name known at that time.
#[derive(Clone, Copy)]
pub(crate) struct SentClaim {
    /// When the first try of the request began.
    pub(crate) since: Instant,
    /// Whether an earlier try was answered "taken".
    pub(crate) contended: bool,
    pub(crate) sent_at: Instant,
    pub(crate) newest_token: Option<Token>,
}

/// The request for which a guard is made: the parts of the guard that do not come from its hold.
pub(crate) struct Requester<'a> {
    pub(crate) handle: &'a Arc<SharedHandle>,
    pub(crate) terms: &'a Terms,
    /// How long the guard may use the hold, at most.
    pub(crate) max_hold: Option<Duration>,
    /// The guard is of a set that is not granted as a whole yet.
    pub(crate) of_set: bool,
}

impl Shared {
    /// Makes one more guard on `hold`, with `token`.
    pub(super) fn new_guard(
        self: &Arc<Self>,
        name: &Name,
        hold: &mut LocalHold,
        requester: &Requester<'_>,
        token: Token,
        previous: Previous,
        now: Instant,
    ) -> Guard {
        let max_hold_end = requester.max_hold.map_or(Instant::NEVER, |max_hold| now.after(max_hold));
        let (granted, owner) = ((token, requester.terms.mode), requester.terms.owner.clone());
        let validity = Validity::new(&hold.lease, max_hold_end, granted, owner);
        let validity = Arc::new(if requester.of_set { validity.of_set() } else { validity });
        let max_hold = requester.max_hold.filter(|_| max_hold_end != Instant::NEVER);
        let max_hold = max_hold.map(|length| Box::new(self.limit_timer(name, hold.id, length, now)));
        hold.guards.push(Arc::clone(&validity));
        Guard {
            handle: Arc::clone(requester.handle),
            validity,
            name: name.clone(),
            id: hold.id,
            mode: requester.terms.mode,
            previous,
            since: now,
            max_hold,
            stage: Stage::InTransit,
        }
    }

    /// The timer that ends the use of a guard after `length`, which counts from `now`.
    pub(super) fn limit_timer(
        self: &Arc<Self>,
        name: &Name,
        id: ClaimId,
        length: Duration,
        now: Instant,
    ) -> MaxHold {
        let action = TimerAction::MaxHold(Box::new((name.clone(), id)));
        MaxHold { timer: self.add_timer(now.after(length), action), length }
    }

    /// Makes one more guard on the hold of `guard`. The keeper owns the new guard, so the hold stays when `guard` ends.
    /// The new guard has neither a `max_hold` nor an owner. If the lease was not renewed so far, its renewals begin
    /// now.
    pub(crate) fn add_keeper_guard(self: &Arc<Self>, guard: &Guard, now: Instant) -> Option<Arc<Validity>> {
        let mut shard = self.table.shard(&guard.name);
        let hold = shard.get_mut(&guard.name)?.hold(guard.id).filter(|hold| !hold.is_ending)?;
        hold.lease.start_renewal(now);
        let validity =
            Arc::new(Validity::new(&hold.lease, Instant::NEVER, (guard.token(), guard.mode), None));
        // No user has it, so that observers get no event of its loss.
        validity.end();
        hold.guards.push(Arc::clone(&validity));
        self.set_lease_timer(&guard.name, hold, now);
        Some(validity)
    }

    /// Makes a guard on `hold`, with the next token, for a request of the local queue. `handed_over`: the hold is
    /// handed over inside the process.
    pub(super) fn prepare_delivery(
        self: &Arc<Self>,
        name: &Name,
        hold: &mut LocalHold,
        waiter: Waiter,
        previous: Previous,
        handed_over: bool,
        now: Instant,
    ) -> Option<Delivery> {
        let token = hold.take_token()?;
        Some(self.deliver_on(name, hold, waiter, token, previous, handed_over, now))
    }

    /// Makes a guard on `hold`, with this token, for a request of the local queue.
    #[expect(clippy::too_many_arguments, reason = "the parts of a guard come from many places")]
    pub(super) fn deliver_on(
        self: &Arc<Self>,
        name: &Name,
        hold: &mut LocalHold,
        waiter: Waiter,
        token: Token,
        previous: Previous,
        handed_over: bool,
        now: Instant,
    ) -> Delivery {
        if let Some(timer) = waiter.limit_timer {
            self.timers.remove(timer);
        }
        let Waiter { handle, terms, max_hold, .. } = &waiter;
        let of_set = waiter.of_set.is_some();
        let requester = Requester { handle, terms, max_hold: *max_hold, of_set };
        let guard = self.new_guard(name, hold, &requester, token, previous, now);
        let waited = now.since(waiter.since);
        let Waiter { tx, contended, span, of_set, .. } = waiter;
        Delivery::Granted(GrantedGuard { tx, guard, waited, contended, span, handed_over, of_set })
    }

    /// Sets the timer for the lease of a hold.
    pub(crate) fn set_lease_timer(self: &Arc<Self>, name: &Name, hold: &mut LocalHold, now: Instant) {
        let at = match hold.lease.step(now) {
            LeaseAction::Sleep(Instant::NEVER) => return,
            LeaseAction::Sleep(at) => at,
            LeaseAction::Renew | LeaseAction::Lost(_) => now,
        };
        if let Some(old_timer) = hold.timer.take() {
            self.timers.remove(old_timer);
        }
        hold.timer = Some(self.add_timer(at, TimerAction::Lease(name.clone())));
    }

    /// Lets the readers at the head of the local queue join the shared hold `hold`, as long as it has tokens left and
    /// its time for hand-overs is not over.
    pub(super) fn join_readers(
        self: &Arc<Self>,
        name: &Name,
        state: &mut NameState,
        hold: &mut LocalHold,
        deliveries: &mut Vec<Delivery>,
        now: Instant,
    ) {
        while hold.terms.mode == crate::Mode::Shared
            && let Some(waiter) = state.queue.take_head_if(|head| hold.can_hand_over(&head.terms, now))
        {
            let handed_over = true;
            deliveries.extend(self.prepare_delivery(name, hold, waiter, Previous::Clean, handed_over, now));
        }
    }
}

impl Shared {
    /// Whether a hold of this process, by another owner, or a waiting request of this process blocks a try. A request
    /// that is wrong, or is the same hold again, is not blocked.
    pub(crate) fn is_blocked_locally(&self, spec: &RequestSpec) -> bool {
        let shard = self.table.shard(&spec.name);
        let Some(state) = shard.get(&spec.name) else { return false };
        let is_owned = |owner| hold_index_of_owner(state, owner, self.now()).is_some();
        let is_decided =
            state.clashing_mode(spec.terms.mode).is_some() || spec.terms.owner.as_ref().is_some_and(is_owned);
        !is_decided && state.refuses_try(spec.terms.mode)
    }

    /// Makes the guard of a try that was granted. If the grant is not valid, undoes the claim and returns an error.
    pub(crate) fn guard_of_try(
        self: &Arc<Self>,
        handle: &Arc<SharedHandle>,
        spec: &RequestSpec,
        claim: &Claim,
        grant: &Grant,
        sent_claim: SentClaim,
    ) -> Result<Guard, Error> {
        let RequestSpec { name, terms, max_hold, of_set, .. } = spec;
        let now = self.now();
        let undo_and_fail = |error| {
            self.undo(claim);
            Err(error)
        };
        if grant.ttl.is_some_and(|ttl| lease::deadline(sent_claim.sent_at, ttl) <= now) {
            let message = format!("the grant of {:?} arrived after its lease had run out", name.as_str());
            return undo_and_fail(Error::new(ErrorKind::Unreachable, message));
        }
        if self.token_went_back(name, sent_claim.newest_token, grant) {
            return undo_and_fail(token_went_back_error(name));
        }
        let mut shard = self.table.shard(name);
        if let Err(error) = self.check_open() {
            drop(shard);
            return undo_and_fail(error);
        }
        let mut hold = self.new_hold(claim.id, terms, grant, Arrival::Answered(sent_claim.sent_at), now);
        let token = hold.take_token().unwrap_or(grant.token);
        let requester = Requester { handle, terms, max_hold: *max_hold, of_set: of_set.is_some() };
        let guard = self.new_guard(name, &mut hold, &requester, token, grant.previous, now);
        self.set_lease_timer(name, &mut hold, now);
        let state = shard.entry(name.clone()).or_default();
        let mut deliveries = Vec::new();
        self.join_owners(name, &mut state.queue, &mut hold, &mut deliveries, now);
        state.holds.reserve_exact(1);
        state.holds.push(hold);
        let prepared = if deliveries.is_empty() { None } else { self.fit_claim_to_head(name, state) };
        drop(shard);
        deliveries.into_iter().for_each(Delivery::send);
        self.start_claim(prepared);
        let waited = now.since(sent_claim.since);
        report_grant(&guard, of_set.as_ref(), waited, sent_claim.contended, false);
        Ok(guard)
    }
}
