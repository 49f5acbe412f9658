//! The table of one process: which claims hold or wait, which keys the session has, and what to send next.
//!
//! A database lets a session take its own lock again, so the table never asks for a key that the session has or that a
//! request in flight may bring. This is a pure state machine: claims, replies and times come in, batches and outcomes
//! come out.

mod apply;
mod queue;
mod release;
#[cfg(feature = "postgres")]
#[cfg(test)]
mod tests;
mod watch;

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use leasehold_core::{
    Answer, Claim, ClaimId, EngineError, Grant, HAND_OVER_TOKENS, Instant, Lineage, Mode, Name, Previous,
    Token, lock_state::Tombstones,
};

use self::watch::{FIRST_PAUSE, WatchState};
pub(crate) use self::{
    apply::Plan,
    queue::{AllPermitKeys, KeyedClaim},
};
use super::{
    lock_key::Key,
    server::{Batch, NameKeys, Share},
};

/// How long the id of a released claim is remembered: until then a late request of the claim creates nothing.
pub(crate) const REQUEST_LIFE: Duration = Duration::from_secs(10);

/// All claims of a process on one database.
pub(crate) struct Table {
    names: HashMap<Name, NameState>,
    /// The keys that the session has, or that a request in flight takes or ends.
    keys: HashMap<Key, KeyUse>,
    /// What the session watches for the waiting claims, by the key of the waiters.
    watches: HashMap<Key, WatchState>,
    /// When each waiting name is tried again.
    due: BTreeSet<(Instant, Name)>,
    released: Tombstones,
    /// The current session.
    terms: SessionTerms,
    /// When the newest heartbeat was sent that the current session answered.
    newest_heartbeat: Instant,
    /// The requests to send, and what they are for.
    pending: (Batch, Plan),
    outcomes: Vec<Outcome>,
}

/// The session to which the table belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTerms {
    /// The number of the session; 0 before the first one.
    pub(crate) number: u64,
    pub(crate) lineage: Lineage,
    pub(crate) longest_ttl: Duration,
    /// How many keys the session may have.
    pub(crate) max_keys: usize,
    /// The end of the lock delay.
    pub(crate) grants_from: Instant,
}

/// What became of a claim or a hold.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The answer to the requests of a claim.
    Answer(ClaimId, Result<Answer, EngineError>),
    /// A waiting claim was granted by a request that was sent at `since`.
    Granted { name: Name, id: ClaimId, grant: Grant, since: Instant },
    /// The answer to the releases of a claim.
    Released(ClaimId, Result<bool, EngineError>),
    /// The hold ended with its session.
    Lost(Name, ClaimId),
    /// The session of a waiting claim ended.
    Recheck(Name, ClaimId),
}

/// One name.
struct NameState {
    keys: NameKeys,
    holds: Vec<LocalHold>,
    /// The claims without a grant, in order.
    queue: VecDeque<Waiter>,
    /// The claim at the head of the queue is being tried.
    trying: bool,
    /// While it is being tried, there was a reason to try it again.
    try_again: bool,
    /// A claim waits for another process.
    watched: bool,
    /// The pause before the next try.
    pause: Duration,
    /// Since when the name waits for another process, and nothing was heard of it: the poller tries less often.
    waits_since: Instant,
    /// When the name is tried again, as in [`Table::due`].
    due: Option<Instant>,
    /// Until then the name is left to other processes, which were notified of a release.
    gap_until: Instant,
}

/// A claim that holds.
struct LocalHold {
    id: ClaimId,
    mode: Mode,
    token: Token,
    tokens: u32,
    owner: Arc<str>,
    since: Instant,
    /// When the batch that was granted was sent.
    sent_at: Instant,
    /// The keys of its permits.
    permits: Vec<Key>,
    /// Its release is in flight.
    releasing: bool,
    /// Its release named its token.
    is_named: bool,
}

/// A claim without a grant.
struct Waiter {
    claim: Claim,
    /// The keys of the permits of the name, for a claim of permits.
    permit_keys: Option<AllPermitKeys>,
    /// A request of the claim waits for an answer: when its newest request was made.
    asked: Option<Instant>,
    /// The server answered "taken" since the last reason to try.
    tried: bool,
    /// The claim was released while its try was in flight.
    abandoned: bool,
    since: Instant,
}

/// A key that the session has or may have.
struct KeyUse {
    name: Name,
    share: Share,
    /// How many holds of the name share the key.
    users: usize,
    stage: KeyStage,
    /// Other names with the same key, whose claims wait for it.
    colliding: Vec<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyStage {
    Locking,
    Locked,
    Unlocking,
}

/// A hold or a waiting claim, for inspection.
pub(crate) struct LocalView {
    pub(crate) id: ClaimId,
    pub(crate) owner: Arc<str>,
    pub(crate) mode: Mode,
    /// The token of a hold; `None` for a waiting claim.
    pub(crate) token: Option<Token>,
    pub(crate) since: Instant,
}

impl Default for SessionTerms {
    fn default() -> Self {
        let (number, longest_ttl, max_keys) = Default::default();
        Self { number, lineage: Lineage::new(0), longest_ttl, max_keys, grants_from: Instant::NEVER }
    }
}

impl Table {
    pub(crate) fn new() -> Self {
        Self {
            names: HashMap::new(),
            keys: HashMap::new(),
            watches: HashMap::new(),
            due: BTreeSet::new(),
            released: Tombstones::default(),
            terms: SessionTerms::default(),
            newest_heartbeat: Instant::from_nanos(0),
            pending: Default::default(),
            outcomes: Vec::new(),
        }
    }

    /// The current session.
    pub(crate) const fn terms(&self) -> &SessionTerms {
        &self.terms
    }

    /// Begins a new session. The previous one must have ended.
    pub(crate) fn begin_session(&mut self, terms: SessionTerms, now: Instant) {
        self.terms = terms;
        self.newest_heartbeat = Instant::from_nanos(0);
        let waiting: Vec<Name> = self.names.keys().cloned().collect();
        waiting.into_iter().for_each(|name| self.advance(&name, now));
    }

    /// What became of claims and holds since the last call.
    pub(crate) fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// The token of the hold of this claim in the current session.
    pub(crate) fn token_of(&self, name: &Name, id: ClaimId) -> Option<Token> {
        let holds = &self.names.get(name)?.holds;
        holds.iter().find(|hold| hold.id == id && !hold.releasing).map(|hold| hold.token)
    }

    /// Records that the session with this number answered a heartbeat that was sent at `sent_at`.
    pub(crate) fn heartbeat_answered(&mut self, session: u64, sent_at: Instant) {
        if self.terms.number == session {
            self.newest_heartbeat = self.newest_heartbeat.max(sent_at);
        }
    }

    /// The grant of a hold, for a repeated request of its claim that was made at `asked`.
    fn grant_of(&self, claim: &Claim, asked: Instant) -> Option<Grant> {
        let holds = &self.names.get(&claim.name)?.holds;
        let hold = holds.iter().find(|hold| hold.id == claim.id && !hold.releasing)?;
        let proven = hold.sent_at.max(self.newest_heartbeat);
        Some(self.terms.grant((hold.token, hold.tokens), claim.ttl, asked.since(proven)))
    }

    /// The names with a claim of this process.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.names.keys()
    }

    /// The holds and the waiting claims of this process on a name.
    pub(crate) fn views_of(&self, name: &Name) -> Vec<LocalView> {
        let Some(state) = self.names.get(name) else { return Vec::new() };
        let holds = state.holds.iter().map(|hold| LocalView {
            id: hold.id,
            owner: Arc::clone(&hold.owner),
            mode: hold.mode,
            token: Some(hold.token),
            since: hold.since,
        });
        let waiting = state.queue.iter().map(|waiter| LocalView {
            id: waiter.claim.id,
            owner: Arc::clone(&waiter.claim.owner),
            mode: waiter.claim.mode,
            token: None,
            since: waiter.since,
        });
        holds.chain(waiting).collect()
    }

    /// Forgets a name without claims.
    fn drop_if_idle(&mut self, name: &Name) {
        let Some(state) = self.names.get(name) else { return };
        if state.holds.is_empty() && state.queue.is_empty() {
            if let Some(due) = state.due {
                self.due.remove(&(due, name.clone()));
            }
            self.names.remove(name);
        }
    }
}

impl SessionTerms {
    /// A grant with these tokens, for a claim that asks for `ttl`. The claim counts its ttl from its request, and the
    /// session is known to live since a request that was sent earlier, by `gap` (R1).
    fn grant(&self, (token, tokens): (Token, u32), ttl: Duration, gap: Duration) -> Grant {
        let ttl = ttl.min(self.longest_ttl.saturating_sub(gap));
        Grant { token, tokens, ttl: Some(ttl), previous: Previous::Unknown }
    }

    /// The first token of a grant that the server gave this number.
    fn token(&self, number: u64) -> Token {
        let first = number.saturating_mul(u64::from(HAND_OVER_TOKENS));
        Token { lineage: self.lineage, number: first.max(1) }
    }
}

impl NameState {
    fn new(keys: NameKeys) -> Self {
        let (waits_since, gap_until) = (Instant::from_nanos(0), Instant::from_nanos(0));
        let (holds, queue, trying, try_again, watched, due) = Default::default();
        let pause = FIRST_PAUSE;
        Self { keys, holds, queue, trying, try_again, watched, pause, waits_since, due, gap_until }
    }
}
