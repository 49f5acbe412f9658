//! The local state of one name.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use super::queue::LocalQueue;
use crate::{
    Claim, ClaimId, EngineError, Error, Fault, Grant, Guard, Instant, Mode, Name, Owner, Previous, Token,
    driver::keeper::TimerKey,
    driver::shared::Lifeline,
    driver::validity::Validity,
    pure::lease::{Lease, Renewal},
};

/// What a request asks for, as far as the engine sees it. A hold may be handed on between equal terms only.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) mode: Mode,
    pub(crate) ttl: Duration,
    pub(crate) renewal: Renewal,
    pub(crate) owner: Option<Owner>,
    pub(crate) stops_on_term: bool,
}

impl PartialEq for Terms {
    fn eq(&self, other: &Self) -> bool {
        self.mode == other.mode
            && self.ttl == other.ttl
            && self.renewal == other.renewal
            && self.stops_on_term == other.stops_on_term
            && self.owner.as_ref().map(Owner::label) == other.owner.as_ref().map(Owner::label)
    }
}

/// The place of a request in the local line.
pub(crate) type Ticket = u64;

/// A request that waits.
pub(crate) struct Waiter {
    pub(crate) terms: Terms,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) since: Instant,
    pub(crate) limit: Option<TimerKey>,
    /// When the wait is over.
    pub(crate) until: Instant,
    /// Keeps the keeper alive, and becomes part of the guard.
    pub(crate) life: Arc<Lifeline>,
    pub(crate) tx: oneshot::Sender<Result<Guard, Error>>,
}

/// A hold of this process, with the guards that use it.
pub(crate) struct LocalHold {
    pub(crate) id: ClaimId,
    pub(crate) terms: Terms,
    pub(crate) lease: Lease,
    pub(crate) timer: Option<TimerKey>,
    /// The first token of the grant, which the engine compares.
    pub(crate) first: Token,
    /// The number of the next token to hand out, and how many there are left.
    pub(crate) next: u64,
    pub(crate) left: u32,
    /// Two fit beside each other in the place of a vector: most holds have one.
    pub(crate) guards: SmallVec<[Arc<Validity>; 2]>,
    pub(crate) granted: Instant,
    /// It is on its way out: its release is being carried out right now.
    pub(crate) ending: bool,
    /// What the release is to keep, as asked by the guards that left so far.
    pub(crate) keep_until: Option<Instant>,
    /// The worst end of the guards that left so far.
    pub(crate) ended: Previous,
}

impl LocalHold {
    pub(crate) fn new(id: ClaimId, terms: Terms, grant: &Grant, lease: Lease, granted: Instant) -> Self {
        Self {
            id,
            terms,
            lease,
            timer: None,
            first: grant.token,
            next: grant.token.number,
            left: grant.tokens.max(1),
            guards: SmallVec::new(),
            granted,
            ending: false,
            keep_until: None,
            ended: Previous::Clean,
        }
    }

    /// The next token of the block.
    pub(crate) fn take_token(&mut self) -> Option<Token> {
        self.left = self.left.checked_sub(1)?;
        let token = Token { lineage: self.first.lineage, number: self.next };
        self.next += 1;
        Some(token)
    }

    /// Whether one more request of `terms` may use this hold, now or after its guard left.
    pub(crate) fn can_hand_on(&self, terms: &Terms, now: Instant) -> bool {
        !self.ending
            && self.left > 0
            && now.since(self.granted) < super::LONGEST_HANDOVERS
            && self.lease.is_fresh(now)
            && self.terms == *terms
    }

    /// Tells every guard; false if all knew before.
    pub(crate) fn lose(&mut self, loss: crate::Loss) -> bool {
        self.lease.lose(loss);
        self.guards.iter().filter(|validity| validity.lose(loss)).count() > 0
    }

    /// The hold as the engine's `renew` takes it.
    pub(crate) fn as_hold(&self, name: &Name, now: Instant) -> crate::Hold {
        let (mode, ttl) = (self.terms.mode, self.lease.asks_for(now));
        crate::Hold { id: self.id, name: name.clone(), mode, token: self.first, ttl }
    }
}

/// The claim that is under way on the engine for the head of the line.
pub(crate) struct InFlight {
    pub(crate) id: ClaimId,
    pub(crate) terms: Terms,
    pub(crate) control: Arc<Control>,
    /// The newest token of the name that was known before this claim left.
    pub(crate) newest: Option<Token>,
}

/// How others talk to the driver of a claim.
pub(crate) struct Control {
    /// News, or a cancellation.
    pub(crate) ring: Notify,
    cancelled: AtomicBool,
    /// A grant that was pushed, to which id, and since when it certainly stands.
    pub(crate) pushed: Mutex<Option<(ClaimId, Grant, Option<Instant>)>>,
    /// Why the engine's last word is not known: it answered with an error, or not yet.
    pub(crate) trouble: Mutex<Option<EngineError>>,
    /// When the engine was asked what it has not answered; [`Instant::NEVER`] while nothing is under way.
    asked: AtomicU64,
    /// When the request at the head of the line was made.
    pub(crate) since: Instant,
}

impl Control {
    pub(crate) fn new(since: Instant) -> Self {
        let trouble = EngineError::new(Fault::Unknown, "no answer yet");
        Self {
            ring: Notify::new(),
            cancelled: AtomicBool::new(false),
            pushed: Mutex::default(),
            trouble: Mutex::new(Some(trouble)),
            asked: AtomicU64::new(Instant::NEVER.as_nanos()),
            since,
        }
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.ring.notify_one();
    }

    /// A request left at this instant; [`Instant::NEVER`]: it was answered.
    pub(crate) fn asks(&self, at: Instant) {
        self.asked.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// For how long the engine has owed an answer.
    pub(crate) fn unanswered(&self, now: Instant) -> Duration {
        now.since(Instant::from_nanos(self.asked.load(Ordering::Relaxed)))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

#[derive(Default)]
pub(crate) struct NameState {
    pub(crate) holds: Vec<LocalHold>,
    pub(crate) line: LocalQueue,
    pub(crate) claim: Option<Box<InFlight>>,
}

/// Work for the engine that a change of the state asks for; done after the shard is unlocked.
pub(crate) struct Start {
    pub(crate) claim: Claim,
    pub(crate) control: Arc<Control>,
}

impl NameState {
    pub(crate) fn is_idle(&self) -> bool {
        self.holds.is_empty() && self.line.is_empty() && self.claim.is_none()
    }

    pub(crate) fn hold(&mut self, id: ClaimId) -> Option<&mut LocalHold> {
        self.holds.iter_mut().find(|hold| hold.id == id)
    }

    /// Whether a hold of this process stands in the way of `mode`. A lost one does not: it is as far away as a stranger's.
    pub(crate) fn conflicts(&self, mode: Mode) -> bool {
        let mut live = self.holds.iter().filter(|hold| hold.lease.lost().is_none());
        match mode {
            Mode::Exclusive => live.next().is_some(),
            Mode::Shared => live.any(|hold| hold.ending || hold.terms.mode == Mode::Exclusive),
            Mode::Permits { count, limit } => {
                let used = |hold: &LocalHold| match hold.terms.mode {
                    Mode::Permits { count, .. } => u64::from(count),
                    Mode::Exclusive | Mode::Shared => u64::from(limit),
                };
                live.map(used).sum::<u64>() + u64::from(count) > u64::from(limit)
            }
        }
    }

    /// The mode that stands here already, if `mode` can never stand beside it. All that are here are of one kind.
    pub(crate) fn clash(&self, mode: Mode) -> Option<Mode> {
        let hold = self.holds.first().map(|hold| hold.terms.mode);
        let here = hold.or_else(|| Some(self.line.head()?.terms.mode))?;
        (!here.same_kind(mode)).then_some(here)
    }
}

/// How a guard was let go of.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) ended: Previous,
    /// Keep the name taken until this instant.
    pub(crate) keep_until: Option<Instant>,
}
