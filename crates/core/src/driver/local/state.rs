//! The local state of one name.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use super::{queue::LocalQueue, set::Contention, wait_limit::CountedWait};
use crate::{
    Claim, ClaimId, EngineError, Error, Fault, Grant, Guard, Instant, Mode, Name, Owner, Pace, Previous,
    Token,
    driver::keeper::TimerKey,
    driver::shared::SharedHandle,
    driver::validity::Validity,
    pure::lease::{Lease, Renewal},
};

/// The parts of a request that must be equal for a hand-over: a hold is handed over only between requests with equal
/// terms.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) renewal: Renewal,
    pub(crate) owner: Option<Owner>,
    /// The process stops on SIGTERM: see [`Claim::stops_on_term`].
    pub(crate) stops_on_term: bool,
    /// The hold may be handed over within this process (R29: not that of a leader).
    pub(crate) hands_over: bool,
}

impl PartialEq for Terms {
    fn eq(&self, other: &Self) -> bool {
        self.mode == other.mode
            && self.ttl == other.ttl
            && self.renewal == other.renewal
            && self.stops_on_term == other.stops_on_term
            && self.hands_over == other.hands_over
            && self.owner.as_ref().map(Owner::label) == other.owner.as_ref().map(Owner::label)
    }
}

/// Identifies a request in its local queue: tickets grow in the order of arrival.
pub(crate) type Ticket = u64;

/// A waiting request.
pub(crate) struct Waiter {
    pub(crate) terms: Terms,
    /// How long the guard may use the hold, at most.
    pub(crate) max_hold: Option<Duration>,
    /// How often to ask the engine; `None`: at the intervals of the engine.
    pub(crate) pace: Option<Pace>,
    /// When the request was made.
    pub(crate) since: Instant,
    /// The timer for the end of the wait, if it has a limit.
    pub(crate) limit_timer: Option<TimerKey>,
    /// When the wait ends at the latest; `NEVER` for a wait without a limit.
    pub(crate) until: Instant,
    /// Whether the request had to wait for another holder or request.
    pub(crate) contended: bool,
    /// See [`RequestSpec::of_set`](super::RequestSpec::of_set).
    pub(crate) of_set: Option<Contention>,
    /// The span of the request.
    pub(crate) span: tracing::Span,
    /// Counts the request as waiting, if the number of waiting requests is limited.
    pub(crate) counted: Option<CountedWait>,
    /// Keeps the keeper running, and becomes part of the guard.
    pub(crate) handle: Arc<SharedHandle>,
    /// Where the guard or the error is sent to.
    pub(crate) tx: oneshot::Sender<Result<Guard, Error>>,
}

/// A hold of this process, with the guards that use it.
pub(crate) struct LocalHold {
    pub(crate) id: ClaimId,
    pub(crate) terms: Terms,
    pub(crate) lease: Lease,
    /// The timer for the next step of the lease.
    pub(crate) timer: Option<TimerKey>,
    /// The first token of the grant, by which the engine recognises the hold.
    pub(crate) first_token: Token,
    /// The number of the next token for a guard.
    pub(crate) next_token: u64,
    /// How many tokens of the grant have not been used.
    pub(crate) tokens_left: u32,
    /// The validity of each guard. Two fit inline into the size of a vector; most holds have one.
    pub(crate) guards: SmallVec<[Arc<Validity>; 2]>,
    /// When this process received the grant.
    pub(crate) granted_at: Instant,
    /// A release of the hold is being carried out.
    pub(crate) is_ending: bool,
    /// A conversion of the hold is being carried out: its mode on the engine is not certain. Nobody joins the hold, and
    /// no renewal ends it or lifts a doubt.
    pub(crate) is_converting: bool,
    /// The hold counts as shared, and may still be exclusive on the engine: its downgrade was not answered.
    pub(crate) is_downgrade_unsettled: bool,
    /// The engine reported the loss of the hold while it was converted: it has to be asked again.
    pub(crate) is_loss_unsure: bool,
    /// A memo was written under the hold, or may have been.
    pub(crate) writes_memos: bool,
    /// Until when the name stays taken, as asked by the guards released so far.
    pub(crate) min_hold_until: Option<Instant>,
    /// The worst end of the guards released so far.
    pub(crate) ended: Previous,
}

impl LocalHold {
    pub(crate) fn new(id: ClaimId, terms: Terms, grant: &Grant, lease: Lease, granted_at: Instant) -> Self {
        Self {
            id,
            terms,
            lease,
            timer: None,
            first_token: grant.token,
            next_token: grant.token.number,
            tokens_left: grant.tokens.max(1),
            guards: SmallVec::new(),
            granted_at,
            is_ending: false,
            is_converting: false,
            is_downgrade_unsettled: false,
            is_loss_unsure: false,
            writes_memos: false,
            min_hold_until: None,
            ended: Previous::Clean,
        }
    }

    /// The next token of the block.
    pub(crate) fn take_token(&mut self) -> Option<Token> {
        self.tokens_left = self.tokens_left.checked_sub(1)?;
        let token = Token { lineage: self.first_token.lineage, number: self.next_token };
        self.next_token += 1;
        Some(token)
    }

    /// Whether one more request with `terms` may use this hold, now or after the guard of the hold is released.
    pub(crate) fn can_hand_over(&self, terms: &Terms, now: Instant) -> bool {
        !self.is_ending
            && !self.is_converting
            && self.terms.hands_over
            // A hand-over keeps the claim and the token that the engine compares. So a write of the last guard could
            // arrive late under the next guard, and readers would take its memo for one of the next guard.
            && !self.writes_memos
            // The next guard did not ask for the extension.
            && !self.lease.is_extended()
            && self.tokens_left > 0
            && now.since(self.granted_at) < super::LONGEST_HANDOVERS
            && self.lease.is_fresh(now)
            && self.terms == *terms
    }

    /// Ends the lease and reports the loss to every guard. Returns the token and the mode of each guard to which it is
    /// new.
    pub(crate) fn mark_lost(&mut self, loss: crate::Loss) -> Vec<(Token, Mode)> {
        self.lease.mark_lost(loss);
        let newly_lost = self.guards.iter().filter(|validity| validity.mark_lost(loss));
        newly_lost.map(|validity| (validity.token(), validity.mode())).collect()
    }

    /// The hold as an argument of the engine's `renew`.
    pub(crate) fn as_hold(&self, name: &Name, now: Instant) -> crate::Hold {
        let (mode, ttl) = (self.terms.mode, self.lease.requested_ttl(now));
        crate::Hold { id: self.id, name: name.clone(), mode, token: self.first_token, ttl }
    }
}

/// The claim in flight on the engine for the head of the local queue.
pub(crate) struct ClaimInFlight {
    pub(crate) id: ClaimId,
    pub(crate) terms: Terms,
    pub(crate) control: Arc<Control>,
    /// The newest token of the name that was known before this claim was sent.
    pub(crate) newest_before: Option<Token>,
}

/// The message of the error of a claim that was not answered yet.
pub(super) const NO_ANSWER_YET: &str = "no answer yet";

/// How other tasks and threads communicate with the driver of a claim.
pub(crate) struct Control {
    /// Notified for a notification of the engine, or a cancellation.
    pub(crate) wake: Notify,
    /// No request waits for this claim any more.
    cancelled: AtomicBool,
    /// A pushed grant: the claim id, the grant, and a local time before which the grant did not begin, if that is
    /// known.
    pub(crate) pushed: Mutex<Option<(ClaimId, Grant, Option<Instant>)>>,
    /// The error of the last answer of the engine, or that there is no answer yet; `None` after an answer without
    /// error.
    pub(crate) last_error: Mutex<Option<EngineError>>,
    /// When the unanswered request was sent; [`Instant::NEVER`] while no request is in flight.
    request_sent_at: AtomicU64,
    /// How often the request at the head of the queue wants the engine to be asked.
    pace: Mutex<Option<Pace>>,
    /// When the request at the head of the queue was made.
    pub(crate) since: Instant,
}

impl Control {
    pub(crate) fn new(since: Instant, pace: Option<Pace>) -> Self {
        let last_error = EngineError::new(Fault::Unknown, NO_ANSWER_YET);
        Self {
            wake: Notify::new(),
            cancelled: AtomicBool::new(false),
            pushed: Mutex::default(),
            last_error: Mutex::new(Some(last_error)),
            request_sent_at: AtomicU64::new(Instant::NEVER.as_nanos()),
            pace: Mutex::new(pace),
            since,
        }
    }

    /// Ends the claim: no request waits for it any more.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Records that a request was sent at `at`; [`Instant::NEVER`]: that the request was answered.
    pub(crate) fn set_request_sent(&self, at: Instant) {
        self.request_sent_at.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// For how long a request has been without an answer.
    pub(crate) fn unanswered_for(&self, now: Instant) -> Duration {
        now.since(Instant::from_nanos(self.request_sent_at.load(Ordering::Relaxed)))
    }

    /// How often to ask the engine; `None`: at the intervals of the engine.
    pub(crate) fn pace(&self) -> Option<Pace> {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the pace of another request, which is now the head of the queue.
    pub(crate) fn set_pace(&self, pace: Option<Pace>) {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

/// The holds, the local queue, and the claim in flight of one name.
#[derive(Default)]
pub(crate) struct NameState {
    pub(crate) holds: Vec<LocalHold>,
    pub(crate) queue: LocalQueue,
    pub(crate) claim: Option<Box<ClaimInFlight>>,
}

/// A claim to start on the engine after a change of the local state; started after the shard is unlocked.
pub(crate) struct PreparedClaim {
    pub(crate) claim: Claim,
    pub(crate) control: Arc<Control>,
}

impl NameState {
    /// The ids of the claims that hold the name or wait for it.
    pub(crate) fn claims(&self) -> impl Iterator<Item = ClaimId> {
        let in_flight = self.claim.as_ref().map(|claim| claim.id);
        self.holds.iter().map(|hold| hold.id).chain(in_flight)
    }

    /// Whether nothing is left of the name, so that its state can be dropped.
    pub(crate) fn is_idle(&self) -> bool {
        self.holds.is_empty() && self.queue.is_empty() && self.claim.is_none()
    }

    /// The hold of this claim.
    pub(crate) fn hold(&mut self, id: ClaimId) -> Option<&mut LocalHold> {
        self.holds.iter_mut().find(|hold| hold.id == id)
    }

    /// Whether a hold of this process conflicts with `mode`. A lost hold does not conflict: about it, as about holds of
    /// other processes, the engine decides.
    pub(crate) fn conflicts(&self, mode: Mode) -> bool {
        self.conflicts_with(|_| true, mode)
    }

    /// Whether a try is refused without asking the engine. A hold that is ending does not refuse it (I13): the engine
    /// may have ended the hold already, and may have granted the name to another process since then.
    pub(crate) fn refuses_try(&self, mode: Mode) -> bool {
        !self.queue.is_empty() || self.conflicts_with(|hold| !hold.is_ending, mode)
    }

    fn conflicts_with(&self, counts: impl Fn(&LocalHold) -> bool, mode: Mode) -> bool {
        let mut live_holds = self.holds.iter().filter(|hold| hold.lease.lost().is_none() && counts(hold));
        match mode {
            Mode::Exclusive => live_holds.next().is_some(),
            Mode::Shared => live_holds.any(|hold| hold.is_ending || hold.terms.mode == Mode::Exclusive),
            Mode::Permits { count, limit } => {
                let permits_used = |hold: &LocalHold| match hold.terms.mode {
                    Mode::Permits { count, .. } => u64::from(count),
                    Mode::Exclusive | Mode::Shared => u64::from(limit),
                };
                live_holds.map(permits_used).sum::<u64>() + u64::from(count) > u64::from(limit)
            }
        }
    }

    /// The mode in use on this name, if `mode` is of another kind: such a request is refused. All modes in use are of
    /// one kind.
    pub(crate) fn clashing_mode(&self, mode: Mode) -> Option<Mode> {
        let hold = self.holds.first().map(|hold| hold.terms.mode);
        let mode_in_use = hold.or_else(|| Some(self.queue.head()?.terms.mode))?;
        (!mode_in_use.same_kind(mode)).then_some(mode_in_use)
    }
}

/// How a guard ended.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    /// The end to report to the next holder.
    pub(crate) ended: Previous,
    /// The name stays taken until this instant.
    pub(crate) min_hold_until: Option<Instant>,
}
